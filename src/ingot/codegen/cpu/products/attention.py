"""Attention: for each head, the products of queries and keys, their softmax, and its product with the values.

A task is a head: its keys and values are packed into panels, and then some queries at a time go through all three
stages, so that their scores never leave the nearer caches. Where it is causal, a query sees the keys up to its own
place, and no more of the products is computed than some query needs.

The results for a query whose largest score is not finite differ between PyTorch's own versions, so it is a fault: the
results are void, and the caller leaves them to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from ingot.base.dtypes import DataType
from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.packing import PackingArguments
from ingot.codegen.cpu.products.parallel_functions import (
    FLOAT,
    FLOAT_BYTES,
    ParallelFunction,
    ProductTile,
    each_task,
    in_wholes,
)
from ingot.codegen.cpu.products.product_tiles import Operands
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import halves
from ingot.codegen.llvm.constants import constant
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.instructions import TypedValue
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.storage import WORD

TASK_QUERIES = 48
_INFINITY = float("inf")


class AttentionWord(IntEnum):
    """The array of words that the function takes; strides are in bytes, of batches, heads and rows, each after its
    address."""

    QUERIES_ADDRESS = 0
    KEYS_ADDRESS = 4
    VALUES_ADDRESS = 8
    RESULTS_ADDRESS = 12
    BATCHES = 16
    HEADS = 17
    HEADS_PER_KEY = 18
    """How many consecutive heads share their keys and values."""
    QUERIES = 19
    KEYS = 20
    WIDTH = 21
    SCALE = 22
    """The bits of a float."""
    IS_CAUSAL = 23
    SCRATCH_ADDRESS = 24
    SCRATCH_BYTES = 25
    """For each thread."""
    THREADS = 26
    NEXT_TASK = 27
    NEXT_THREAD = 28
    FAULT = 29
    """The last three are 0 at the start; the last one is set if the results are void."""


def scratch_floats(tile: ProductTile, keys: int, width: int) -> int:
    """What a thread needs of its own: panels of keys, panels of values, scores."""
    scores = TASK_QUERIES * -(-keys // tile.lanes) * tile.lanes
    return tile.panel_floats(keys, width) + tile.panel_floats(width, keys) + scores


@dataclass(frozen=True, slots=True)
class _Head:
    """Where a head's parts are."""

    queries: ir.Value
    results: ir.Value
    key_panels: ir.Value
    value_panels: ir.Value
    scores: ir.Value


