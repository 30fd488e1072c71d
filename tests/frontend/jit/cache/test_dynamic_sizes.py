"""Sizes that vary: a few recordings, one program, and eager's results for every size."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from ingot.base.environment_variables import environment
from ingot.frontend.jit.cache import recording_table
from ingot.frontend.jit.cache.shape_families import Generalised
from tests.frontend.jit.comparing import same, why_followed

jit: Any = ingot.jit


def calls(function: Any, shapes: Iterable[Sequence[Any]], repeat: int = 1, **options: Any) -> Any:
    """Call with tensors of each shape and compare with eager; a shape may be one tensor's or a list of several."""
    compiled = jit(function, **options)
    with torch.no_grad():
        for shape in shapes:
            for _ in range(repeat):
                several = shape if isinstance(shape, list) else [shape]
                given = [torch.randn(one) for one in several]
                twins = [one.clone() for one in given]
                torch.manual_seed(7)
                expected = function(*twins)
                torch.manual_seed(7)
                same(compiled(*given), expected, given, twins)
    return getattr(compiled, "forward", compiled)._compiled


def programs(compiled: Any) -> int:
    return sum(one.program is not None for one in compiled.specialisations.values())


def generals(compiled: Any) -> list[Generalised]:
    return [key for key in compiled.specialisations if isinstance(key, Generalised)]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 16)).eval()


@pytest.mark.parametrize("repeat", [1, 2])
def test_an_mlp_is_recorded_three_times_for_batches_of_1_to_64(repeat: int):
    compiled = calls(mlp(), [(batch, 32) for batch in range(1, 65)], repeat)
    assert compiled.recordings == 3
    assert programs(compiled) <= 3
    assert list(compiled.recompiles) == ["input: size 0 was 1, is 2", "input: size 0 was 2, is 3"]


def test_two_recordings_are_enough_where_sizes_are_said_to_vary():
    assert calls(mlp(), [(batch, 32) for batch in (5, 7, 9, 11, 13)], dynamic=True).recordings == 2


def test_every_size_is_recorded_where_sizes_are_said_not_to_vary():
    assert calls(mlp(), [(batch, 32) for batch in (5, 7, 9, 11, 13)], dynamic=False).recordings == 5


def test_sizes_of_1_and_0_are_recorded_on_their_own():
    compiled = calls(mlp(), [(batch, 32) for batch in (5, 7, 9, 1, 0, 12, 1, 0)])
    assert compiled.recordings == 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.split, self.join, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.split(self.norm(x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return F.gelu(x + self.join(mixed))


def test_batches_and_lengths_vary_at_once():
    numbers = random.Random(5)
    shapes = [(numbers.randint(2, 6), numbers.randint(2, 9), 16) for _ in range(15)]
    assert calls(Attention().eval(), shapes).recordings <= 4


def test_convolutions_keep_their_sizes():
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 2)).eval()
    assert calls(net, [(batch, 3, 8, 8) for batch in (2, 3, 4, 5, 6, 7)]).recordings == 3
    assert calls(net, [(2, 3, size, size) for size in (8, 12, 16, 10, 9, 11, 7, 20)]).recordings < 8


def test_inputs_share_sizes():
    def gate(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * y + w

    compiled = calls(gate, [[(n, m), (n, m), (m,)] for n, m in ((2, 3), (4, 7), (5, 6), (8, 9), (3, 3), (9, 2))])
    assert compiled.recordings == 3


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_that_grew_together_need_not_do_so_later(dynamic: bool | None):
    shapes = [
        [(b, m, 1), (b, 1, n)] for b, m, n in ((2, 64, 32), (4, 256, 64), (8, 512, 128), (8, 128, 256), (3, 90, 700))
    ]
    assert calls(torch.bmm, shapes, 4, dynamic=dynamic).recordings == (2 if dynamic else 3)


def test_sizes_that_no_longer_agree_are_recorded_or_fail_as_in_eager():
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * 2

    compiled = jit(add)
    for n in (2, 3, 4, 5):
        same(compiled(torch.ones(n, 3), torch.ones(n, 3)), torch.full((n, 3), 4.0))
    recordings = compiled._compiled.recordings
    same(compiled(torch.ones(6, 3), torch.ones(1, 3)), torch.full((6, 3), 4.0))
    assert compiled._compiled.recordings == recordings + 1
    with pytest.raises(RuntimeError, match="size of tensor a"):
        compiled(torch.ones(6, 3), torch.ones(7, 3))
    same(compiled(torch.ones(8, 3), torch.ones(8, 3)), torch.full((8, 3), 4.0))


# --- what sizes may do besides ----------------------------------------------------------------------------------------


def test_python_that_hands_over_halves_of_sizes_is_recorded_each_time():
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2] * (2 if x.shape[0] > 6 else 3)

    compiled = calls(halves, [(n, 3) for n in (2, 4, 6, 8, 10, 5, 3)])
    assert compiled.recordings == 7 and not generals(compiled)


