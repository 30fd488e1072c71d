"""Calls that native code answers once it has been shown them: those that wait, and those that run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ingot.frontend.jit.follow.following import Following
from ingot.frontend.jit.follow.steps.native_steps import NativeTree
from ingot.frontend.jit.follow.steps.step_tree import StepNode
from ingot.runtime.native.following import native_following
from ingot.runtime.native.following.native_following import NativeNode
from tests.frontend.jit.follow.following_checks import check, followed, same

_X = torch.linspace(-2, 3, 24).reshape(4, 6)
_WEIGHT = torch.linspace(-1, 1, 60).reshape(10, 6)
_INDEX = torch.tensor([3, 0, 2])


def sorts_what_is_pending(x: torch.Tensor) -> torch.Tensor:
    y = torch.sort(x * 2 + 1, dim=0)[0]
    return y - x


def gathers_by_numbers_that_are_given(x: torch.Tensor) -> torch.Tensor:
    picked = F.embedding(_INDEX % 3, _WEIGHT)
    return torch.gather(x * 2, 1, _INDEX[None].expand(4, 3)) + picked[:, :1].T


def names_devices(x: torch.Tensor) -> torch.Tensor:
    device = torch.device("cpu")
    y = (x * 2).to(device=torch.device("cpu"), dtype=torch.float64)
    return y + torch.arange(6, device=device) + torch.ones(4, 1, device=x.device)


def turns_into_rows(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).reshape(2, 12)
    z = (y + 1).flatten()
    return z.view(4, 6) * y.reshape(-1)[0]


def turns_what_lies_otherwise_into_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = (x * 2).t()
    copied = y.reshape(-1)
    copied.mul_(3)
    return copied + 1, y


def writes_a_row_of_a_view(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).reshape(24)
    y[:6].mul_(10)
    return y.reshape(4, 6) + 1


def writes_into_new_memory(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4, 6)
    total += x
    part = total.view(-1)
    part.mul_(2)
    return total + part.view(4, 6)


def writes_into_a_part_of_an_argument(x: torch.Tensor) -> torch.Tensor:
    x[1] = 7
    x.index_copy_(0, _INDEX, x[:3] * 2)
    return x * 3


def scatters(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(10, 6)
    y.index_add_(0, _INDEX, x[:3])
    return y + 1


def stays_as_it_is(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).to(torch.float32).contiguous()
    y = F.dropout(y, 0.5, training=False)
    return (y + 1).float()


def changes_whether_gradients_are_recorded(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad():
        z = y + 1
    return z * y


_PROGRAMS: list[Callable[..., Any]] = [
    sorts_what_is_pending,
    gathers_by_numbers_that_are_given,
    names_devices,
    turns_into_rows,
    turns_what_lies_otherwise_into_rows,
    writes_a_row_of_a_view,
    writes_into_new_memory,
    writes_into_a_part_of_an_argument,
    scatters,
    stays_as_it_is,
    changes_whether_gradients_are_recorded,
]
_NEEDS_PYTHON = {changes_whether_gradients_are_recorded}
"""Programs in which a change of torch's settings is looked at in Python."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The functions whose calls native code left to Python."""
    seen: list[Any] = []
    look_operate = Following._operate

    def noting(self: Following, function: Any, *rest: Any) -> Any:
        seen.append(function)
        return look_operate(self, function, *rest)

    monkeypatch.setattr(Following, "_operate", noting)
    yield seen


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda program: program.__name__)
def test_programs_do_what_eager_does(program: Callable[..., Any]) -> None:
    check(program, lambda: (_X + torch.rand(1),), calls=8)


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda program: program.__name__)
def test_known_calls_need_no_python(program: Callable[..., Any], looks: list[Any]) -> None:
    jitted = followed(program)
    for _ in range(6):
        jitted(_X.clone())
    assert looks, "the first calls are looked at"
    looks.clear()
    same(jitted(_X.clone()), program(_X.clone()), "the last call")
    assert not looks or program in _NEEDS_PYTHON


def test_steps_at_one_point_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_following, "MOST_STEPS", 64)

    def column(x: torch.Tensor, text: str) -> torch.Tensor:
        return torch.einsum(text, x, x) + 1

    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [f"{one}{other},{one}{other}->{one}" for one in letters[:10] for other in letters[10:20]]
    assert len(texts) > native_following.MOST_STEPS
    jitted = followed(column)
    for _ in range(2):
        for text in texts:
            same(jitted(_X, text), column(_X, text), text)


def test_a_tree_that_is_full_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from ingot.frontend.jit.follow import follower

    made: list[int] = []
    monkeypatch.setattr(follower, "MOST_NATIVE_STEPS", 20)
    begin = NativeTree.__init__

    def counting(self: NativeTree) -> None:
        made.append(1)
        begin(self)

    monkeypatch.setattr(NativeTree, "__init__", counting)

    def powers(x: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            x = torch.tanh(x) * 2
        return x

    jitted = followed(powers)
    for count in [*range(1, 16), *range(15, 0, -1)]:
        same(jitted(_X, count), powers(_X, count), f"{count} times")
    assert len(made) > 1


def test_native_code_takes_no_step_that_an_interrupt_kept_from_being_noted():
    class Interrupting(dict[int, Any]):
        def __setitem__(self, key: int, value: Any) -> None:
            raise KeyboardInterrupt

    tree = NativeTree()
    root = tree.add_root(StepNode(None, None))
    node = tree._nodes[root][0]
    step: Any = SimpleNamespace(target=NativeNode(), address=1, lead_to=lambda following: None)
    tree._nodes = Interrupting(tree._nodes)
    with pytest.raises(KeyboardInterrupt):
        tree.add_step(root, step, StepNode(None, None))
    assert not node.steps and not node._words.first
