"""What a function does besides returning numbers: writes, random numbers, effects in Python, reading around itself."""

from __future__ import annotations

import io
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F

import ingot
from ingot.base.errors import CaptureError
from tests.frontend.jit.comparing import check, is_compiled, place, same, why_followed

jit: Any = ingot.jit


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (4, 5)))


# --- writes -----------------------------------------------------------------------------------------------------------


def _write_temporary(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    y[0] = 5
    y[:, 1].mul_(3)
    return y


def _write_input(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def _write_input_through_view(x: torch.Tensor) -> torch.Tensor:
    x[1:].mul_(2)
    return x + 1


def _write_both(x: torch.Tensor) -> Any:
    flat = x.view(-1)
    x.add_(1)
    doubled = flat * 2
    flat.sub_(3)
    return flat, x, doubled


def _write_twice(x: torch.Tensor) -> Any:
    x.mul_(2)
    before = torch.tanh(x)
    x.add_(before).relu_()
    return before, torch.mm(x, x.t()) + 1


def _read_before_write(x: torch.Tensor) -> Any:
    before = x * 3
    x.zero_()
    return before + x


def _assign_masked(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x > 0] = 7.0
    x[x < -1] = 0
    return y


def _assign_indices(x: torch.Tensor) -> torch.Tensor:
    x[torch.tensor([0, 2])] += 1
    x[..., 1:3] = x[..., 3:5].clone()
    return x


def _out(x: torch.Tensor) -> Any:
    given = torch.empty_like(x)
    result = torch.mul(x, 2, out=given)
    torch.add(given, 1, out=x)
    return given, result


def _swap(x: torch.Tensor) -> torch.Tensor:
    first = x[0].clone()
    x[0] = x[1]
    x[1] = first
    return x.sum(0)


def _constant_written(x: torch.Tensor) -> torch.Tensor:
    constant = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    constant.add_(x[0])
    return constant


def _look_around_a_row(x: torch.Tensor) -> torch.Tensor:
    row = (x + 1)[2]
    row.mul_(2)
    return row.as_strided((4, 3), (1, 5), 0) + 1


def _look_around_an_input(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.as_strided((4, 5), (5, 1), 0) + 1


@pytest.mark.parametrize(
    "function",
    [
        _write_temporary,
        _write_input,
        _write_input_through_view,
        _write_both,
        _write_twice,
        _read_before_write,
        _assign_masked,
        _assign_indices,
        _out,
        _swap,
        _constant_written,
        _look_around_a_row,
        _look_around_an_input,
    ],
)
@pytest.mark.parametrize(
    "make", [_x, lambda: _x(5, 8)[:4, :5], lambda: _x(5, 4).t()], ids=["plain", "part", "transposed"]
)
def test_writes_keep_their_meaning(function: Any, make: Any) -> None:
    if function is _write_both and not make().is_contiguous():
        pytest.skip("a flat view needs contiguous memory")
    assert is_compiled(check(function, lambda: [make()], python="skip"))
    check(function, lambda: [make()])


def test_arguments_that_share_memory() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    whole, apart = _x(7), (_x(6), _x(6))
    orders = {
        "apart first": [apart, apart, (whole[1:], whole[:-1]), (apart[0], apart[0]), (whole[:-1], whole[1:]), apart],
        "shared first": [(whole[1:], whole[:-1]), (whole[1:], whole[:-1]), apart, apart],
    }
    for order in orders.values():
        compiled = jit(write)
        for pair in order:
            check(write, lambda pair=pair: pair, 1, compiled=compiled)


def test_overlapping_reads_come_before_the_write() -> None:
    def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        doubled = y * 2
        x.add_(doubled)
        return x

    for first, second in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        check(shifted, lambda first=first, second=second: [(whole := _x(50001))[first], whole[second]])


def test_tensors_around_are_read_and_written_where_they_are() -> None:
    weight, counter = _x(5), torch.zeros(())

    def weighted(x: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        return x * weight + counter

    compiled, x = jit(weighted), _x()
    for call in range(1, 5):
        weight.mul_(2)
        same(compiled(x), x * weight + call)
    assert is_compiled(compiled) and counter == 4
    same(compiled(weight), weight * weight + 5)
    same(compiled(counter), counter * weight + counter)  # an argument that is also around


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_seeded_random_numbers_are_eagers() -> None:
    def noisy(x: torch.Tensor) -> Any:
        return F.dropout(x * 2, 0.3) + 1, torch.rand_like(x) + torch.randn(4, 5) * x, x.clone().normal_()

    assert is_compiled(check(noisy, lambda: [_x()]))


def test_functions_that_seed_are_followed() -> None:
    own = torch.Generator()

    def seeded(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return torch.rand(4, 5) + x

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(4, 5, generator=own.manual_seed(3)) + x

    def forked(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            return torch.rand(4, 5) + x

    for function in (seeded, drawn, forked):
        assert "test_capture.py:" in why_followed(check(function, lambda: [_x()], 5))


@pytest.mark.parametrize(
    ("seed", "draw"),
    [
        (random.seed, random.random),
        (random.seed, lambda: random.randint(1, 9)),
        (numpy.random.seed, numpy.random.rand),
        (numpy.random.seed, lambda: float(numpy.random.normal())),
    ],
)
def test_numbers_of_other_generators_are_drawn_every_time(
    seed: Callable[[int], Any], draw: Callable[[], float]
) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * draw()

    compiled, x = jit(scaled), _x()
    seed(0)
    expected = [scaled(x) for _ in range(4)]
    seed(0)
    same([compiled(x) for _ in range(4)], expected)
    assert why_followed(compiled)


# --- values that decide -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x + torch.from_numpy(x.numpy()),
        lambda x: x.tolist(),
        lambda x: x * float(x[0, 0]),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x * (2 if torch.equal(x, x + 0) else 3),
        lambda x: (x * 2, str(x)),
        lambda x: (x * 2, f"{x[0, 0]:.3f}"),
        lambda x: numpy.asarray(x).sum().item() * x,
        lambda x: x * int(x.argmax()),
        lambda x: (x * 2, x.data_ptr() == 0),
        lambda x: torch.unique(x.round()),
        lambda x: x * 2 if torch.allclose(x, x) else x,
        lambda x: list(row * 2 for row in x if row.sum() > 0),  # noqa: C400
    ],
)
def test_functions_whose_values_reach_python_are_followed(function: Any) -> None:
    reason = why_followed(check(function, lambda: [_x()], 6))
    first = function.__code__.co_firstlineno
    assert reason.endswith((place(__file__, first), place(__file__, first + 1)))
    with pytest.raises(CaptureError, match="test_capture"):
        jit(function, fullgraph=True)(_x())


def test_errors_that_are_caught_depend_on_values() -> None:
    def robust(x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x + 1

    compiled = jit(robust)
    good, bad = torch.eye(3), -torch.eye(3)
    for x in (bad, good, bad, good, good):
        same(compiled(x), robust(x))
    check(robust, lambda: [good])


def test_sizes_may_be_read() -> None:
    def sized(x: torch.Tensor) -> torch.Tensor:
        return x * len(x) + x.shape[1] - x.numel() if x.dim() == 2 else x

    compiled = jit(sized)
    for sizes in ((4, 5), (4, 5), (4, 5), (3, 2), (4,), (3, 2), (3, 2), (4, 5)):
        check(sized, lambda sizes=sizes: [_x(*sizes)], 2, compiled=compiled)
    assert is_compiled(compiled)


def test_errors_are_eagers_at_every_call() -> None:
    def picky(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            raise KeyError("three")
        return x[index] * 2

    compiled = jit(picky)
    for rows, index in ((4, 0), (4, 1), (4, 99), (3, 0), (3, 0), (4, -4), (4, -5), (4, 2)):
        check(picky, lambda rows=rows, index=index: [_x(rows, 2), torch.tensor([index])], 1, compiled=compiled)
    assert is_compiled(compiled)
    divide = check(lambda x, y: x // y + 1, lambda: [torch.arange(4), torch.ones(4, dtype=torch.int64)])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(torch.arange(4), torch.zeros(4, dtype=torch.int64))


# --- effects in Python ------------------------------------------------------------------------------------------------


def test_printing_and_logging_happen_every_time() -> None:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))

    def printing(x: torch.Tensor) -> torch.Tensor:
        print("here", file=stream)
        return x + 1

    def logged(x: torch.Tensor) -> torch.Tensor:
        logger.warning("here")
        return x + 1

    for function in (printing, logged):
        stream.truncate(0)
        compiled = jit(function)
        for _ in range(5):
            compiled(_x())
        assert stream.getvalue().count("here") == 5
        assert "test_capture.py:" in why_followed(compiled)


def test_clocks_are_read_every_time() -> None:
    compiled = jit(lambda x: (x + 1, time.perf_counter_ns()))
    assert len({compiled(_x())[1] for _ in range(4)}) == 4
    assert why_followed(compiled)


_last: Any = None


def _store(x: torch.Tensor) -> torch.Tensor:
    global _last
    _last = x * 2
    return x + 1


def test_variables_outside_are_assigned_every_time() -> None:
    count, seen, known = 0, [], set()

    def counted(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * count

    def listed(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x + 1

    def gathered(x: torch.Tensor) -> torch.Tensor:
        known.add(len(known))
        return x + 1

    def with_inner(x: torch.Tensor) -> torch.Tensor:
        total = x

        def add() -> None:
            nonlocal total
            total = total + 1

        add()
        add()
        return total

    compiled, x = jit(counted), _x()
    for call in range(5):
        same(compiled(x), x * (call + 1))
    for function in (listed, gathered, _store):
        compiled = jit(function)
        for _ in range(5):
            compiled(_x())
        assert why_followed(compiled)
    assert len(seen) == 5 and known == {0, 1, 2, 3, 4}
    jit(_store)(x)
    same(_last, x * 2)
    assert is_compiled(check(with_inner, lambda: [_x()]))


def test_settings_that_are_left_changed() -> None:
    def leaves(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x + 1

    compiled = jit(leaves)
    for _ in range(3):
        with torch.enable_grad():
            compiled(_x())
            assert not torch.is_grad_enabled()


def test_tensors_are_turned_in_place() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y.t_().add_(1)
        z = torch.exp(x).unsqueeze_(0).transpose_(0, 2)
        return y, z.squeeze_(2) @ x

    check(function, lambda: [torch.randn(3, 4)])
    check(lambda x, y: torch.matmul(x, y) + 1, lambda: [torch.randn(4), torch.randn(4, 3)])


def test_arguments_that_are_turned_in_place_are_turned_by_every_call() -> None:
    compiled = ingot.jit(lambda x: x.t_() * 2)
    for _ in range(3):
        x = torch.randn(2, 3)
        same(compiled(x), x * 2)
        assert x.shape == (3, 2)


def test_writes_that_read_what_they_write_go_in_eagers_order() -> None:
    check(lambda x: x.add_(x.diagonal()), lambda: [torch.arange(16.0).view(4, 4)])
    check(lambda x: (x * 1).mul_(x.t()), lambda: [torch.arange(16.0).view(4, 4)])

    def on_a_temporary(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.add_(y.diagonal())

    check(on_a_temporary, lambda: [torch.arange(16.0).view(4, 4)])
