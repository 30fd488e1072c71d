"""Every short pattern a rule might match, one by one: nothing here is left to chance.

Random graphs show how rules work together, but meet any one pattern rarely. So all operators of one and two values are
combined with all special constants, with each other, with casts and with views, on arguments that hold every special
value against every other, and each pass must keep every bit of all of it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import settings

import ingot
from ingot import DataType
from ingot.base.sizes import evaluate
from ingot.ir.graph import Graph, Output, operations_of
from ingot.ir.handles import Handle
from ingot.ir.torch_types import to_torch
from ingot.ir.verifier import verify
from ingot.ops import Kind, table
from ingot.passes.graph_passes import PASSES, optimize
from tests.property.conftest import CI_EXAMPLES
from tests.property.outcomes import difference, first_wrong_value, run
from tests.property.random_values import every_pair
from tests.property.recipes import CONSTANTS, EXPONENTS, NEUTRAL, UNDONE, calls_with, takes_anything_second
from tests.property.sketch import DTYPES

REWRITES: dict[str, Callable[[Graph], Graph]] = {}
REWRITES |= {pass_.name: (lambda graph, pass_=pass_: pass_.run(graph).graph) for pass_ in PASSES}
REWRITES["the pipeline"] = lambda graph: optimize(graph).graph

# Types that rules treat alike are left to long runs.
_CI_DTYPES = [DataType.Float, DataType.BFloat16, DataType.Int8, DataType.UInt8, DataType.Bool]
CHECKED = DTYPES if settings.get_profile("random graphs").max_examples > CI_EXAMPLES else _CI_DTYPES

UNARY = [op.name for op in calls_with(1)]
BINARY = [op.name for op in calls_with(2) if takes_anything_second(op, DataType.Int)]
RESTRICTED = [op.name for op in calls_with(2) if not takes_anything_second(op, DataType.Int)]


class Patterns:
    """Collects expressions over the same two arguments, each a result of its own."""

    def __init__(self, dtype: DataType):
        self.builder = ingot.GraphBuilder()
        x, y = every_pair(dtype)
        self.arguments = [x, y]
        self.x, self.y = (self.builder.input((-1,), dtype), self.builder.input(("length",), dtype))
        self.count = 0

    def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """The result of a call, or None where an argument is None or the builder refuses."""
        if any(argument is None for argument in arguments):
            return None
        try:
            return getattr(self.builder.ops, name)(*arguments, **keywords)
        except ingot.IngotError:
            return None

    def show(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, Handle):
                self.builder.add_output(value)
                self.count += 1

    def check(self) -> None:
        assert self.count
        check(self.builder.build(), self.arguments)


def check(graph: Graph, arguments: Sequence[Any]) -> None:
    """Each pass alone and the pipeline keep every bit."""
    for name, rewrite in REWRITES.items():
        rewritten = rewrite(graph)
        verify(rewritten)
        pairs = zip(graph.outputs, rewritten.outputs, strict=True)
        # Equal expressions are one node, so only what is another node now can have another value.
        changed = [(old, new) for old, new in pairs if old.node is not new.node]
        if not changed:
            continue
        before, after = (_computing(graph, outputs) for outputs in zip(*changed, strict=True))
        expected = run(before, arguments)
        assert not expected.refused
        if difference(expected, run(after, arguments)) is None:
            continue

        def wrong(graph: Graph, rewrite=rewrite) -> str | None:
            return difference(run(graph, arguments), run(rewrite(graph), arguments))

        part = first_wrong_value(graph, lambda graph, wrong=wrong: wrong(graph) is not None)
        raise AssertionError(f"{name}: {wrong(part)}\nbefore:\n{part.text}\nafter:\n{rewrite(part).text}")


def _computing(graph: Graph, outputs: tuple[Output, ...]) -> Graph:
    return Graph(graph.inputs, tuple(operations_of([output.node for output in outputs])), outputs)


def _divisors(name: str, dtype: DataType) -> Iterable[Any]:
    """Constants that PyTorch takes for operators that do not take all."""
    if dtype.is_float:
        yield from [*NEUTRAL, *CONSTANTS, *(EXPONENTS if name == "pow" else ())]
    elif name == "pow":
        yield from (exponent for exponent in EXPONENTS if isinstance(exponent, float) or exponent >= 0)
        yield from range(18)
    elif "shift" in name:
        yield from range(8)
    else:
        # The smallest int32 and int64 divided by -1 end the process inside PyTorch itself.
        narrow = dtype in (DataType.Int8, DataType.Int16)
        yield from [1, 2, 3, 4, 8, 16, 32, 64, 100, *([] if dtype is DataType.UInt8 else [-2, -3, -4, -8])]
        yield from [-1] if narrow else []


# --- elementwise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_operator_with_every_constant(dtype: DataType) -> None:
    patterns = Patterns(dtype)
    x = patterns.x
    for name in BINARY:
        for constant in (*NEUTRAL, *CONSTANTS):
            filled = patterns.call("full", x.shape, constant, dtype)
            patterns.show(patterns.call(name, x, constant), patterns.call(name, constant, x))
            patterns.show(patterns.call(name, x, filled), patterns.call(name, filled, x))
    for name in RESTRICTED:
        for constant in _divisors(name, dtype):
            filled = patterns.call("full", x.shape, constant, dtype)
            patterns.show(patterns.call(name, x, constant))
            if dtype.is_float or constant:
                patterns.show(patterns.call(name, x, filled))
            if dtype.is_float:
                patterns.show(patterns.call(name, constant, x), patterns.call(name, filled, x))
    patterns.check()


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_operator_with_two_constants(dtype: DataType) -> None:
    patterns = Patterns(dtype)
    constants = [0, -0.0, 1, -1, 2, 0.5, 3, math.nan, math.inf, 255]
    for name in ("add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"):
        for first, second in itertools.product(constants, constants):
            inner = patterns.call(name, patterns.x, first)
            patterns.show(patterns.call(name, inner, second), patterns.call(name, second, inner))
    for first, second in itertools.product((2, 4, 3, 0.5, 8), repeat=2):
        if dtype.is_float or (isinstance(first, int) and isinstance(second, int)):
            for outer, inner in itertools.product(("div", "mul"), repeat=2):
                patterns.show(patterns.call(outer, patterns.call(inner, patterns.x, first), second))
    patterns.check()


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_function_of_every_function(dtype: DataType) -> None:
    patterns = Patterns(dtype)
    # Half types compute in float32; what differs is the casts around a function.
    outer_functions = UNDONE if dtype.widened is not dtype else UNARY
    for outer, inner in itertools.product(outer_functions, UNARY):
        patterns.show(patterns.call(outer, patterns.call(inner, patterns.x)))
    patterns.check()


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_cast_of_every_cast(dtype: DataType) -> None:
    patterns = Patterns(dtype)
    for first, second, third in itertools.product(DTYPES, DTYPES, [None, *DTYPES]):
        cast = patterns.call("cast", patterns.call("cast", patterns.x, first), second)
        patterns.show(cast if third is None else patterns.call("cast", cast, third))
    for first, name, second in itertools.product(DTYPES, ("neg", "abs", "floor", "isnan", "isfinite", "sign"), DTYPES):
        patterns.show(patterns.call("cast", patterns.call(name, patterns.call("cast", patterns.x, first)), second))
    patterns.check()


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_operator_of_related_values(dtype: DataType) -> None:
    """x - x, -x * -y, (x < y) and its complement, the same with operands exchanged, and what a function makes of it."""
    patterns = Patterns(dtype)
    x, y = patterns.x, patterns.y
    names = BINARY + (RESTRICTED if dtype.is_float else [])
    made = {name: [patterns.call(name, value) for value in (x, y)] for name in ("neg", "abs", "bitwise_not", "sign")}
    for name in names:
        patterns.show(patterns.call(name, x, x), patterns.call(name, x, y), patterns.call(name, y, x))
        both = patterns.call(name, x, y), patterns.call(name, y, x)
        for outer in ("eq", "sub", "add", "maximum", "bitwise_xor"):
            patterns.show(patterns.call(outer, *both))
        for (left_x, left_y), (right_x, right_y) in itertools.product([(x, y), *made.values()], repeat=2):
            patterns.show(patterns.call(name, left_x, right_y), patterns.call(name, left_x, right_x))
            patterns.show(patterns.call(name, left_y, right_x))
        for outer in ("neg", "abs", "bitwise_not", "logical_not", "sign", "reciprocal", "sqrt", "isnan"):
            patterns.show(patterns.call(outer, both[0]), patterns.call(outer, patterns.call(name, x, x)))
    patterns.check()


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_every_choice_by_every_comparison(dtype: DataType) -> None:
    patterns = Patterns(dtype)
    x, y = patterns.x, patterns.y
    branches = [
        x,
        y,
        0,
        1,
        -0.0,
        True,
        False,
        math.nan,
        patterns.call("neg", x),
        patterns.call("full", x.shape, 1, dtype),
    ]
    conditions = [patterns.call(name, x, y) for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    conditions += [patterns.call(name, x, 0) for name in ("eq", "ne", "lt", "le", "gt", "ge", "maximum")]
    conditions += [patterns.call("logical_not", condition) for condition in conditions]
    conditions += [True, False, patterns.call("full", x.shape, True), patterns.call("full", x.shape, False)]
    for condition, first, second in itertools.product(conditions, branches, branches):
        patterns.show(patterns.call("where", condition, first, second))
    for condition, other in itertools.product(conditions[:8], conditions[:8]):
        inner = patterns.call("where", other, x, y)
        patterns.show(patterns.call("where", condition, inner, y), patterns.call("where", condition, x, inner))
        patterns.show(patterns.call("where", condition, inner, x), patterns.call("where", condition, y, inner))
    for condition, truth in itertools.product(conditions, (True, False)):
        for name in ("eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"):
            patterns.show(patterns.call(name, condition, truth), patterns.call(name, truth, condition))
            patterns.show(patterns.call(name, condition, condition))
            patterns.show(patterns.call("bitwise_not", patterns.call(name, condition, truth)))
    patterns.check()


# --- views ------------------------------------------------------------------------------------------------------------

SHAPE = (2, 3, 4)
ORDERS = list(itertools.permutations(range(3)))
REDUCTIONS = [op.name for op in table().values() if op.kind is Kind.REDUCTION]
SCANS = [op.name for op in table().values() if op.kind is Kind.SCAN]
SUBSETS = [axes for count in (1, 2, 3) for axes in itertools.combinations(range(3), count)]


def _values(dtype: DataType = DataType.Float) -> torch.Tensor:
    """Sums of these depend on their order, largest and smallest elements occur twice, zeros have both signs."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    values *= torch.tensor([1e-3, 1.0, 1e6, 1e7], dtype=torch.float64)
    values[0, 0, 0], values[1, 2, 1] = values.max(), values.max()
    values[1] = torch.where(values[1] < 0, -0.0, values[1])
    values[0, 1] = torch.tensor([0.0, -0.0, 0.0, -0.0], dtype=torch.float64)
    return values.to(to_torch(dtype))


