"""Some rows times some panels, by one thread.

A tile is computed at a time: for each step along the inner axis the vectors of a panel are loaded, and an element of
every row is multiplied with them and added to the sums, which stay in registers. The inner axis is gone along in
stretches, so that a panel's part is read from the nearest cache by all tiles but the first. Every element is summed in
the same order, on every thread.

Tiles at the ends are computed like all others. Rows beyond the last repeat the last one, so that the same is written
twice. Columns beyond the last are computed from what the panel is filled up with; such tiles have their results at the
edge, in memory of their own, and what is there is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.parallel_functions import FLOAT, VECTORS, ProductTile, Writing, internal_function
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.storage import BYTE_POINTER, WORD

STRETCH = 512
"""Steps along the inner axis before the next tile is taken."""
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class Operands:
    """What the function takes, in order; strides are in bytes."""

    given: ir.Value
    given_stride: ir.Value
    panels: ir.Value
    panel_steps: ir.Value
    """Steps that a panel has; as many as are taken, or more."""
    bias: ir.Value
    """An address, 0 where there is none."""
    results: ir.Value
    results_stride: ir.Value
    columns: ir.Value
    inner: ir.Value
    """Steps that are taken."""
    row: ir.Value
    last_row: ir.Value
    panel: ir.Value
    last_panel: ir.Value

    @property
    def values(self) -> list[ir.Value]:
        return [getattr(self, field.name) for field in fields(self)]


_KINDS = [
    *(BYTE_POINTER, WORD, BYTE_POINTER, WORD, WORD, BYTE_POINTER, WORD),
    *(WORD, WORD, WORD, WORD, WORD, WORD),
]


@dataclass(frozen=True, slots=True)
class _TilePlace:
    """Where a tile's results are."""

    rows: list[ir.Value]
    """Where each row of it begins: in the results, or at the edge."""
    row: ir.Value
    column: ir.Value
    left: ir.Value
    """Columns from here to the last."""
    is_edge: ir.Value
    """Whether there are columns beyond the last."""


def emit_tiles(module: HostModule, tile: ProductTile) -> ir.Function:
    """The function."""
    function = internal_function(module, "tiles", _KINDS)
    _TileEmitter(ir.IRBuilder(function), tile, Operands(*function.arguments)).emit()
    return function


