"""Random graphs that become kernels: reductions with what feeds and what uses them, views between, several results.

Every value is drawn twice, as a handle of a graph and as the tensor that eager PyTorch gives for the same calls. There
are two kinds of graphs. In exact ones all numbers are small integers, whatever their type, so that sums come out the
same in every order, and all ways to run a graph must agree on every value. In approximate ones numbers are real and
functions are called; eager computes them a second time in double precision, and the difference says how much rounding
can do to this graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from hypothesis import strategies

import ingot
from ingot import DataType
from ingot.ir.graph import Graph
from ingot.ir.handles import Tensor
from ingot.ir.torch_types import to_torch
from ingot.ops import lookup
from ingot.ops.samples import Sample
from tests.ops.generation import eager_result

SIZES = (1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 130)
MOST_ELEMENTS = 4500
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "overlapping", "alias")
EXACT_DTYPES = [DataType.Float, DataType.Double, DataType.BFloat16, DataType.Half, DataType.Int32, DataType.Int]
EXACT_DTYPES += [DataType.Int8, DataType.UInt8, DataType.Int16, DataType.Float, DataType.Float]
EXACT_REDUCTIONS, REAL_REDUCTIONS = (
    ["sum", "amax", "amin", "any", "all", "prod"],
    ["sum", "mean", "var", "amax", "amin"],
)
REAL_DTYPES = [DataType.Float, DataType.Float, DataType.Double, DataType.BFloat16, DataType.Half]


@dataclass(frozen=True, eq=False)
class Twin:
    """A value of the graph and what eager PyTorch gives for it."""

    handle: Any
    tensor: Any
    precise: Any
    """The same from the same arguments, all in double precision."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> DataType:
        return self.handle.dtype


@dataclass(frozen=True)
class Length:
    """A size: in the graph perhaps a symbol, in eager PyTorch a number."""

    size: Any
    number: int


@dataclass(frozen=True)
class FusedGraph:
    graph: Graph
    arguments: tuple[Any, ...]
    expected: tuple[torch.Tensor, ...]
    """What eager gives."""
    precise: tuple[torch.Tensor, ...]
    is_exact: bool
    has_specials: bool
    dtypes: frozenset[DataType]
    """All types that occur in it."""

    def __repr__(self) -> str:
        shapes = [f"{tuple(a.shape)} by {a.stride()}" if isinstance(a, torch.Tensor) else a for a in self.arguments]
        return f"FusedGraph(\n{self.graph.text[:20_000]}\n{shapes})"  # Hypothesis refuses what is much longer


