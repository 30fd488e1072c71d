"""Machine code that digests memory: one word for each piece, which is another one if any bit of the piece is.

    for each word of a piece, in several lanes:   lane = rotated(lane * FACTOR + word)
    digest = rotated(digest * FACTOR + lane), for all lanes and the bytes that are left over

The factor is odd, so multiplying by it loses nothing: pieces that differ in one word have different digests. Products
and sums carry bits upwards only: without rotating, a change of the highest bit, which is the sign of a number, would
stay there, and two of them would cancel. Where several words of a lane differ, one change in 2^64 goes unseen. What was
meant to collide is not defended against. Threads share pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ingot.codegen.cpu.common import provide
from ingot.codegen.cpu.frame import counted
from ingot.codegen.cpu.products.parallel_functions import ParallelFunction, ProductTile
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import ANY_ADDRESS, BYTE_POINTER, WORD

FACTOR = 0x9E3779B97F4A7C15
_ROTATION = 29
"""By how many bits, towards the highest: the upper bits of a product, which depend on all of it, come to lie below."""
_LANES = 8
_VECTORS = 4
"""Vectors of lanes, so that one multiplication need not wait for the one before it."""
_VECTOR = ir.VectorType(WORD, _LANES)
_VECTOR_BYTES = 8 * _LANES
_STEP = _VECTORS * _VECTOR_BYTES


class DigestWord(IntEnum):
    """The array of words that the function takes."""

    PIECES_ADDRESS = 0
    """Two words for each piece: its address and how many bytes it has."""
    DIGESTS_ADDRESS = 1
    PIECES = 2
    THREADS = 3


@dataclass(frozen=True, slots=True)
class CompiledDigest:
    """The address of a function that takes an array of words."""

    code: Compiled
    digest: int


@lru_cache(maxsize=1)
def compiled_digest(store: CodeStore | None = None) -> CompiledDigest:
    """Machine code for this processor."""
    provide(store)
    code = Compiled(lambda: digest_module(host()), "digest", "digest", store, "digest")
    return CompiledDigest(code, code.address("digest"))


def digest_module(host: Host) -> HostModule:
    """The function as LLVM has it, for any processor."""
    module = HostModule(host)
    region = ParallelFunction(module, ProductTile.of(host), "digest")
    builder = region.builder
    pieces, digests = (
        builder.bitcast(region.pointer(which), ir.PointerType(WORD))
        for which in (DigestWord.PIECES_ADDRESS, DigestWord.DIGESTS_ADDRESS)
    )
    lanes = [builder.alloca(_VECTOR) for _ in range(_VECTORS)]
    digest = builder.alloca(WORD)
    _, first, last = region.function.arguments
    with counted(builder, first, last) as piece:
        row = builder.mul(piece, WORD(2))
        begin = builder.inttoptr(builder.load(builder.gep(pieces, row)), BYTE_POINTER)
        size = builder.load(builder.gep(pieces, builder.add(row, WORD(1))))
        _digest_piece(builder, begin, size, lanes, digest)
        builder.store(builder.load(digest), builder.gep(digests, piece))
    region.finish(DigestWord.THREADS, DigestWord.PIECES)
    return module


def _digest_piece(builder: Any, begin: ir.Value, size: ir.Value, lanes: list[ir.Value], digest: ir.Value) -> None:
    for lane in lanes:
        builder.store(ir.Constant(_VECTOR, None), lane)
    whole = builder.and_(size, WORD(-_STEP))
    factors = ir.Constant(_VECTOR, [FACTOR] * _LANES)
    with counted(builder, WORD(0), whole, _STEP) as at:
        for number, lane in enumerate(lanes):
            place = builder.gep(begin, builder.add(at, WORD(number * _VECTOR_BYTES)))
            words = builder.load(builder.bitcast(place, ir.PointerType(_VECTOR)), ANY_ADDRESS)
            builder.store(_rotated(builder, builder.add(builder.mul(builder.load(lane), factors), words)), lane)
    builder.store(size, digest)
    for lane in lanes:
        words = builder.load(lane)
        for element in range(_LANES):
            _add(builder, digest, builder.extract_element(words, element))
    with counted(builder, whole, size) as at:
        _add(builder, digest, builder.zext(builder.load(builder.gep(begin, at)), WORD))


def _add(builder: Any, digest: ir.Value, word: ir.Value) -> None:
    added = builder.add(builder.mul(builder.load(digest), WORD(FACTOR)), word)
    builder.store(_rotated(builder, added), digest)


def _rotated(builder: Any, value: ir.Value) -> ir.Value:
    """A word, or every word of a vector, with the bits that leave it at one end at the other."""
    up, down = (
        ir.Constant(_VECTOR, [bits] * _LANES) if value.type == _VECTOR else WORD(bits)
        for bits in (_ROTATION, 64 - _ROTATION)
    )
    return builder.or_(builder.shl(value, up), builder.lshr(value, down))