class _TileEmitter(Writing):
    def __init__(self, builder: Any, tile: ProductTile, operands: Operands):
        super().__init__(builder, tile)
        self._operands = operands
        kind = ir.FunctionType(tile.vector, [tile.vector] * 3)
        name = f"llvm.fmuladd.v{tile.lanes}f32"
        self._multiply_add = builder.module.functions.get(name) or ir.Function(builder.module, kind, name)

    def emit(self) -> None:
        """Stretch by stretch; where the inner axis is empty, one stretch of nothing."""
        builder, operands = self.builder, self._operands
        self._sums = [[builder.alloca(self.tile.vector) for _ in range(VECTORS)] for _ in range(self.tile.rows)]
        self._edge, self._edge_bias = self._room(self.tile.rows), self._room(1)
        body = builder.append_block("body")
        builder.branch(body)
        builder.position_at_end(body)
        with counted(builder, WORD(0), operands.inner, STRETCH, runs=True) as first:
            last = minimum(builder, builder.add(first, WORD(STRETCH)), operands.inner)
            with (
                counted(builder, operands.panel, operands.last_panel) as panel,
                counted(builder, operands.row, operands.last_row, self.tile.rows) as row,
            ):
                self._compute(row, panel, first, last)
        builder.ret_void()

    def _room(self, rows: int) -> ir.Value:
        """Memory for some rows of a tile."""
        floats = self.builder.alloca(FLOAT, WORD(rows * self.tile.columns), align=_CACHE_LINE)
        return self.builder.bitcast(floats, BYTE_POINTER)

    def _compute(self, row: ir.Value, panel: ir.Value, first: ir.Value, last: ir.Value) -> None:
        """A tile's sums from one place of the inner axis to another."""
        builder, operands = self.builder, self._operands
        rows = [self._clamped(row, WORD(number)) for number in range(self.tile.rows)]
        place = self._place(row, rows, builder.mul(panel, WORD(self.tile.columns)))
        self._begin(place, builder.icmp_signed(">", first, WORD(0)))
        sources = [self.row(operands.given, number, operands.given_stride) for number in rows]
        weights = self.further(operands.panels, builder.mul(place.column, operands.panel_steps))
        with counted(builder, first, last) as step:
            self._step(sources, weights, step)
        self._finish(place, builder.icmp_signed(">=", last, operands.inner))

    def _clamped(self, row: ir.Value, number: ir.Value) -> ir.Value:
        """A row of a tile; the last one, if it would be beyond."""
        builder = self.builder
        return minimum(builder, builder.add(row, number), builder.sub(self._operands.last_row, WORD(1)))

    def _step(self, sources: list[ir.Value], weights: ir.Value, step: ir.Value) -> None:
        builder = self.builder
        panel = self.further(weights, builder.mul(step, WORD(self.tile.columns)))
        vectors = [self.load(self._vector_at(panel, number)) for number in range(VECTORS)]
        for source, sums in zip(sources, self._sums, strict=True):
            element = self.spread(self.load_single(self.further(source, step)))
            for total, vector in zip(sums, vectors, strict=True):
                builder.store(builder.call(self._multiply_add, [element, vector, builder.load(total)]), total)

    def _vector_at(self, place: ir.Value, number: int) -> ir.Value:
        return self.further(place, WORD(number * self.tile.lanes))

    # --- where a tile begins and ends ---------------------------------------------------------------------------------

    def _place(self, row: ir.Value, rows: list[ir.Value], column: ir.Value) -> _TilePlace:
        """Where a tile has its results; at the edge that is memory of its own, which has room for all columns."""
        builder = self.builder
        left = builder.sub(self._operands.columns, column)
        is_edge = builder.icmp_signed("<", left, WORD(self.tile.columns))
        chosen = [
            builder.select(is_edge, self._at_edge(WORD(number)), self._result(result, column))
            for number, result in enumerate(rows)
        ]
        return _TilePlace(chosen, row, column, left, is_edge)

    def _result(self, row: ir.Value, column: ir.Value) -> ir.Value:
        return self.further(self.row(self._operands.results, row, self._operands.results_stride), column)

    def _at_edge(self, number: ir.Value) -> ir.Value:
        return self.further(self._edge, self.builder.mul(number, WORD(self.tile.columns)))

    def _begin(self, place: _TilePlace, is_begun: ir.Value) -> None:
        """Begin the sums with what the stretch before has left, or with zeros."""
        builder = self.builder
        for total in (total for sums in self._sums for total in sums):
            builder.store(ir.Constant(self.tile.vector, None), total)
        with builder.if_then(is_begun):
            with builder.if_then(place.is_edge):
                self._copy_edge(place, is_back=False)
            for row, sums in zip(place.rows, self._sums, strict=True):
                for number, total in enumerate(sums):
                    builder.store(self.load(self._vector_at(row, number)), total)

    def _finish(self, place: _TilePlace, is_last: ir.Value) -> None:
        """Leave the sums in the results, after the last stretch with the bias."""
        builder, operands = self.builder, self._operands
        has_bias = builder.icmp_signed("!=", operands.bias, WORD(0))
        with builder.if_then(builder.and_(is_last, has_bias)):
            self._add_bias(place)
        for row, sums in zip(place.rows, self._sums, strict=True):
            for number, total in enumerate(sums):
                self.store(builder.load(total), self._vector_at(row, number))
        with builder.if_then(place.is_edge):
            self._copy_edge(place, is_back=True)

    def _add_bias(self, place: _TilePlace) -> None:
        builder = self.builder
        given = self.further(builder.inttoptr(self._operands.bias, BYTE_POINTER), place.column)
        with builder.if_then(place.is_edge):
            self.copy_singly(given, self._edge_bias, place.left)
        chosen = builder.select(place.is_edge, self._edge_bias, given)
        for number in range(VECTORS):
            bias = self.load(self._vector_at(chosen, number))
            for sums in self._sums:
                builder.store(builder.fadd(builder.load(sums[number]), bias), sums[number])

    def _copy_edge(self, place: _TilePlace, is_back: bool) -> None:
        """Copy the columns that there are from the results to the edge, or back."""
        with counted(self.builder, WORD(0), WORD(self.tile.rows)) as number:
            there = self._result(self._clamped(place.row, number), place.column)
            here = self._at_edge(number)
            source, target = (here, there) if is_back else (there, here)
            self.copy_singly(source, target, place.left)
