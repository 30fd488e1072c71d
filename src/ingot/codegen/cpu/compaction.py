"""Machine code that takes the elements of a tensor where a mask is true, and puts them side by side.

Threads share chunks. First the true elements of each chunk are counted, then the counts are added up to the places
where chunks begin in the result, and then every chunk is written:

    while place < end of the chunk:      # of its part of the result
        result[place] = source[at]
        place, at = place + mask[at], at + 1

An element whose mask is false is overwritten by the next one whose mask is true. No branch depends on the mask, and no
thread writes into another one's chunk: the last true element of a chunk ends its loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ingot.codegen.cpu.common import provide
from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.parallel_functions import ParallelFunction, ProductTile, in_wholes
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import ANY_ADDRESS, WORD

CHUNK = 1 << 14
"""Elements that a thread counts and writes at a time."""
WIDTHS = (1, 2, 4, 8, 16)
"""Bytes of elements."""
_BYTES = 32
"""Elements of the mask that are counted at once, each in a byte of its own: at most 255 times in a row."""
_BLOCK = 128 * _BYTES
_AT_ONCE = 8
"""How many elements are written before the next check for the end of a chunk."""
_BYTE = ir.IntType(8)
_MASKS = ir.VectorType(_BYTE, _BYTES)


class CompactionWord(IntEnum):
    """The array of words that the functions take."""

    MASK_ADDRESS = 0
    SOURCE_ADDRESS = 1
    RESULT_ADDRESS = 2
    ELEMENTS = 3
    PLACES_ADDRESS = 4
    """A word for each chunk and one more: how many elements count, and once they are added up, where chunks begin."""
    THREADS = 5


@dataclass(frozen=True, slots=True)
class CompiledCompaction:
    """Addresses of functions that take an array of words."""

    code: Compiled
    count: int
    """Counts the elements of every chunk."""
    add_up: int
    """From counts to places; the last word of the places is the number of all elements that count."""
    write: dict[int, int]
    """Addresses of the functions that write, by the bytes of an element."""


@lru_cache(maxsize=1)
def compiled_compaction(store: CodeStore | None = None) -> CompiledCompaction:
    """Machine code for this processor."""
    provide(store)
    code = Compiled(lambda: compaction_module(host()), "compaction", "count, add_up, write", store, "compaction")
    writing = {width: code.address(f"write{width}") for width in WIDTHS}
    return CompiledCompaction(code, code.address("count"), code.address("add_up"), writing)


def compaction_module(host: Host) -> HostModule:
    """The functions as LLVM has them, for any processor."""
    module = HostModule(host)
    _emit_count(module)
    _emit_add_up(module)
    for width in WIDTHS:
        _emit_write(module, width)
    return module


def _emit_count(module: HostModule) -> None:
    region = ParallelFunction(module, ProductTile.of(module.host), "count")
    builder = region.builder
    mask, places = _array(region, CompactionWord.MASK_ADDRESS, _BYTE), _places(region)
    _, first, last = region.function.arguments
    total, sums = builder.alloca(WORD), builder.alloca(_MASKS)
    with counted(builder, first, last) as chunk:
        begin, end = _bounds(region, chunk)
        builder.store(WORD(0), total)
        blocks = builder.udiv(builder.sub(end, begin), WORD(_BLOCK))
        rest = builder.add(begin, builder.mul(blocks, WORD(_BLOCK)))
        with counted(builder, begin, rest, _BLOCK) as at:
            _add(builder, total, _count_block(module, builder, builder.gep(mask, at), sums))
        with counted(builder, rest, end) as at:
            _add(builder, total, _is_true(builder, builder.load(builder.gep(mask, at))))
        builder.store(builder.load(total), builder.gep(places, chunk))
    region.finish(CompactionWord.THREADS, CompactionWord.ELEMENTS, CHUNK)


def _count_block(module: HostModule, builder: Any, block: ir.Value, sums: ir.Value) -> ir.Value:
    nothing, halves = ir.Constant(_MASKS, None), ir.VectorType(ir.IntType(16), _BYTES)
    builder.store(nothing, sums)
    with counted(builder, WORD(0), WORD(_BLOCK), _BYTES, runs=True) as at:
        loaded = builder.load(builder.bitcast(builder.gep(block, at), ir.PointerType(_MASKS)), ANY_ADDRESS)
        is_true = builder.zext(builder.icmp_unsigned("!=", loaded, nothing), _MASKS)
        builder.store(builder.add(builder.load(sums), is_true), sums)
    name = f"llvm.vector.reduce.add.v{_BYTES}i16"
    add = module.functions.get(name) or ir.Function(module, ir.FunctionType(ir.IntType(16), [halves]), name)
    return builder.zext(builder.call(add, [builder.zext(builder.load(sums), halves)]), WORD)


def _emit_add_up(module: HostModule) -> None:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), "add_up")
    builder: Any = ir.IRBuilder(function)
    word = lambda which: builder.load(builder.gep(function.arguments[0], WORD(which)))
    places = builder.inttoptr(word(CompactionWord.PLACES_ADDRESS), ir.PointerType(WORD))
    chunks = in_wholes(builder, word(CompactionWord.ELEMENTS), CHUNK)
    total = builder.alloca(WORD)
    builder.store(WORD(0), total)
    with counted(builder, WORD(0), chunks) as chunk:
        place = builder.gep(places, chunk)
        count = builder.load(place)
        builder.store(builder.load(total), place)
        _add(builder, total, count)
    builder.store(builder.load(total), builder.gep(places, chunks))
    builder.ret_void()


def _emit_write(module: HostModule, width: int) -> None:
    region = ParallelFunction(module, ProductTile.of(module.host), f"write{width}")
    builder, element = region.builder, ir.IntType(8 * width)
    mask, places = _array(region, CompactionWord.MASK_ADDRESS, _BYTE), _places(region)
    source, result = (
        _array(region, which, element) for which in (CompactionWord.SOURCE_ADDRESS, CompactionWord.RESULT_ADDRESS)
    )
    _, first, last = region.function.arguments
    at, place = builder.alloca(WORD), builder.alloca(WORD)
    with counted(builder, first, last) as chunk:
        begin, _ = _bounds(region, chunk)
        end = builder.load(builder.gep(places, builder.add(chunk, WORD(1))))
        builder.store(begin, at)
        builder.store(builder.load(builder.gep(places, chunk)), place)
        for count in (_AT_ONCE, 1):
            _emit_loop(builder, count, end, at, place, (mask, source, result))
    region.finish(CompactionWord.THREADS, CompactionWord.ELEMENTS, CHUNK)


def _emit_loop(
    builder: Any, count: int, end: ir.Value, at: ir.Value, place: ir.Value, arrays: Sequence[ir.Value]
) -> None:
    """Write elements, so many at once, while there are at least as many left that count."""
    mask, source, result = arrays
    looking, writing, after = (builder.append_block(name) for name in ("looking", "writing", "after"))
    builder.branch(looking)
    builder.position_at_end(looking)
    there = builder.add(builder.load(place), WORD(count))
    builder.cbranch(builder.icmp_signed("<=", there, end), writing, after)
    builder.position_at_end(writing)
    begin = builder.load(at)
    for step in range(count):
        here = builder.add(begin, WORD(step))
        value = builder.load(builder.gep(source, here), ANY_ADDRESS)
        builder.store(value, builder.gep(result, builder.load(place)), ANY_ADDRESS)
        _add(builder, place, _is_true(builder, builder.load(builder.gep(mask, here))))
    _add(builder, at, WORD(count))
    builder.branch(looking)
    builder.position_at_end(after)


def _array(region: ParallelFunction, which: IntEnum, element: ir.Type) -> ir.Value:
    return region.builder.bitcast(region.pointer(which), ir.PointerType(element))


def _places(region: ParallelFunction) -> ir.Value:
    return _array(region, CompactionWord.PLACES_ADDRESS, WORD)


def _bounds(region: ParallelFunction, chunk: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The first element of a chunk, and the one after its last."""
    builder = region.builder
    begin = builder.mul(chunk, WORD(CHUNK))
    return begin, minimum(builder, builder.add(begin, WORD(CHUNK)), region.word(CompactionWord.ELEMENTS))


def _is_true(builder: Any, byte: ir.Value) -> ir.Value:
    """1 or 0; a byte of a mask may be anything but 0 if it is true."""
    return builder.zext(builder.icmp_unsigned("!=", byte, _BYTE(0)), WORD)


def _add(builder: Any, place: ir.Value, value: ir.Value) -> None:
    builder.store(builder.add(builder.load(place), value), place)