class Drawing:
    def __init__(self, random: Random):
        self.random = random
        self.is_exact = self.chance(0.5)
        self.has_specials = self.chance(0.15)
        self.builder = ingot.GraphBuilder()
        self.twins: list[Twin] = []
        self.arguments: list[Any] = []
        self.dtypes: set[DataType] = set()
        self._symbolic = random.choice((0.0, 0.5, 1.0))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def dtype(self) -> DataType:
        return self.random.choice(EXACT_DTYPES if self.is_exact else REAL_DTYPES)

    def pick(self, accept: Callable[[Twin], bool] = lambda twin: True) -> Twin:
        """A value, the latest ones more often; a new input where none is accepted."""
        found = [twin for twin in self.twins if accept(twin)]
        if not found:
            return self.new_input(self.new_shape(), self.dtype())
        return self.random.choice(found[-self.random.choice((1, 3, len(found))) :])

    def number(self) -> Twin:
        """A value to compute with: bools become numbers first."""
        twin = self.pick()
        if twin.dtype is not DataType.Bool:
            return twin
        return self.call("cast", twin, self.dtype()) or self.new_input(twin.shape, self.dtype())

    # --- inputs -------------------------------------------------------------------------------------------------------

    def new_shape(self) -> tuple[int, ...]:
        lengths: list[int] = self.random.choices(SIZES, k=self.random.choices(range(5), (1, 3, 7, 4, 2))[0])
        if lengths and self.chance(0.02):
            lengths[self.random.randrange(len(lengths))] = 0
        while math.prod(lengths) > MOST_ELEMENTS:
            lengths[lengths.index(max(lengths))] = self.random.choice((1, 2, 3))
        return tuple(lengths)

    def new_input(self, shape: Sequence[int], dtype: DataType, values: torch.Tensor | None = None) -> Twin:
        layout = self.random.choice(LAYOUTS) if self.chance(0.6) and values is None else "contiguous"
        tensor = self._laid_out(layout, shape, dtype, values)
        sizes = [f"length{n}" if n > 1 and self.chance(self._symbolic) else n for n in shape]
        handle = self.builder.input(sizes, dtype)
        self.arguments.append(tensor)
        twin = Twin(handle, tensor, tensor.double() if dtype.is_float else tensor)
        self.dtypes.add(dtype)
        self.twins.append(twin)
        return twin

    def _values(self, shape: Sequence[int], dtype: DataType) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.random.getrandbits(32))
        if dtype is DataType.Bool:
            return torch.randint(0, 2, tuple(shape), generator=generator).bool()
        if self.is_exact or not dtype.is_float:
            low = 0 if dtype is DataType.UInt8 else -3
            values = torch.randint(low, 4, tuple(shape), generator=generator).to(to_torch(dtype))
        else:
            values = torch.randn(tuple(shape), generator=generator, dtype=torch.float64).to(to_torch(dtype))
        if self.has_specials and dtype.is_float and values.numel():
            special = torch.tensor([math.nan, math.inf, -math.inf], dtype=values.dtype)
            chosen = special[torch.randint(0, 3, values.shape, generator=generator)]
            values = torch.where(torch.rand(values.shape, generator=generator) < 0.02, chosen, values)
        return values

    def _laid_out(self, layout: str, shape: Sequence[int], dtype: DataType, values: Any) -> torch.Tensor:
        rank = len(shape)
        if layout == "alias":
            same = [a for a in self.arguments if isinstance(a, torch.Tensor) and a.dtype is to_torch(dtype)]
            if same:
                base = self.random.choice(same)
                strides = [self.random.choice((0, 1, 1, 2, size)) for size in shape]
                farthest = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
                room = base.untyped_storage().nbytes() // base.element_size()
                if 0 not in shape and farthest < room:
                    return base.as_strided(tuple(shape), strides, self.random.randrange(room - farthest))
        if layout == "overlapping" and 0 not in shape:
            strides = [self.random.randint(0, 3) for _ in shape]
            farthest = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            return self._values((farthest + 6,), dtype).as_strided(tuple(shape), strides, 5)
        if layout == "expanded" and rank:
            kept = [1 if self.chance(0.5) else size for size in shape]
            return self._values(kept, dtype).expand(tuple(shape))
        values = self._values(shape, dtype) if values is None else values
        if layout == "transposed":
            order = self.random.sample(range(rank), rank)
            inverse = [order.index(axis) for axis in range(rank)]
            return values.permute(order).contiguous().permute(inverse)
        if layout == "strided":
            return torch.zeros((*shape, 3), dtype=values.dtype)[..., 1].copy_(values)
        if layout == "offset":
            return torch.zeros(values.numel() + 3, dtype=values.dtype)[3:].view(tuple(shape)).copy_(values)
        return values

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Call an operator both ways and keep its results; None where the builder refuses or there are too many."""
        op = lookup(name)
        try:
            result = getattr(self.builder.ops, name)(*_each(arguments, "handle"), **_each(keywords, "handle"))
        except ingot.IngotError:
            return None
        eager = eager_result(op, Sample(_each(arguments, "tensor"), _each(keywords, "tensor")))
        precise = eager_result(op, Sample(_each(arguments, "precise"), _each(keywords, "precise")))
        handles = result if isinstance(result, tuple) else (result,)
        twins = []
        for handle, tensor, exact in zip(handles, eager, precise, strict=True):
            if not isinstance(handle, Tensor) or tensor.numel() > MOST_ELEMENTS:
                return None
            if name == "cast" and handle.dtype.is_float and exact.is_floating_point():
                exact = arguments[0].precise.double()  # what rounding does shows as the difference between both
            twins.append(Twin(handle, tensor, exact.double() if exact.is_floating_point() else exact))
            self.dtypes.add(handle.dtype)
        self.twins.extend(twins)
        return twins[0] if len(twins) == 1 else twins

    def lengths(self, twin: Twin) -> list[Length]:
        return [Length(size, number) for size, number in zip(twin.handle.shape, twin.shape, strict=True)]

    def limited(self, twin: Any) -> Any:
        """Small again, so that exact graphs stay exact and approximate ones finite."""
        if twin is None or twin.dtype is DataType.Bool:
            return twin
        if not self.is_exact:
            return self.call("tanh", twin) if self.chance(0.6) else self.call("clamp", twin, -4.0, 4.0)
        return self.call("clamp", twin, 0 if twin.dtype is DataType.UInt8 else -3, 3)

    def axes(self, twin: Twin) -> list[int]:
        rank = len(twin.shape)
        return sorted(self.random.sample(range(rank), self.random.randint(1, rank)))


def _each(value: Any, side: str) -> Any:
    """Arguments of a call as one of the ways to make it wants them."""
    if isinstance(value, Twin):
        return getattr(value, side)
    if isinstance(value, Length):
        return value.size if side == "handle" else value.number
    if isinstance(value, dict):
        return {key: _each(item, side) for key, item in value.items()}
    return type(value)(_each(item, side) for item in value) if isinstance(value, list | tuple) else value


# --- what graphs are made of ------------------------------------------------------------------------------------------


def element_operation(drawing: Drawing) -> None:
    x = drawing.number()
    if drawing.is_exact:
        drawing.call(drawing.random.choice(("abs", "sign", "relu")), x)
    elif drawing.chance(0.5):
        drawing.call(drawing.random.choice(("tanh", "sigmoid", "silu", "gelu", "abs", "neg")), x)
    else:
        small = drawing.call("neg", drawing.call("abs", x))
        drawing.call(drawing.random.choice(("exp", "expm1", "erf", "sin")), small)


def combination(drawing: Drawing) -> None:
    x = drawing.number()
    combined(drawing, x, partner(drawing, x))


def partner(drawing: Drawing, x: Twin) -> Twin:
    """Something that broadcasts against a value: another one of the graph, or an input with some sizes left out."""
    if drawing.chance(0.6):
        return drawing.pick(lambda y: y.dtype is x.dtype and _broadcasts(x, y))
    shape = [1 if drawing.chance(0.3) else size for size in x.shape]
    return drawing.new_input(shape[drawing.random.randint(0, len(shape)) :], x.dtype)


def _broadcasts(x: Twin, y: Twin) -> bool:
    pairs = zip(reversed(x.handle.shape), reversed(y.handle.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def combined(drawing: Drawing, x: Twin, y: Twin) -> None:
    if drawing.chance(0.3):
        x, y = y, x
    kind = drawing.random.random()
    if kind < 0.15 and x.dtype is not DataType.Bool and drawing.is_exact:
        condition = drawing.call(drawing.random.choice(("lt", "ge", "ne")), x, y)
        if condition is not None:
            drawing.call("where", condition, x, y)
    elif kind < 0.3 and not drawing.is_exact:
        drawing.call("div", x, drawing.call("add", drawing.call("abs", y), 1.0))
    else:
        drawing.limited(drawing.call(drawing.random.choice(("add", "sub", "mul", "maximum", "minimum")), x, y))


def reduction(drawing: Drawing) -> None:
    """A reduction, often one whose result goes back to the elements it came from."""
    x = drawing.number()
    if not x.shape:
        return
    names = (
        ["sum", "amax", "amin", "any", "all", "prod"] if drawing.is_exact else ["sum", "mean", "var", "amax", "amin"]
    )
    name = drawing.random.choice(names)
    source = drawing.call("sign", x) if name == "prod" else x
    if source is None:
        return
    axes = drawing.axes(source)
    if drawing.chance(0.6):
        found = drawing.call(name, source, axes, keepdim=True)
        if found is not None and found.dtype is not x.dtype:
            found = drawing.call("cast", found, x.dtype)
        if found is not None:
            combined(drawing, x, drawing.limited(found) or found)
        return
    found = drawing.limited(drawing.call(name, source, axes))
    if found is not None and found.shape and found.dtype is not DataType.Bool and drawing.chance(0.5):
        axes = list(range(len(found.shape))) if drawing.chance(0.7) else drawing.axes(found)
        drawing.limited(drawing.call(drawing.random.choice(("sum", "amax")), found, axes))


def normalization(drawing: Drawing) -> None:
    """The composites that reductions are fused for."""
    x = drawing.number()
    if drawing.is_exact or not x.shape:
        reduction(drawing)
        return
    axis = drawing.random.randrange(len(x.shape))
    last = drawing.lengths(x)[-drawing.random.randint(1, len(x.shape)) :]
    match drawing.random.choice(("softmax", "twice", "log_softmax", "layer_norm", "rms_norm", "var_mean")):
        case "twice":
            first, second = drawing.call("softmax", x, axis), drawing.call("softmax", drawing.call("neg", x), axis)
            if first is not None and second is not None:
                drawing.call("sub", first, second)
        case "layer_norm":
            weight = drawing.new_input([length.number for length in last], x.dtype) if drawing.chance(0.5) else None
            drawing.call("layer_norm", x, last, weight, eps=0.1)
        case "rms_norm":
            drawing.call("rms_norm", x, last, eps=0.1)
        case "var_mean":
            drawing.call("var_mean", x, drawing.axes(x), 0, drawing.chance(0.5))
        case name:
            drawing.limited(drawing.call(name, x, axis))


def view(drawing: Drawing) -> None:
    x = drawing.pick()
    lengths, rank = drawing.lengths(x), len(x.shape)
    match drawing.random.randrange(4):
        case 0 if rank > 1:
            drawing.call("permute", x, drawing.random.sample(range(rank), rank))
        case 1 if 1 in x.handle.shape:
            ones = [axis for axis, size in enumerate(x.handle.shape) if size == 1]
            drawing.call("squeeze", x, drawing.random.sample(ones, drawing.random.randint(1, len(ones))))
        case 2 if rank < 4:
            position = drawing.random.randint(0, rank)
            added = Length(*[drawing.random.choice((1, 1, 2, 3, 8, 9))] * 2)
            axes = [axis + (axis >= position) for axis in range(rank)]
            drawing.call("broadcast_in_dim", x, [*lengths[:position], added, *lengths[position:]], axes)
        case _ if rank:
            drawing.call("reshape", x, [-1] if 0 not in x.shape else lengths)


def casts(drawing: Drawing) -> None:
    """To another type and often back; not from what may be NaN to integers, where PyTorch has no one answer."""
    x = drawing.pick()
    target = drawing.dtype()
    if not target.is_float and (drawing.has_specials or target is DataType.UInt8):
        return
    y = drawing.call("cast", x, target)
    if y is not None and x.dtype is not DataType.UInt8 and drawing.chance(0.6) and not drawing.has_specials:
        drawing.call("cast", y, x.dtype)


def made_from_nothing(drawing: Drawing) -> None:
    """Constants and counters."""
    x = drawing.number()
    if not x.shape:
        return
    lengths = drawing.lengths(x)
    match drawing.random.randrange(3):
        case 0 if len(lengths) > 1:
            drawing.call("triu", x, drawing.random.randint(-2, 2))
        case 1:
            first = drawing.random.randint(0, len(lengths))
            constant = drawing.call("full", lengths[first:], drawing.random.choice((0, 1, 2)), x.dtype)
            if constant is not None:
                combined(drawing, x, constant)
        case _:
            counter = drawing.call("iota", lengths[-1], 0, 1, DataType.Int)
            if counter is None:
                return
            small = drawing.call("cast", drawing.call("lt", counter, drawing.random.randint(0, 20)), x.dtype)
            if small is not None:
                combined(drawing, x, small)


def picked(drawing: Drawing) -> None:
    """One element of each row, by an index."""
    x = drawing.number()
    if not x.shape or 0 in x.shape or 1 in x.shape:
        return
    axis = drawing.random.randrange(len(x.shape))
    shape = [1 if other == axis else size for other, size in enumerate(x.shape)]
    generator = torch.Generator().manual_seed(drawing.random.getrandbits(32))
    index = drawing.new_input(shape, DataType.Int, torch.randint(0, x.shape[axis], shape, generator=generator))
    drawing.twins.remove(index)
    found = drawing.call("take_along_axis", x, index, axis)
    if found is not None and drawing.chance(0.6):
        combined(drawing, x, found)


def scaled_by_argument(drawing: Drawing) -> None:
    """A number that is an argument of the call."""
    x = drawing.number()
    if not x.dtype.is_float:
        return
    value = drawing.random.choice((-2.0, -1.0, 0.0, 1.0, 2.0))
    drawing.arguments.append(value)
    scalar = Twin(drawing.builder.scalar(DataType.Double), value, value)
    drawing.limited(drawing.call("mul", x, scalar))


STEPS: list[tuple[float, Callable[[Drawing], None]]] = [
    (3, element_operation),
    (5, combination),
    (6, reduction),
    (5, normalization),
    (3, view),
    (2, casts),
    (2, made_from_nothing),
    (1, picked),
    (1, scaled_by_argument),
]


def draw_fused(steps: Sequence[int]) -> FusedGraph:
    """The graph these integers stand for; the first decides the kind and the inputs, the last the results."""
    drawing = Drawing(Random(steps[0]))
    for _ in range(drawing.random.randint(1, 2)):
        drawing.new_input(drawing.new_shape(), drawing.dtype())
    for step in steps[1:-1]:
        drawing.random = Random(step)
        drawing.random.choices([function for _, function in STEPS], [weight for weight, _ in STEPS])[0](drawing)
    drawing.random = Random(steps[-1])
    used = {operand for node in drawing.builder._nodes for operand in node.operands}
    results = [twin for twin in drawing.twins if twin.handle.node not in used]
    count = drawing.random.choice((0, 0, 1, 2)) if results else 1  # what uses all the others may be too large to keep
    results += drawing.random.sample(drawing.twins, min(len(drawing.twins), count))
    for twin in results:
        drawing.builder.add_output(twin.handle)
    return FusedGraph(
        drawing.builder.build(),
        tuple(drawing.arguments),
        tuple(twin.tensor for twin in results),
        tuple(twin.precise for twin in results),
        drawing.is_exact,
        drawing.has_specials,
        frozenset(drawing.dtypes),
    )


def seeded_fused(seed: int) -> FusedGraph:
    random = Random(seed)
    return draw_fused([random.getrandbits(32) for _ in range(random.randint(3, 9))])


def fused_graphs() -> strategies.SearchStrategy[FusedGraph]:
    return strategies.lists(strategies.integers(0, 2**32 - 1), min_size=3, max_size=10).map(draw_fused)