def _check_alone(build: Any, symbolic: bool, rank: int = 3) -> None:
    """Check one pattern in a graph of its own: some rules apply only to values that are used once."""
    builder = ingot.GraphBuilder()
    x = builder.input([-1] * rank if symbolic else SHAPE)
    try:
        value = build(builder.ops, x)
    except ingot.IngotError:
        return
    builder.add_output(value)
    check(builder.build(), [_values()])


@pytest.mark.parametrize("symbolic", [False, True])
def test_permutes_around_everything_that_reduces(symbolic: bool) -> None:
    for order, second in itertools.product(ORDERS, ORDERS):
        _check_alone(lambda ops, x, p=order, q=second: ops.permute(ops.permute(x, p), q), symbolic)
        _check_alone(lambda ops, x, p=order, q=second: ops.permute(ops.exp(ops.permute(x, p)), q), symbolic)
    for order, name, axes in itertools.product(ORDERS, REDUCTIONS, SUBSETS):
        if name in ("argmax", "argmin") and len(axes) == 2:
            continue
        chosen = None if len(axes) == 3 else axes[0] if len(axes) == 1 else axes
        _check_alone(lambda ops, x, p=order, n=name, a=chosen: getattr(ops, n)(ops.permute(x, p), a), symbolic)
    for order, name, axis in itertools.product(ORDERS, SCANS, range(3)):
        _check_alone(lambda ops, x, p=order, n=name, a=axis: getattr(ops, n)(ops.permute(x, p), a), symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_reductions_of_reductions(symbolic: bool) -> None:
    names = ("sum", "prod", "amax", "amin", "mean")
    pairs = [(name, name) for name in names] + [("sum", "amax"), ("amin", "amax"), ("amax", "sum")]
    for (outer, inner), first in itertools.product(pairs, SUBSETS[:6]):
        for second in range(3 - len(first)):
            for keepdim in (False, True):
                _check_alone(
                    lambda ops, x, o=outer, i=inner, a=first, b=second, k=keepdim: getattr(ops, o)(
                        getattr(ops, i)(x, a, keepdim=k), b
                    ),
                    symbolic,
                )


@pytest.mark.parametrize("dtype", CHECKED, ids=lambda dtype: dtype.text)
def test_reductions_and_views_of_filled_tensors(dtype: DataType) -> None:
    builder = ingot.GraphBuilder()
    x = builder.input([-1] * 3, dtype)
    calls = [(name, axes) for name in REDUCTIONS for axes in (*range(3), None)]
    calls += [(name, axis) for name in SCANS for axis in range(3)]
    for constant, shape in itertools.product((*NEUTRAL, 3, 0.1, 255, math.nan, math.inf), (SHAPE, x.shape, (0, 2, 3))):
        try:
            filled = builder.ops.full(shape, constant, dtype)
        except ingot.IngotError:
            continue
        for name, axes in calls:
            with contextlib.suppress(ingot.IngotError):
                builder.add_output(getattr(builder.ops, name)(filled, axes))
    check(builder.build(), [_values(dtype)])


def _view_calls(x: Any, original: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Names and arguments of views of a tensor; some will be refused."""
    rank, shape = len(x.shape), list(x.shape)
    calls: list[tuple[Any, ...]] = [("permute", order) for order in itertools.permutations(range(rank)) if rank < 4]
    calls += [("permute", tuple(reversed(range(rank)))), ("reshape", [-1]), ("reshape", list(original))]
    calls += [("reshape", [*shape[:axis], 1, *shape[axis:]]) for axis in range(rank + 1)]
    calls += [("broadcast_in_dim", [*shape[:a], n, *shape[a:]], [b + (b >= a) for b in range(rank)])
              for a in range(rank + 1) for n in (1, 2)]  # fmt: skip
    calls += [("squeeze", [axis]) for axis in range(rank)]
    for axis in range(rank):
        for start, stop, step in ((0, 1, 1), (1, 3, 1), (0, 9, 2), (1, 4, 2), (0, 2, 1), (-2, 9, 1)):
            bounds = [[low if a == axis else other for a, other in enumerate(others)] for low, others in
                      ((start, [0] * rank), (stop, shape), (step, [1] * rank))]  # fmt: skip
            calls.append(("slice", *bounds))
    calls += [("pad", widths, value) for widths in ([1, 0], [0, 2], [-1, 1], [-1, 0]) for value in (0, -0.0) if rank]
    calls += [("cat", axis) for axis in range(rank)]
    return calls + [("add", -0.0), ("maximum", 0), ("neg",)]


def _viewed(ops: Any, x: Any, name: str, *arguments: Any) -> Any:
    return getattr(ops, name)([x, x] if name == "cat" else x, *arguments)


def _each_view(ops: Any, x: Any, original: Sequence[Any]) -> list[Any]:
    """Views of one tensor, refused ones left out."""
    found = []
    for call in _view_calls(x, original):
        with contextlib.suppress(ingot.IngotError):
            found.append(_viewed(ops, x, *call))
    return found


@pytest.mark.parametrize("symbolic", [False, True])
def test_every_view_of_every_view(symbolic: bool) -> None:
    builder = ingot.GraphBuilder()
    x = builder.input([-1] * 3 if symbolic else SHAPE)
    for first in _each_view(builder.ops, x, x.shape):
        for second in _each_view(builder.ops, first, x.shape):
            builder.add_output(second)
    graph = builder.build()
    if symbolic:
        # Views that suppose a size the argument does not have are left out.
        sizes = {f"s{axis}": size for axis, size in enumerate(SHAPE)}
        graph = _fitting(graph, sizes)
    check(graph, [_values()])


@pytest.mark.parametrize("symbolic", [False, True])
def test_every_view_between_pointwise_operations(symbolic: bool) -> None:
    """With another operand repeated along any axes on either side; each pattern adds a number of its own, since what is
    computed in two of them does not move."""
    builder = ingot.GraphBuilder()
    ops = builder.ops
    names = ["planes", "rows", "columns"]
    declared: list[int | str] = [*names] if symbolic else [*SHAPE]
    x = builder.input(declared)
    shapes = list(itertools.product(*((1, size) for size in SHAPE)))
    others = [builder.input([1 if size == 1 else declared[a] for a, size in enumerate(shape)]) for shape in shapes]
    numbers = itertools.count(1)
    for other, reduces in itertools.product(others, (False, True)):
        example = ops.amax(x, 2, keepdim=True) if reduces else x
        for call in _view_calls(example, x.shape):
            value = ops.add(ops.mul(x, other), float(next(numbers)))
            value = ops.amax(value, 2, keepdim=True) if reduces else value
            with contextlib.suppress(ingot.IngotError):
                seen = _viewed(ops, value, *call)
                builder.add_output(ops.neg(seen))
                builder.add_output(ops.mul(seen, other))
    graph = builder.build()
    values = _values()
    arguments = [values[tuple(slice(0, size) for size in shape)].contiguous() for shape in shapes]
    if symbolic:
        graph = _fitting(graph, dict(zip(names, SHAPE, strict=True)))
    check(graph, [values, *arguments])


def _fitting(graph: Graph, numbers: dict[str, int]) -> Graph:
    """The graph without the values that assume sizes to be equal which are not."""
    kept: dict[Any, bool] = dict.fromkeys(graph.inputs, True)
    for node in graph.nodes:
        holds = all(evaluate(a.left, numbers) == evaluate(a.right, numbers) for a in node.assumptions)
        kept[node] = holds and all(kept.get(operand, True) for operand in node.operands)
    assumptions = dict.fromkeys(a for node in graph.nodes if kept[node] for a in node.assumptions)
    return Graph(
        graph.inputs,
        tuple(node for node in graph.nodes if kept[node]),
        tuple(output for output in graph.outputs if kept[output.node]),
        tuple(assumptions),
    )
