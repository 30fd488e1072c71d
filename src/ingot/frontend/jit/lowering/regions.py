"""From a region to a graph: its operations lowered into the op table's vocabulary, one after the other.

In: a region, and sizes that are to stay open. Out: a graph with the region's inputs and outputs, in order. A result
that eager PyTorch lays out in another order than row-major is computed in that order: the graph's output is the
permuted tensor, and its layout says how to permute it back, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import UnsupportedError
from ingot.base.numbers import number_type
from ingot.base.sizes import Size, SizeExpression
from ingot.frontend.aten.lowered import lowered_call
from ingot.frontend.jit.lowering.partition import Region
from ingot.frontend.jit.trace.ssa import Operation, Version, type_of
from ingot.frontend.jit.trace.trace import Variable, all_of, stride_order
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class RegionGraph:
    graph: Graph
    layouts: tuple[tuple[int, ...] | None, ...]
    """For each output the order of axes that permutes it back to eager's shape; None if it has that shape."""
    numbers: tuple[Variable | Size, ...]
    """What the graph takes after its tensors."""
    conditions: tuple[tuple[Size, Size], ...]
    """Sizes that must be equal for it to hold."""


def build_region(region: Region, numerics: str) -> RegionGraph:
    """The graph of a region; `numerics` is the flag by which its operations were lowered."""
    building = _Building(region, numerics)
    for operation in region.operations:
        building.lower(operation)
    return building.finish()


class _Building:
    """A region's graph in the making, with names of its own for sizes that none of its inputs has alone."""

    def __init__(self, region: Region, numerics: str):
        self.region = region
        self.numerics = numerics
        self.builder = Builder()
        given = [(operation.arguments, operation.keywords) for operation in region.operations]
        self.numbers: list[Variable | Size] = list(dict.fromkeys(all_of(Variable, given)))
        self.renamed = self._rename_sizes(list(all_of(SizeExpression, given)))
        self.handles: dict[Any, Any] = {}
        for version in region.inputs:
            found = type_of(version.note)
            self.handles[version] = self.builder.tensor_input(self._sizes(found.shape), found.dtype)
        for number in self.numbers:
            kind = number_type(number.type()) if isinstance(number, Variable) else DataType.Int
            self.handles[number] = self.builder.scalar_input(kind)

    def _rename_sizes(self, used: Sequence[Size]) -> dict[str, Size]:
        """Replacements for symbols that no input has alone: numbers of the graph, or other symbols.

        A product of sizes is one unknown size to operations that do not look at sizes: all that counts is where else it
        occurs.
        """
        declared = [size for version in self.region.inputs for size in version.note.sizes]
        alone = {str(size) for size in declared if sizes.is_symbol(size)}
        missing = sorted({name for size in (*declared, *used) for name in sizes.symbols(size)} - alone)
        self.opaque: dict[Size, Size] = {}
        if missing and not used:
            compound = [size for size in declared if not isinstance(size, int) and not sizes.is_symbol(size)]
            self.opaque = {size: sizes.symbol(f"product{i}") for i, size in enumerate(dict.fromkeys(compound))}
            return {}
        first = len(self.region.inputs) + len(self.numbers)
        self.numbers += [sizes.symbol(name) for name in missing]
        return {name: sizes.symbol(f"n{first + index}") for index, name in enumerate(missing)}

    def _sizes(self, declared: Sequence[Size]) -> list[Size]:
        return [self.opaque.get(size, size) if self.opaque else self._renamed(size) for size in declared]

    def _renamed(self, size: Size) -> Size:
        return sizes.substitute(size, self.renamed) if self.renamed else size

    def lower(self, operation: Operation) -> None:
        graph = self._with_other_sizes(operation) if self.renamed or self.opaque else operation.graph
        assert graph is not None
        given = all_of((Version, Variable), (operation.arguments, operation.keywords))
        made = self.builder.include(graph, [self.handles[value] for value in given])
        results = operation.results if isinstance(operation.results, list | tuple) else [operation.results]
        for version, handle in zip(results, made, strict=True):
            if version.producer is operation and version not in self.handles:
                self.handles[version] = handle

    def _with_other_sizes(self, operation: Operation) -> Graph:
        """What an operation computes, in this graph's names for sizes."""
        device = operation.products[0].note.device.type
        arguments, keywords = self._typed((operation.arguments, operation.keywords))
        graph = lowered_call(operation.target, device, arguments, keywords, self.numerics)
        if graph is None:
            raise UnsupportedError(f"{operation.target} is not lowered: its sizes are not known in this region")
        return graph

    def _typed(self, given: Any) -> Any:
        """The same nested value with types in the place of tensors."""
        if isinstance(given, Version | Variable):
            return self.handles[given].type
        if isinstance(given, SizeExpression):
            return self._renamed(given)
        if isinstance(given, list):
            return [self._typed(element) for element in given]
        if isinstance(given, tuple):
            return tuple(self._typed(element) for element in given)
        if isinstance(given, dict):
            return {name: self._typed(element) for name, element in given.items()}
        return given

    def finish(self) -> RegionGraph:
        layouts = []
        for version in self.region.outputs:
            order = stride_order(version.note)
            handle = self.handles[version]
            layouts.append(None if order is None else _inverse(order))
            self.builder.add_output(handle if order is None else self.builder.call("permute", (handle, order)))
        for version in self.region.writes:
            leaf = next(i for i in self.region.inputs if i.register == version.register and i.producer is None)
            self.builder.add_output(self.handles[version], alias_input=self.handles[leaf])
        graph = self.builder.build()
        conditions = [(self._original(one.left), self._original(one.right)) for one in graph.assumptions]
        return RegionGraph(graph, tuple(layouts), tuple(self.numbers), tuple(conditions))

    def _original(self, size: Size) -> Size:
        """A size of the graph in the trace's own symbols."""
        back = {str(new): sizes.symbol(name) for name, new in self.renamed.items()}
        return sizes.substitute(size, back | {str(new): size for size, new in self.opaque.items()})


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda position: order[position]))
