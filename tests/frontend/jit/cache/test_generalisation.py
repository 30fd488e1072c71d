"""Traces written by hand: which of them are the same function of sizes and numbers, and which only look like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ingot.frontend.jit.cache.generalisation import CannotGeneralise, Unified, generalise
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    Made,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    Variable,
)

aten: Any = torch.ops.aten
Sizes = tuple[int, ...]


def strides_of(shape: Sizes) -> Sizes:
    return torch.empty(shape, device="meta").stride()


def trace_of(*arguments: Sizes, results: Sequence[Sizes], events: Sequence[Any], **keywords: Any) -> Trace:
    """A trace whose event number i makes result number i of the shape given; an event is a target and its arguments."""
    trace = Trace(**keywords)
    for position, shape in enumerate(arguments):
        trace.tensors.append(TensorMeta(TraceArgument(position), torch.float32, shape, strides_of(shape), position))
    for index, (shape, (target, given, *more)) in enumerate(zip(results, events, strict=True)):
        made = TraceValue(len(trace.tensors))
        trace.tensors.append(TensorMeta(Made(index), torch.float32, shape, strides_of(shape), len(trace.tensors)))
        numbers = more[0] if more else frozenset()
        trace.events.append(TraceOp(target, given, {}, made, "here.py:1", numbers))
    trace.results = [TraceValue(len(trace.tensors) - 1)]
    return trace


def view_of(shape: Sizes, new: Sequence[int], **keywords: Any) -> Trace:
    event = (aten.view.default, (TraceValue(0), list(new)))
    return trace_of(shape, results=[tuple(new)], events=[event], **keywords)


def viewed(*pairs: tuple[Sizes, Sequence[int]]) -> Unified:
    return generalise([view_of(shape, new) for shape, new in pairs])


def sizes_text(unified: Unified) -> str:
    return str(unified.trace.events[0].arguments[1])


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_that_vary_are_symbols_and_the_others_are_constants():
    unified = viewed(((2, 3, 8), (6, 8)), ((4, 5, 8), (20, 8)), ((7, 2, 8), (14, 8)))
    argument, result = unified.trace.tensors
    assert [str(size) for size in argument.sizes] == ["size0", "size1", "8"]
    assert [str(size) for size in result.sizes] == ["size0*size1", "8"]
    assert unified.trace.symbols == {"size0": (0, 0), "size1": (0, 1)}
    assert sizes_text(unified) == "[SizeExpression(size0*size1), 8]"
    assert unified.variables == () and unified.divisors == ()


def test_sizes_of_arguments_stand_for_themselves_though_one_is_a_multiple_of_another():
    shapes = (((2, 16), (2, 32)), ((4, 64), (4, 64)), ((8, 32), (8, 128)))
    event = (aten.cat.default, ([TraceValue(0), TraceValue(1)], 1))
    traces = [trace_of(x, y, results=[(x[0], x[1] + y[1])], events=[event]) for x, y in shapes]
    first, second, _ = generalise(traces).trace.tensors
    assert [str(size) for size in (*first.sizes, *second.sizes)] == ["size0", "size1", "size0", "size2"]


def test_sizes_that_vary_together_are_one_symbol():
    event = (aten.add.Tensor, (TraceValue(0), TraceValue(1)))
    traces = [trace_of((n, 4), (n, n), results=[(n, 4)], events=[event]) for n in (2, 5, 9)]
    unified = generalise(traces)
    assert [str(size) for note in unified.trace.tensors[:2] for size in note.sizes] == ["size0", "4", "size0", "size0"]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (lambda b, t: (b * t, 6), "size0*size1"),
        (lambda b, t: (b * t * 3, 2), "3*size0*size1"),
        (lambda b, t: (b, t * 6), "size0"),
        (lambda b, t: (b * 6, t), "6*size0"),
        (lambda b, t: (b * b, 1), "size0*size0"),
        (lambda b, t: (b * t * t, 1), "size0*size1*size1"),
        (lambda b, t: (b + t, 1), "size0 + size1"),
        (lambda b, t: (t + 1, 1), "size1 + 1"),
        (lambda b, t: (2 * t - 3, 1), "2*size1 - 3"),
    ],
)
def test_ints_that_vary_are_expressions(new: Any, text: str):
    unified = viewed(*(((b, t, 6), new(b, t)) for b, t in ((2, 11), (3, 13), (5, 20))))
    assert str(unified.trace.events[0].arguments[1][0]) == text


def test_quotients_are_exact_or_refused():
    unified = viewed(((4, 3), (2, 6)), ((8, 3), (4, 6)), ((10, 3), (5, 6)))
    assert sizes_text(unified) == "[SizeExpression(floordiv(size0, 2)), 6]"
    assert unified.divisors == (("size0", 2),)
    with pytest.raises(CannotGeneralise, match="2, 4, 3, which no"):
        viewed(((4, 3), (2, 6)), ((8, 3), (4, 6)), ((5, 3), (3, 5)))


def test_products_go_before_lines_that_fit_by_chance():
    """14 * size1 - 72 has these values, too."""
    unified = viewed(*(((b, t, 2), (b * t, 2)) for b, t in ((5, 8), (2, 6), (6, 9))))
    assert sizes_text(unified) == "[SizeExpression(size0*size1), 2]"


def test_two_sizes_are_too_few_for_a_line():
    with pytest.raises(CannotGeneralise, match="4, 6, which no"):
        viewed(((3, 1), (4, 1)), ((5, 1), (6, 1)))


def test_an_int_that_has_two_explanations_has_none():
    """The second size has always been four times the first: the recordings do not tell which of them is meant."""
    with pytest.raises(CannotGeneralise, match="two ways"):
        viewed(*(((n, 4 * n), (4 * n, n)) for n in (2, 3, 5)))


def test_ints_that_nothing_explains():
    with pytest.raises(CannotGeneralise, match="2, 3, 7, which no size"):
        viewed(((2, 4), (2, 4)), ((3, 4), (3, 4)), ((5, 4), (7, 4)))


# --- numbers ----------------------------------------------------------------------------------------------------------

HANDED = frozenset({1})


def scaled(factor: Any, numbers: frozenset[int] = HANDED, shape: Sizes = (4,)) -> Trace:
    event = (aten.mul.Tensor, (TraceValue(0), factor), numbers)
    return trace_of(shape, results=[shape], events=[event])


def test_a_number_that_was_passed_is_a_variable():
    unified = generalise([scaled(0.5), scaled(0.7)], {1: (0.5, 0.7)})
    assert unified.trace.events[0].arguments == (TraceValue(0), Variable(0, float))
    assert unified.variables == (1,)


@pytest.mark.parametrize(
    ("values", "passed"),
    [
        ((1.0, 1.4), (0.5, 0.7)),  # computed from it
        ((0.0, 1.0), (-0.0, 1.0)),  # equal, but not the same
        ((1, 2), (1.0, 2.0)),  # of another type
        ((0.5, 0.7), (0.5, 0.8)),
    ],
)
def test_other_numbers_that_vary_are_refused(values: Any, passed: Any):
    with pytest.raises(CannotGeneralise, match="nothing explains"):
        generalise([scaled(value) for value in values], {1: passed})


def test_a_number_that_was_not_handed_to_torch_there_is_refused():
    with pytest.raises(CannotGeneralise, match="nothing explains"):
        generalise([scaled(0.5, frozenset()), scaled(0.7, frozenset())], {1: (0.5, 0.7)})


def test_numbers_that_are_the_same_in_every_call_are_told_apart_by_where_they_are_handed():
    both = {1: (0.5, 0.7), 2: (0.5, 0.7)}
    unified = generalise([scaled(value, frozenset({2})) for value in (0.5, 0.7)], both)
    assert unified.trace.events[0].arguments[1] == Variable(1, float)
    with pytest.raises(CannotGeneralise, match="told apart"):
        generalise([scaled(value, frozenset({1, 2})) for value in (0.5, 0.7)], both)


def test_a_number_that_does_not_vary_stays():
    unified = generalise([scaled(0.5, shape=(n,)) for n in (2, 3)], {1: (0.5, 0.5)})
    assert unified.variables == () and unified.trace.events[0].arguments[1] == 0.5


def test_nan_is_the_same_as_nan():
    nan = float("nan")
    assert generalise([scaled(nan), scaled(0.5)], {1: (nan, 0.5)}).variables == (1,)
    assert generalise([scaled(nan, shape=(n,)) for n in (2, 3)]).variables == ()


def test_an_int_that_may_be_a_size_or_a_number_is_refused():
    with pytest.raises(CannotGeneralise, match="two ways"):
        generalise([scaled(n, shape=(n,)) for n in (2, 3, 5)], {1: (2, 3, 5)})


# --- everything else --------------------------------------------------------------------------------------------------


def test_bools_do_not_vary():
    with pytest.raises(CannotGeneralise, match="True, False"):
        generalise([scaled(True), scaled(False)], {1: (True, False)})


def test_other_operators_are_other_functions():
    other = trace_of((4,), results=[(4,)], events=[(aten.add.Tensor, (TraceValue(0), 2.0))])
    with pytest.raises(CannotGeneralise, match="operation 0 differs"):
        generalise([scaled(2.0), other])


def test_another_number_of_operators():
    event = (aten.relu.default, (TraceValue(0),))
    traces = [trace_of((n,), results=[(n,)] * n, events=[event] * n) for n in (2, 3, 5)]
    with pytest.raises(CannotGeneralise, match="number of"):
        generalise(traces)


def test_other_layouts_of_results():
    one, other = scaled(2.0, shape=(4, 4)), scaled(2.0, shape=(4, 4))
    note = other.tensors[1]
    other.tensors[1] = TensorMeta(note.origin, note.dtype, note.shape, (1, 4), note.storage)
    with pytest.raises(CannotGeneralise, match="layout"):
        generalise([one, other])


def test_results_do_not_vary():
    one, other = scaled(2.0), scaled(2.0)
    one.results, other.results = [TraceValue(1), 4], [TraceValue(1), 5]
    with pytest.raises(CannotGeneralise, match="a result holds 4, 5"):
        generalise([one, other])


def test_values_of_constants_that_python_read():
    one, other = scaled(0.5), scaled(0.7)
    other.reads_constants = True
    with pytest.raises(CannotGeneralise, match="Python read"):
        generalise([one, other], {1: (0.5, 0.7)})


def test_environment_tensors_are_the_same_or_constants_that_are_equal():
    weight = torch.randn(4)

    def around(n: int, tensor: torch.Tensor) -> Trace:
        trace = scaled(2.0, shape=(n, 4))
        trace.tensors.append(TensorMeta(EnvironmentTensor(0), torch.float32, (4,), (1,), 9))
        trace.environment_tensors.append(tensor)
        return trace

    unified = generalise([around(2, weight), around(3, weight.clone()), around(5, weight)])
    assert unified.trace.environment_tensors[0] is weight
    with pytest.raises(CannotGeneralise, match="around the function"):
        generalise([around(2, weight), around(3, weight + 1)])
