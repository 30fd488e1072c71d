"""From a region to a graph: its operations lowered into the op table's vocabulary, one after the other.

In: a region, and sizes that are to stay open. Out: a graph with the region's inputs and outputs, in order. A result
that eager PyTorch lays out in another order than row-major is computed in that order: the graph's output is the
permuted tensor, and `Layout` says how to turn it back, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.errors import UnsupportedError
from ingot.base.sizes import Size
from ingot.frontend.aten import lowering_for
from ingot.frontend.jit.planning import Region
from ingot.frontend.jit.tape import TensorNote, stride_order
from ingot.frontend.jit.versions import Operation, Version
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph
from ingot.ir.torch_types import from_torch

SizeOf = Callable[[Version], Sequence[int | str | Size]]
"""The sizes a version is to be declared with."""


@dataclass(frozen=True, slots=True)
class RegionGraph:
    graph: Graph
    layouts: tuple[tuple[int, ...] | None, ...]
    """Per output, the order of axes that turns it back to the shape eager gives it; None if it is that already."""


def build_region(region: Region, size_of: SizeOf, argument: Callable[[Operation, Any], Any]) -> RegionGraph:
    """The graph of a region. `argument` replaces plain arguments of an operation, such as sizes that stay open."""
    builder = Builder()
    handles: dict[Version, Any] = {}
    for version in region.inputs:
        handles[version] = builder.tensor_input(size_of(version), _dtype(version.note))
    for operation in region.operations:
        _lower(operation, builder, handles, argument)
    layouts = []
    for version in region.outputs:
        order = stride_order(version.note)
        handle = handles[version]
        layouts.append(None if order is None else _inverse(order))
        builder.add_output(handle if order is None else builder.call("permute", (handle, order)))
    for version in region.writes:
        leaf = next(i for i in region.inputs if i.register == version.register and i.producer is None)
        builder.add_output(handles[version], alias_input=handles[leaf])
    return RegionGraph(builder.build(), tuple(layouts))


def _lower(
    operation: Operation, builder: Builder, handles: dict[Version, Any], argument: Callable[[Operation, Any], Any]
) -> None:
    lowering = lowering_for(operation.target)
    assert lowering is not None

    def value(given: Any) -> Any:
        if isinstance(given, Version):
            return handles[given]
        if isinstance(given, list):
            return [value(element) for element in given]
        if isinstance(given, tuple):
            return tuple(value(element) for element in given)
        return given

    arguments = [value(argument(operation, given)) for given in operation.arguments]
    keywords = {name: value(argument(operation, given)) for name, given in operation.keywords.items()}
    made = lowering(builder, arguments, keywords)
    results = operation.results if isinstance(operation.results, list | tuple) else [operation.results]
    for version, handle in zip(results, made if isinstance(made, list | tuple) else [made], strict=True):
        if version.producer is operation and version not in handles:
            handles[version] = handle


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda position: order[position]))


def _dtype(note: TensorNote) -> DataType:
    dtype = from_torch(note.dtype)
    if dtype is None:
        raise UnsupportedError(f"{note.dtype} is left to PyTorch")
    return dtype
