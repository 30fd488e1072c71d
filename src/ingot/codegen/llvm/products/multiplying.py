"""Rows times panels, plus a bias.

A tile is computed at a time: for each step along the inner axis the vectors of a panel are loaded, and an element of
every row is multiplied with them and added to the sums, which stay in registers. Everything else is about what lies in
which cache meanwhile: threads take tasks of some rows and columns as they become free, and within a task go along the
inner axis in stretches, so that a panel's part is read from the nearest cache by all tiles but the first. Every element
is summed in the same order, whoever computes it.

Tiles at the ends are like all others. Rows beyond the last are the last once more, so that the same is written twice.
Columns beyond the last are computed from what the panel is filled up with; such tiles have their results at the edge,
in memory of their own, and what is there is copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.frame import ANY_ADDRESS, BYTE_POINTER, WORD, counted, minimum
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.products.region import FLOAT, FLOAT_BYTES, VECTORS, Region, Tile, Word, in_wholes

TASK_ROWS = 48
TASK_PANELS = 8
STRETCH = 512
"""Steps along the inner axis before the next tile is taken."""
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tile's results are."""

    rows: list[ir.Value]
    """Where each row of it begins."""
    bias: ir.Value
    column: ir.Value
    is_edge: ir.Value
    """Whether there are columns beyond the last."""


