"""A matrix of inner x columns into panels.

A transposed one, with a row for each column, as layers have their weights, is transposed back: a square of as many rows
as a vector has lanes is loaded, transposed in registers and stored as that many vectors. One that has a row for each
step of the inner axis is copied. The last panel may have columns beyond the last: they repeat the last column, and
their results are not used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.parallel_functions import VECTORS, ProductTile, Writing, internal_function
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.storage import BYTE_POINTER, WORD


@dataclass(frozen=True, slots=True)
class PackingArguments:
    """What the functions take, in order; the stride is that of the matrix's rows, as they lie, in bytes."""

    matrix: ir.Value
    stride: ir.Value
    panels: ir.Value
    columns: ir.Value
    inner: ir.Value
    panel: ir.Value
    last_panel: ir.Value

    @property
    def values(self) -> list[ir.Value]:
        return [getattr(self, field.name) for field in fields(self)]


_KINDS = [BYTE_POINTER, WORD, BYTE_POINTER, WORD, WORD, WORD, WORD]


def emit_packing(module: HostModule, tile: ProductTile, is_transposed: bool) -> ir.Function:
    """The function that writes some panels of a matrix."""
    function = internal_function(module, "panels_of_transposed" if is_transposed else "panels_of_straight", _KINDS)
    packing = _Packing(ir.IRBuilder(function), tile, PackingArguments(*function.arguments), is_transposed)
    packing.emit()
    return function


class _Packing(Writing):
    def __init__(self, builder: Any, tile: ProductTile, source: PackingArguments, is_transposed: bool):
        super().__init__(builder, tile)
        self._source, self._is_transposed = source, is_transposed

    def emit(self) -> None:
        builder = self.builder
        with counted(builder, self._source.panel, self._source.last_panel) as panel:
            first = builder.mul(panel, WORD(self.tile.columns))
            target = self.further(self._source.panels, builder.mul(first, self._source.inner))
            done = self._transpose_squares(first, target) if self._is_transposed else self._copy_rows(first, target)
            self._copy_rest(first, done, target)
        builder.ret_void()

    def _transpose_squares(self, first: ir.Value, target: ir.Value) -> ir.Value:
        """Write as many steps of a panel as come in squares; how many those are."""
        builder, lanes = self.builder, self.tile.lanes
        whole = builder.sub(self._source.inner, builder.urem(self._source.inner, WORD(lanes)))
        with counted(builder, WORD(0), whole, lanes) as step:
            for number in range(VECTORS):
                columns = [builder.add(first, WORD(number * lanes + lane)) for lane in range(lanes)]
                loaded = [self.load(self._weight(self._clamped(column), step)) for column in columns]
                for further, vector in enumerate(_transposed(builder, loaded)):
                    self._put(vector, target, builder.add(step, WORD(further)), number)
        return whole

    def _copy_rows(self, first: ir.Value, target: ir.Value) -> ir.Value:
        """Write all steps of a panel, if none of its columns is beyond the last; how many those are."""
        builder, tile = self.builder, self.tile
        is_whole = builder.icmp_signed("<=", builder.add(first, WORD(tile.columns)), self._source.columns)
        whole = builder.select(is_whole, self._source.inner, WORD(0))
        with counted(builder, WORD(0), whole) as step:
            for number in range(VECTORS):
                column = builder.add(first, WORD(number * tile.lanes))
                self._put(self.load(self._weight(column, step)), target, step, number)
        return whole

    def _copy_rest(self, first: ir.Value, step: ir.Value, target: ir.Value) -> None:
        """One weight after another, from a step on."""
        builder, columns = self.builder, self.tile.columns
        with counted(builder, step, self._source.inner) as at, counted(builder, WORD(0), WORD(columns)) as number:
            weight = self.load_single(self._weight(self._clamped(builder.add(first, number)), at))
            self.store_single(weight, self.further(target, builder.add(builder.mul(at, WORD(columns)), number)))

    def _clamped(self, column: ir.Value) -> ir.Value:
        return minimum(self.builder, column, self.builder.sub(self._source.columns, WORD(1)))

    def _weight(self, column: ir.Value, step: ir.Value) -> ir.Value:
        """Where an element of the matrix is."""
        row, along = (column, step) if self._is_transposed else (step, column)
        return self.further(self.row(self._source.matrix, row, self._source.stride), along)

    def _put(self, vector: ir.Value, target: ir.Value, step: ir.Value, number: int) -> None:
        """A vector into its place in a panel."""
        builder, tile = self.builder, self.tile
        place = builder.add(builder.mul(step, WORD(tile.columns)), WORD(number * tile.lanes))
        self.store(vector, self.further(target, place))


_UNIT = 4
"""Elements of 16 bytes, within which processors move elements by one instruction."""


def _transposed(builder: Any, rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square: small squares of it are transposed within their 16 bytes, then these change places."""
    lanes = len(rows)
    groups = [_transposed_units(builder, rows[first : first + _UNIT]) for first in range(0, lanes, _UNIT)]
    exchanged = [_exchanged(builder, [group[number] for group in groups]) for number in range(_UNIT)]
    return [exchanged[column % _UNIT][column // _UNIT] for column in range(lanes)]


def _transposed_units(builder: Any, rows: list[ir.Value]) -> list[ir.Value]:
    """Four rows to four columns, in every unit."""
    lanes = rows[0].type.count

    def paired(left: ir.Value, right: ir.Value, of_unit: tuple[int, ...]) -> ir.Value:
        order = [
            start + (place if place < _UNIT else lanes + place - _UNIT)
            for start in range(0, lanes, _UNIT)
            for place in of_unit
        ]
        return builder.shuffle_vector(left, right, order)

    a, b, c, d = rows
    ends = [(paired(x, y, (0, 4, 1, 5)), paired(x, y, (2, 6, 3, 7))) for x, y in ((a, b), (c, d))]
    return [
        paired(left, right, of_unit)
        for left, right in zip(*ends, strict=True)
        for of_unit in ((0, 1, 4, 5), (2, 3, 6, 7))
    ]


def _exchanged(builder: Any, vectors: list[ir.Value]) -> list[ir.Value]:
    """As many vectors as each has units: the first gets the first unit of every one, and so on. Those half their number
    apart are interleaved, as often as halving leads to one."""
    count, lanes = len(vectors), len(vectors) * _UNIT
    half = count // 2
    units = [unit // 2 + count * (unit % 2) for unit in range(count)]
    low = [unit * _UNIT + place for unit in units for place in range(_UNIT)]
    high = [lanes // 2 + lane for lane in low]
    for _ in range(count.bit_length() - 1):
        vectors = [
            builder.shuffle_vector(vectors[number], vectors[number + half], order)
            for number in range(half)
            for order in (low, high)
        ]
    return vectors