class Attention:
    def __init__(
        self, module: HostModule, tile: ProductTile, tiles: ir.Function, transposed: ir.Function, straight: ir.Function
    ):
        self._region = ParallelFunction(module, tile, "attention")
        self._tile = tile
        self._tiles, self._transposed, self._straight = tiles, transposed, straight

    def emit(self) -> None:
        """Write the function: each thread takes heads until none is left."""
        region, builder, word = self._region, self._region.builder, self._region.word
        self._keys, self._width = word(AttentionWord.KEYS), word(AttentionWord.WIDTH)
        self._is_causal = builder.icmp_signed("!=", word(AttentionWord.IS_CAUSAL), WORD(0))
        self._scale = builder.bitcast(builder.trunc(word(AttentionWord.SCALE), ir.IntType(32)), FLOAT)
        self._most, self._sum = (builder.alloca(self._tile.vector) for _ in range(2))
        lanes = in_wholes(builder, self._keys, self._tile.lanes)
        self._score_stride = builder.mul(lanes, WORD(self._tile.lanes * FLOAT_BYTES))
        thread = region.count(AttentionWord.NEXT_THREAD)
        offset = builder.mul(thread, word(AttentionWord.SCRATCH_BYTES))
        scratch = builder.gep(region.pointer(AttentionWord.SCRATCH_ADDRESS), offset)
        heads = word(AttentionWord.HEADS)
        with each_task(region, AttentionWord.NEXT_TASK, builder.mul(word(AttentionWord.BATCHES), heads)) as task:
            self._head(builder.udiv(task, heads), builder.urem(task, heads), scratch)
        region.finish(AttentionWord.THREADS)

    def _head(self, batch: ir.Value, number: ir.Value, scratch: ir.Value) -> None:
        region, builder, columns = self._region, self._region.builder, self._tile.columns
        of_keys = builder.udiv(number, region.word(AttentionWord.HEADS_PER_KEY))
        keys = self._start(AttentionWord.KEYS_ADDRESS, batch, of_keys)
        values = self._start(AttentionWord.VALUES_ADDRESS, batch, of_keys)
        key_panels, value_panels = (in_wholes(builder, count, columns) for count in (self._keys, self._width))
        after_keys = region.further(scratch, builder.mul(builder.mul(key_panels, WORD(columns)), self._width))
        after_values = region.further(after_keys, builder.mul(builder.mul(value_panels, WORD(columns)), self._keys))
        key_stride, value_stride = map(self._row_stride, (AttentionWord.KEYS_ADDRESS, AttentionWord.VALUES_ADDRESS))
        for function, source in (
            (
                self._transposed,
                PackingArguments(keys, key_stride, scratch, self._keys, self._width, WORD(0), key_panels),
            ),
            (
                self._straight,
                PackingArguments(values, value_stride, after_keys, self._width, self._keys, WORD(0), value_panels),
            ),
        ):
            builder.call(function, source.values)
        queries, results = (
            self._start(which, batch, number)
            for which in (AttentionWord.QUERIES_ADDRESS, AttentionWord.RESULTS_ADDRESS)
        )
        head = _Head(queries, results, scratch, after_keys, after_values)
        with counted(builder, WORD(0), region.word(AttentionWord.QUERIES), TASK_QUERIES) as query:
            self._queries(head, query)

    def _start(self, which: AttentionWord, batch: ir.Value, number: ir.Value) -> ir.Value:
        """Where a head begins of what is at an address."""
        region, builder = self._region, self._region.builder
        strides = [region.word(AttentionWord(which) + further) for further in (1, 2)]
        offsets = [builder.mul(index, stride) for index, stride in zip((batch, number), strides, strict=True)]
        return builder.gep(region.pointer(which), builder.add(*offsets))

    def _row_stride(self, which: AttentionWord) -> ir.Value:
        return self._region.word(which + 3)

    def _queries(self, head: _Head, query: ir.Value) -> None:
        """All stages for some queries."""
        region, builder = self._region, self._region.builder
        end = minimum(builder, builder.add(query, WORD(TASK_QUERIES)), region.word(AttentionWord.QUERIES))
        count, keys = builder.sub(end, query), self._seen(end)
        stride, result_stride = map(self._row_stride, (AttentionWord.QUERIES_ADDRESS, AttentionWord.RESULTS_ADDRESS))
        scores = Operands(
            *(region.row(head.queries, query, stride), stride, head.key_panels, self._width, WORD(0)),
            *(head.scores, self._score_stride, keys, self._width),
            *(WORD(0), count, WORD(0), in_wholes(builder, keys, self._tile.columns)),
        )
        builder.call(self._tiles, scores.values)
        with counted(builder, WORD(0), count) as row:
            scores_of_row = region.row(head.scores, row, self._score_stride)
            self._softmax(scores_of_row, keys, self._seen(builder.add(builder.add(query, row), WORD(1))))
        mixed = Operands(
            *(head.scores, self._score_stride, head.value_panels, self._keys, WORD(0)),
            *(region.row(head.results, query, result_stride), result_stride, self._width, keys),
            *(WORD(0), count, WORD(0), in_wholes(builder, self._width, self._tile.columns)),
        )
        builder.call(self._tiles, mixed.values)

    def _seen(self, queries: ir.Value) -> ir.Value:
        """How many keys the last of so many queries sees."""
        return self._region.builder.select(
            self._is_causal, minimum(self._region.builder, queries, self._keys), self._keys
        )

    # --- softmax ------------------------------------------------------------------------------------------------------

    def _softmax(self, scores: ir.Value, keys: ir.Value, seen: ir.Value) -> None:
        """The softmax of the scores of a row that the query sees, which come first; the others become zeros."""
        region, builder, tile = self._region, self._region.builder, self._tile
        lowest = constant(tile.vector, -_INFINITY)
        builder.store(lowest, self._most)
        scale = region.spread(self._scale)
        with self._vectors(scores, keys) as (at, place):
            score = builder.fmul(region.load(place), scale)
            score = builder.select(self._is_before(at, seen), score, lowest)
            region.store(score, place)
            builder.store(self._larger(builder.load(self._most), score), self._most)
        most = self._across(builder.load(self._most), self._larger)
        with builder.if_then(builder.not_(self._is_finite(most)), odds=(1, 1000)):
            region.store_word(AttentionWord.FAULT, WORD(1))
        spread = region.spread(most)
        builder.store(ir.Constant(tile.vector, None), self._sum)
        with self._vectors(scores, keys) as (_, place):
            weight = FUNCTIONS["exp"](builder, builder.fsub(region.load(place), spread))
            region.store(weight, place)
            builder.store(builder.fadd(builder.load(self._sum), weight), self._sum)
        total = self._across(builder.load(self._sum), builder.fadd)
        share = region.spread(builder.fdiv(constant(FLOAT, 1.0), total))
        with self._vectors(scores, keys) as (_, place):
            region.store(builder.fmul(region.load(place), share), place)

    @contextmanager
    def _vectors(self, scores: ir.Value, keys: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Each vector of a row: the number of its first element, and where it is. A row has room for whole ones."""
        with counted(self._region.builder, WORD(0), keys, self._tile.lanes) as at:
            yield at, self._region.further(scores, at)

    def _is_before(self, first: ir.Value, end: ir.Value) -> ir.Value:
        """For each lane whether its element is before an end."""
        builder, lanes = self._region.builder, self._tile.lanes
        left = builder.trunc(builder.sub(end, first), ir.IntType(32))
        numbers = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(lanes)))
        return builder.icmp_signed("<", numbers, self._region.spread(left))

    def _is_finite(self, value: ir.Value) -> ir.Value:
        builder, infinity = self._region.builder, constant(FLOAT, _INFINITY)
        return builder.and_(
            builder.fcmp_ordered("<", value, infinity), builder.fcmp_ordered("<", builder.fneg(value), infinity)
        )

    def _larger(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """NaN may be passed over here: it shows again in the sum."""
        builder = self._region.builder
        return builder.select(builder.fcmp_ordered(">", left, right), left, right)

    def _across(self, vector: ir.Value, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """All lanes of a vector together, halves with halves."""
        builder, lanes = self._region.builder, self._tile.lanes
        while lanes > 1:
            lanes //= 2
            low, high = halves(builder, TypedValue(vector, DataType.Float), lanes)
            vector = combine(low.code, high.code)
        return vector