class Multiplication:
    def __init__(self, module: HostModule, tile: Tile):
        self._module = module
        self._tile = tile
        self._vector = ir.VectorType(FLOAT, tile.lanes)
        self._vectors = ir.PointerType(self._vector)
        kind = ir.FunctionType(self._vector, [self._vector] * 3)
        self._multiply_add = ir.Function(module, kind, f"llvm.fmuladd.v{tile.lanes}f32")

    def emit(self, name: str) -> None:
        """Write the function: each thread takes tasks until none is left."""
        region = self._region = Region(self._module, name)
        builder = self._builder = region.builder
        self._rows, self._columns, self._inner = map(region.word, (Word.ROWS, Word.COLUMNS, Word.INNER))
        self._panels = in_wholes(builder, self._columns, self._tile.columns)
        self._sums = [[builder.alloca(self._vector) for _ in range(VECTORS)] for _ in range(self._tile.rows)]
        self._edge, self._edge_bias = self._room(self._tile.rows), self._room(1)
        row_tasks = in_wholes(builder, self._rows, TASK_ROWS)
        tasks = builder.mul(row_tasks, in_wholes(builder, self._panels, TASK_PANELS))
        taking, working, done = (builder.append_block(name) for name in ("taking", "working", "done"))
        builder.branch(taking)
        builder.position_at_end(taking)
        task = builder.atomic_add(region.place(Word.NEXT_TASK), WORD(1))
        builder.cbranch(builder.icmp_signed("<", task, tasks), working, done)
        builder.position_at_end(working)
        self._task(builder.urem(task, row_tasks), builder.udiv(task, row_tasks))
        builder.branch(taking)
        builder.position_at_end(done)
        region.finish(Word.THREADS)

    def _room(self, rows: int) -> ir.Value:
        """Memory for some rows of a tile."""
        floats = self._builder.alloca(FLOAT, WORD(rows * self._tile.columns), align=_CACHE_LINE)
        return self._builder.bitcast(floats, BYTE_POINTER)

    def _task(self, row_task: ir.Value, column_task: ir.Value) -> None:
        """Some rows and panels, stretch by stretch; where the inner axis is empty, one stretch of nothing."""
        builder = self._builder
        row, last_row = self._bounds(row_task, TASK_ROWS, self._rows)
        panel, last_panel = self._bounds(column_task, TASK_PANELS, self._panels)
        with counted(builder, WORD(0), self._inner, STRETCH, runs=True) as first:
            last = minimum(builder, builder.add(first, WORD(STRETCH)), self._inner)
            with (
                counted(builder, panel, last_panel, runs=True) as number,
                counted(builder, row, last_row, self._tile.rows, runs=True) as at,
            ):
                self._compute(at, number, first, last)

    def _bounds(self, task: ir.Value, extent: int, end: ir.Value) -> tuple[ir.Value, ir.Value]:
        first = self._builder.mul(task, WORD(extent))
        return first, minimum(self._builder, self._builder.add(first, WORD(extent)), end)

    def _compute(self, row: ir.Value, panel: ir.Value, first: ir.Value, last: ir.Value) -> None:
        """A tile's sums from one place of the inner axis to another."""
        builder, region = self._builder, self._region
        end = builder.sub(self._rows, WORD(1))
        rows = [minimum(builder, builder.add(row, WORD(number)), end) for number in range(self._tile.rows)]
        column = builder.mul(panel, WORD(self._tile.columns))
        results = [region.further(start, column) for start in self._starts(Word.RESULTS_ADDRESS, rows)]
        place = self._place(results, column)
        self._begin(place, results, builder.icmp_signed(">", first, WORD(0)))
        sources = self._starts(Word.ROWS_ADDRESS, rows)
        weights = region.further(region.pointer(Word.PANELS_ADDRESS), builder.mul(column, self._inner))
        with counted(builder, first, last) as step:
            self._step(sources, weights, step)
        self._finish(place, results, builder.icmp_signed(">=", last, self._inner))

    def _starts(self, address: Word, rows: list[ir.Value]) -> list[ir.Value]:
        """Where rows begin of what is at an address, whose stride is in the word after it."""
        pointer, stride = self._region.pointer(address), self._region.word(Word(address + 1))
        return [self._builder.gep(pointer, self._builder.mul(row, stride)) for row in rows]

    def _step(self, sources: list[ir.Value], weights: ir.Value, step: ir.Value) -> None:
        builder, region = self._builder, self._region
        panel = region.further(weights, builder.mul(step, WORD(self._tile.columns)))
        vectors = [self._load(panel, number) for number in range(VECTORS)]
        for source, sums in zip(sources, self._sums, strict=True):
            element = builder.load(builder.bitcast(region.further(source, step), ir.PointerType(FLOAT)), ANY_ADDRESS)
            spread = self._spread(element)
            for total, vector in zip(sums, vectors, strict=True):
                builder.store(builder.call(self._multiply_add, [spread, vector, builder.load(total)]), total)

    def _spread(self, element: ir.Value) -> ir.Value:
        undefined = ir.Constant(self._vector, ir.Undefined)
        first = self._builder.insert_element(undefined, element, 0)
        return self._builder.shuffle_vector(first, undefined, [0] * self._tile.lanes)

    def _vector_at(self, place: ir.Value, number: int) -> ir.Value:
        further = self._region.further(place, WORD(number * self._tile.lanes))
        return self._builder.bitcast(further, self._vectors)

    def _load(self, place: ir.Value, number: int) -> ir.Value:
        return self._builder.load(self._vector_at(place, number), ANY_ADDRESS)

    # --- where a tile begins and ends ---------------------------------------------------------------------------------

    def _place(self, results: list[ir.Value], column: ir.Value) -> _Place:
        """Where a tile has its results; at the edge that is memory of its own, which has room for all columns."""
        builder, region = self._builder, self._region
        left = builder.sub(self._columns, column)
        is_edge = builder.icmp_signed("<", left, WORD(self._tile.columns))
        rows = [
            builder.select(is_edge, region.further(self._edge, WORD(number * self._tile.columns)), result)
            for number, result in enumerate(results)
        ]
        bias = region.further(region.pointer(Word.BIAS_ADDRESS), column)
        return _Place(rows, builder.select(is_edge, self._edge_bias, bias), column, is_edge)

    def _begin(self, place: _Place, results: list[ir.Value], is_begun: ir.Value) -> None:
        """Let the sums be what the stretch before has left, or nothing."""
        builder = self._builder
        for total in (total for sums in self._sums for total in sums):
            builder.store(ir.Constant(self._vector, None), total)
        with builder.if_then(is_begun):
            with builder.if_then(place.is_edge):
                self._copy(place, zip(results, place.rows, strict=True))
            for row, sums in zip(place.rows, self._sums, strict=True):
                for number, total in enumerate(sums):
                    builder.store(self._load(row, number), total)

    def _finish(self, place: _Place, results: list[ir.Value], is_last: ir.Value) -> None:
        """Leave the sums in the results, after the last stretch with the bias."""
        builder, region = self._builder, self._region
        has_bias = builder.icmp_signed("!=", region.word(Word.BIAS_ADDRESS), WORD(0))
        with builder.if_then(builder.and_(is_last, has_bias)):
            with builder.if_then(place.is_edge):
                bias = region.further(region.pointer(Word.BIAS_ADDRESS), place.column)
                self._copy(place, [(bias, place.bias)])
            for number in range(VECTORS):
                bias = self._load(place.bias, number)
                for sums in self._sums:
                    builder.store(builder.fadd(builder.load(sums[number]), bias), sums[number])
        for row, sums in zip(place.rows, self._sums, strict=True):
            for number, total in enumerate(sums):
                builder.store(builder.load(total), self._vector_at(row, number), ANY_ADDRESS)
        with builder.if_then(place.is_edge):
            self._copy(place, zip(place.rows, results, strict=True))

    def _copy(self, place: _Place, pairs: Iterable[tuple[ir.Value, ir.Value]]) -> None:
        """Copy the columns that there are, from one row to another of each pair."""
        builder = self._builder
        left = builder.sub(self._columns, place.column)
        nbytes = builder.mul(left, WORD(FLOAT_BYTES))
        for source, target in pairs:
            with counted(builder, WORD(0), nbytes, FLOAT_BYTES, runs=True) as offset:
                given, taken = (
                    builder.bitcast(builder.gep(pointer, offset), ir.PointerType(FLOAT)) for pointer in (source, target)
                )
                builder.store(builder.load(given, ANY_ADDRESS), taken, ANY_ADDRESS)