def test_operators_that_split_by_size():
    def pieces(x: torch.Tensor) -> Any:
        first, second = x.chunk(2)
        return first.sum(0) + second.sum(0) * 2, torch.cat([x, x]), x.flip(0), x[1:] * 2, x[:-1], x[:4] + 1

    compiled = calls(pieces, [(n, 3) for n in (4, 8, 16, 5, 6, 7, 3, 2, 9, 10, 32, 12, 2, 4)])
    assert generals(compiled) and compiled.recordings < 12


def test_factories_take_sizes_from_their_surroundings():
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(x), x.new_ones(1, 3), x * 2]).cumsum(0)

    assert calls(shifted, [(n, 3) for n in (2, 4, 5, 7, 9)]).recordings == 3


def test_reductions_and_reshapes():
    def flat(x: torch.Tensor) -> Any:
        return x.reshape(-1), x.mean((0, 1)), x.flatten(1).softmax(-1), x.sum(), x.transpose(0, 1).contiguous() * 2

    compiled = calls(flat, [(b, t, 5) for b, t in ((2, 3), (5, 4), (7, 9), (3, 8), (4, 4), (9, 2))])
    assert compiled.recordings == 3


def test_results_laid_out_in_another_order():
    def transposed(x: torch.Tensor) -> torch.Tensor:
        return (x.transpose(0, 1) + 1).relu()

    assert calls(transposed, [(n, 4) for n in (2, 3, 5, 6, 7)]).recordings == 3


def test_writes_into_arguments():
    def update(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(y).relu_()
        return x.view(-1), x @ x.t(), y[0]

    assert calls(update, [[(n, 3), (n, 3)] for n in (2, 3, 4, 5, 6)]).recordings == 3


def test_random_numbers_are_those_of_eager():
    class Dropped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x * 2, 0.5, True) + 1

    assert calls(Dropped(), [(n, 3) for n in (2, 3, 4, 5, 6)]).recordings == 3


def test_columns_are_recorded_on_their_own():
    """A tensor that is not row-major has sizes and strides that go together."""
    compiled = jit(lambda x: x * 2 + 1)
    for n in (2, 3, 4, 5, 6):
        x = torch.randn(4, n).t()
        same(compiled(x), x * 2 + 1)
    assert compiled._compiled.recordings == 5


def test_sizes_and_numbers_vary_at_once():
    def scaled(x: torch.Tensor, alpha: float) -> torch.Tensor:
        return torch.tanh(x * alpha).sum(0) + alpha

    compiled = jit(scaled)
    for n in range(2, 12):
        x = torch.randn(n, 3)
        same(compiled(x, n / 7), scaled(x, n / 7))
    assert compiled._compiled.recordings == 3


def test_sizes_behind_values_of_constants():
    def counted(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.ones_like(x).sum().item() > 12 else x - 1

    compiled = jit(counted)
    for n in (2, 3, 4, 5, 6, 7):
        x = torch.randn(n, 3)
        same(compiled(x), counted(x))


# --- modules that change ----------------------------------------------------------------------------------------------


def test_what_changes_around_is_seen():
    net = mlp()
    compiled = jit(net)
    with torch.no_grad():
        for batch in (2, 3, 4, 5):
            compiled(torch.randn(batch, 32))
        for parameter in net.parameters():
            parameter.mul_(2)
        x = torch.randn(6, 32)
        same(compiled(x), net(x))
        net[0] = nn.Linear(32, 64)
        for batch in (7, 2, 8):
            x = torch.randn(batch, 32)
            same(compiled(x), net(x))


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_recordings_are_bounded_and_the_reason_says_what_varies(monkeypatch):
    monkeypatch.setattr(recording_table, "MOST_SPECIALISATIONS", 5)

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.shape[0])  # a number that no recording keeps open

    compiled = jit(reads)
    for n in range(1, 7):
        x = torch.randn(n)
        same(compiled(x), reads(x))
    reason = why_followed(compiled)
    assert "5 kinds of calls" in reason and "x: size 0 was 5, is 6" in reason and "dynamic=True" in reason
    for n in (*range(1, 12), 1, 2):
        x = torch.randn(n)
        same(compiled(x), reads(x))
    assert compiled._compiled.recordings == 5


