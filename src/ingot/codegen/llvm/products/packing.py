"""Weights into panels.

Weights that have a row for each column of the result are turned: a square of as many rows as a vector has lanes is
loaded, turned in registers and stored as many vectors. Those that have a row for each step of the inner axis are
copied. The last panel may have columns beyond the last: they are the last once more, and nobody looks at what comes of
them.
"""

from __future__ import annotations

from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.frame import ANY_ADDRESS, WORD, counted, minimum
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.products.region import FLOAT, VECTORS, Region, Tile, Word

PACK_DENSE_ROWS = "pack_dense_rows"
PACK_DENSE_COLUMNS = "pack_dense_columns"


def emit_packing(module: HostModule, tile: Tile) -> None:
    """Both functions; threads share the panels."""
    for name, is_turned in ((PACK_DENSE_ROWS, True), (PACK_DENSE_COLUMNS, False)):
        region = Region(module, name)
        packing = _Packing(region, tile, is_turned)
        _, first, last = region.function.arguments
        with counted(region.builder, first, last) as panel:
            packing.panel(panel)
        region.finish(Word.COLUMNS, tile.columns)


class _Packing:
    def __init__(self, region: Region, tile: Tile, is_turned: bool):
        self._region, self._tile, self._is_turned = region, tile, is_turned
        self._builder: Any = region.builder
        self._weights, self._stride = region.pointer(Word.WEIGHTS_ADDRESS), region.word(Word.WEIGHTS_STRIDE)
        self._panels = region.pointer(Word.PANELS_ADDRESS)
        self._columns, self._inner = region.word(Word.COLUMNS), region.word(Word.INNER)
        self._vector = ir.VectorType(FLOAT, tile.lanes)

    def panel(self, panel: ir.Value) -> None:
        """Write one panel: what comes in whole vectors, then the rest."""
        builder, tile = self._builder, self._tile
        first = builder.mul(panel, WORD(tile.columns))
        target = self._region.further(self._panels, builder.mul(first, self._inner))
        if self._is_turned:
            whole = builder.sub(self._inner, builder.urem(self._inner, WORD(tile.lanes)))
            with counted(builder, WORD(0), whole, tile.lanes) as step:
                for number in range(VECTORS):
                    self._turn(first, number, step, target)
            self._singly(first, whole, target)
            return
        is_whole = builder.icmp_signed("<=", builder.add(first, WORD(tile.columns)), self._columns)
        whole = builder.select(is_whole, self._inner, WORD(0))
        with counted(builder, WORD(0), whole) as step:
            for number in range(VECTORS):
                source = self._source(builder.add(first, WORD(number * tile.lanes)), step)
                self._store(self._load(source), target, step, number)
        self._singly(first, whole, target)

    def _source(self, column: ir.Value, step: ir.Value) -> ir.Value:
        """Where a weight is."""
        builder = self._builder
        row, along = (column, step) if self._is_turned else (step, column)
        return self._region.further(builder.gep(self._weights, builder.mul(row, self._stride)), along)

    def _load(self, place: ir.Value) -> ir.Value:
        return self._builder.load(self._builder.bitcast(place, ir.PointerType(self._vector)), ANY_ADDRESS)

    def _store(self, vector: ir.Value, target: ir.Value, step: ir.Value, number: int) -> None:
        builder, tile = self._builder, self._tile
        place = builder.add(builder.mul(step, WORD(tile.columns)), WORD(number * tile.lanes))
        pointer = builder.bitcast(self._region.further(target, place), ir.PointerType(self._vector))
        builder.store(vector, pointer, ANY_ADDRESS)

    def _turn(self, first: ir.Value, number: int, step: ir.Value, target: ir.Value) -> None:
        """A square of weights."""
        builder, lanes = self._builder, self._tile.lanes
        columns = [builder.add(first, WORD(number * lanes + lane)) for lane in range(lanes)]
        end = builder.sub(self._columns, WORD(1))
        loaded = [self._load(self._source(minimum(builder, column, end), step)) for column in columns]
        for further, vector in enumerate(_turned(builder, loaded)):
            self._store(vector, target, builder.add(step, WORD(further)), number)

    def _singly(self, first: ir.Value, step: ir.Value, target: ir.Value) -> None:
        """One weight after another, from a step on."""
        builder, tile = self._builder, self._tile
        end = builder.sub(self._columns, WORD(1))
        with counted(builder, step, self._inner) as at, counted(builder, WORD(0), WORD(tile.columns)) as number:
            source = self._source(minimum(builder, builder.add(first, number), end), at)
            place = self._region.further(target, builder.add(builder.mul(at, WORD(tile.columns)), number))
            single = builder.load(builder.bitcast(source, ir.PointerType(FLOAT)), ANY_ADDRESS)
            builder.store(single, builder.bitcast(place, ir.PointerType(FLOAT)), ANY_ADDRESS)


def _turned(builder: Any, rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square: rows half the square apart are interleaved, as often as halving leads to one."""
    lanes = len(rows)
    half = lanes // 2
    low = [lane // 2 + lanes * (lane % 2) for lane in range(lanes)]
    high = [half + lane for lane in low]
    for _ in range(lanes.bit_length() - 1):
        rows = [
            builder.shuffle_vector(rows[number], rows[number + half], order)
            for number in range(half)
            for order in (low, high)
        ]
    return rows