def test_recompiles_are_logged_with_their_reason(monkeypatch, capfd):
    monkeypatch.setenv("INGOT_LOGS", "recompiles")
    environment.cache_clear()
    try:
        compiled = jit(lambda x, y: x + y)
        compiled(torch.ones(2), torch.ones(2))
        compiled(torch.ones(3), torch.ones(1))
        compiled(torch.ones(3, dtype=torch.float64), torch.ones(1))
        compiled(torch.ones(3, 1, dtype=torch.float64), torch.ones(1))
        with torch.no_grad():
            compiled(torch.ones(3), torch.ones(1))
    finally:
        monkeypatch.undo()
        environment.cache_clear()
    lines = [line.partition("recorded again: ")[2] for line in capfd.readouterr().err.splitlines()]
    assert lines == [
        "x: size 0 was 2, is 3, y: size 0 was 2, is 1",
        "x: dtype was torch.float32, is torch.float64",
        "x: had 1 dimensions, has 2",
        "grad mode was True, is False",
    ]


# --- many programs ----------------------------------------------------------------------------------------------------

UNARY: list[Any] = [
    lambda x: torch.sigmoid(x),
    lambda x: x.transpose(0, -1),
    lambda x: x.reshape(-1),
    lambda x: x.sum(-1),
    lambda x: x.mean(0, keepdim=True),
    lambda x: x.softmax(-1),
    lambda x: x[..., 1:],
    lambda x: x[..., :3],
    lambda x: x[..., ::2],
    lambda x: x.select(-1, 0),
    lambda x: torch.cat([x, x * 2], -1),
    lambda x: torch.stack([x, x]),
    lambda x: x.chunk(2, -1)[0],
    lambda x: x.split(2, -1)[-1],
    lambda x: x.tensor_split(2, 0)[-1],
    lambda x: x.flip(-1).cumsum(-1),
    lambda x: x.clone().relu_(),
    lambda x: x.add_(1),
    lambda x: x.expand(2, *[-1] * x.dim()),
    lambda x: F.pad(x, (1, 1)),
    lambda x: x.topk(2, -1)[0],
    lambda x: x.unflatten(-1, (-1, 1)),
]
BINARY: list[Any] = [
    lambda a, b: a + b,
    lambda a, b: a @ b.transpose(-1, -2),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.mul_(b),
    lambda a, b: torch.cat([a, b], 0),
    lambda a, b: torch.outer(a.reshape(-1), b.reshape(-1)),
]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_random_sizes(seed: int):
    numbers = random.Random(seed)
    steps = [(numbers.choice([UNARY, UNARY, BINARY]), numbers.random(), numbers.random()) for _ in range(5)]
    chosen = [(numbers.choice(table), table is BINARY, first, second) for table, first, second in steps]

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        values = [x, y]
        for apply, is_binary, first, second in chosen:
            operands = [values[int(place * len(values))] for place in ((first, second) if is_binary else (first,))]
            values.append(apply(*operands))
        return values[-1], values[len(values) // 2]

    compiled = jit(program, dynamic=numbers.choice([None, True]))
    for _ in range(8):
        shape = [numbers.choice([1, 2, 3, 4, 6, 7, 8]), numbers.choice([3, 5, 8]), 4][-numbers.choice([2, 2, 3]) :]
        given = [torch.randn(shape), torch.randn(shape)]
        twins = [one.clone() for one in given]
        expected = outcome(program, *twins)
        same(outcome(compiled, *given), expected, *((given, twins) if not isinstance(expected, Exception) else ()))


def outcome(function: Any, *given: Any) -> Any:
    try:
        return function(*given)
    except (RuntimeError, IndexError, ValueError) as error:
        return error
