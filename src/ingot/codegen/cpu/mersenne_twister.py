"""Machine code that draws ones and zeros from a Mersenne Twister (MT19937), many at a time.

In: a generator's state in the bytes that torch keeps it in, a threshold, and memory for the result. Out: for every
element 1 if its 53 random bits are below the threshold, else 0, and the state as it is after so many draws.

The generator is one endless sequence of 32-bit words, of which the state holds 624 neighbours:

    word[k + 624] = word[k + 397] ^ mixed(word[k], word[k + 1])

A word depends on none of the 226 before it, so vectors of 16 are computed at once. A window slides over the sequence:
the 624 words that are known, and up to `_BLOCKS` times as many that follow. An element takes two words, scrambled. One
of them may be the last of torch's 624 and the other the first of the next 624; in the window they are neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.cpu.products.parallel_functions import in_wholes
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule, host
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import ANY_ADDRESS, WORD

STATE_BYTES = 5056
"""How long a state of torch's is: seed, countdown, place, 624 words of 8 bytes, and what is kept of normal numbers."""
WIDTHS = (2, 4, 8)
"""Bytes of elements."""
_LENGTH = 624
_MIDDLE = 397
_BLOCKS = 8
_LANES = 16
_RANDOM_BITS = 53
_COUNTDOWN, _PLACE, _FIRST = 1, 2, 3
"""Where a state has its parts, in words of 8 bytes."""
_SEEDED = 1 << 32
"""A flag above the countdown, in the same word: the generator has a seed."""
_NUMBER = ir.IntType(32)


class TwisterWord(IntEnum):
    """The array of words that the functions take."""

    STATE_ADDRESS = 0
    RESULT_ADDRESS = 1
    ELEMENTS = 2
    """At least one."""
    THRESHOLD = 3
    ONE = 4
    """The bits of the number 1 in the result's type."""
    DRAWN = 5
    """Written by the function: how many elements it drew. If the state is unusual that is 0, and nothing changed."""


@dataclass(frozen=True, slots=True)
class CompiledTwister:
    """Addresses of functions that take an array of words."""

    code: Compiled
    draw: dict[int, int]
    """By the bytes of an element."""


@lru_cache(maxsize=1)
def compiled_twister(store: CodeStore | None = None) -> CompiledTwister:
    """Machine code for this processor."""
    code = Compiled(lambda: twister_module(host()), "random numbers", "draw", store, "random numbers")
    return CompiledTwister(code, {width: code.address(f"draw{width}") for width in WIDTHS})


def twister_module(host: Host) -> HostModule:
    """The functions as LLVM has them, for any processor."""
    module = HostModule(host)
    for width in WIDTHS:
        _DrawFunction(module, width).emit()
    return module


class _DrawFunction:
    """Writes the function that draws elements of some width."""

    def __init__(self, module: HostModule, width: int):
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), f"draw{width}")
        self.builder: Any = ir.IRBuilder(function)
        self.element = ir.IntType(8 * width)
        self.words = function.arguments[0]
        self.state = self.builder.inttoptr(self._word(TwisterWord.STATE_ADDRESS), ir.PointerType(WORD))
        self.result = self.builder.inttoptr(self._word(TwisterWord.RESULT_ADDRESS), ir.PointerType(self.element))
        self.elements, self.threshold = self._word(TwisterWord.ELEMENTS), self._word(TwisterWord.THRESHOLD)
        one = self._word(TwisterWord.ONE)
        self.one = one if self.element is WORD else self.builder.trunc(one, self.element)
        self.window = self.builder.alloca(_NUMBER, WORD(_LENGTH * (1 + _BLOCKS)), align=64)
        self.position, self.end, self.drawn = (self.builder.alloca(WORD) for _ in range(3))

    def emit(self) -> None:
        builder = self.builder
        builder.store(WORD(0), builder.gep(self.words, WORD(TwisterWord.DRAWN)))
        left = builder.sub(self._state_word(_COUNTDOWN), WORD(_SEEDED))
        with builder.if_then(self._is_usual(left)):
            self._load(left)
            self._emit_loop()
            self._save()
            builder.store(self.elements, builder.gep(self.words, WORD(TwisterWord.DRAWN)))
        builder.ret_void()

    def _is_usual(self, left: ir.Value) -> ir.Value:
        """Whether torch arrives at such a state: the countdown and the place in the words agree, or it is new."""
        builder, place = self.builder, self._state_word(_PLACE)
        is_possible = builder.icmp_unsigned("<", builder.sub(left, WORD(1)), WORD(_LENGTH))
        agrees = builder.icmp_signed("==", builder.add(left, place), WORD(_LENGTH + 1))
        is_last = builder.icmp_signed("==", left, WORD(1))
        is_new = builder.and_(is_last, builder.icmp_signed("==", place, WORD(0)))
        return builder.and_(is_possible, builder.or_(agrees, is_new))

    def _load(self, left: ir.Value) -> None:
        builder = self.builder
        with counted(builder, WORD(0), WORD(_LENGTH), runs=True) as at:
            word = builder.load(builder.gep(self.state, builder.add(at, WORD(_FIRST))), ANY_ADDRESS)
            builder.store(builder.trunc(word, _NUMBER), builder.gep(self.window, at))
        builder.store(builder.sub(WORD(_LENGTH + 1), left), self.position)
        builder.store(WORD(_LENGTH), self.end)
        builder.store(WORD(0), self.drawn)

    def _save(self) -> None:
        """The last words of the window: they begin where torch's would, because whole blocks were added to it."""
        builder = self.builder
        first = builder.sub(builder.load(self.end), WORD(_LENGTH))
        with counted(builder, WORD(0), WORD(_LENGTH), runs=True) as at:
            word = builder.zext(builder.load(builder.gep(self.window, builder.add(first, at))), WORD)
            builder.store(word, builder.gep(self.state, builder.add(at, WORD(_FIRST))), ANY_ADDRESS)
        place = builder.sub(builder.load(self.position), first)
        builder.store(place, builder.gep(self.state, WORD(_PLACE)), ANY_ADDRESS)
        left = builder.sub(WORD(_LENGTH + 1 + _SEEDED), place)
        builder.store(left, builder.gep(self.state, WORD(_COUNTDOWN)), ANY_ADDRESS)

    def _emit_loop(self) -> None:
        """Draw what the window holds, and slide it while elements are missing."""
        builder = self.builder
        drawing, sliding, after = (builder.append_block(name) for name in ("drawing", "sliding", "after"))
        builder.branch(drawing)
        builder.position_at_end(drawing)
        position, end, drawn = (builder.load(place) for place in (self.position, self.end, self.drawn))
        pairs = builder.lshr(builder.sub(end, position), WORD(1))
        count = minimum(builder, pairs, builder.sub(self.elements, drawn))
        self._draw(builder.gep(self.window, position), builder.gep(self.result, drawn), count)
        position = builder.add(position, builder.shl(count, WORD(1)))
        drawn = builder.add(drawn, count)
        builder.store(position, self.position)
        builder.store(drawn, self.drawn)
        missing = builder.sub(self.elements, drawn)
        builder.cbranch(builder.icmp_signed(">", missing, WORD(0)), sliding, after)
        builder.position_at_end(sliding)
        self._slide(position, end, builder.sub(builder.shl(missing, WORD(1)), builder.sub(end, position)))
        builder.branch(drawing)
        builder.position_at_end(after)

    def _slide(self, position: ir.Value, end: ir.Value, missing: ir.Value) -> None:
        """Begin the window with its last words, and add the blocks that hold the missing ones, as far as there is room.
        No block is added of which no word is drawn: torch computes blocks when it needs their first word."""
        builder, lanes = self.builder, ir.VectorType(_NUMBER, _LANES)
        first = builder.sub(end, WORD(_LENGTH))
        with counted(builder, WORD(0), WORD(_LENGTH), _LANES, runs=True) as at:
            kept = self._load_words(builder.add(first, at), lanes)
            builder.store(kept, self._place(at, lanes), 4)
        added = builder.mul(minimum(builder, in_wholes(builder, missing, _LENGTH), WORD(_BLOCKS)), WORD(_LENGTH))
        builder.store(builder.sub(position, first), self.position)
        builder.store(builder.add(added, WORD(_LENGTH)), self.end)
        with counted(builder, WORD(0), added, _LANES, runs=True) as at:
            word, following, far = (
                self._load_words(builder.add(at, WORD(distance)), lanes) for distance in (0, 1, _MIDDLE)
            )
            new = builder.xor(far, _mixed(builder, word, following))
            builder.store(new, self._place(builder.add(at, WORD(_LENGTH)), lanes), 4)

    def _draw(self, words: ir.Value, result: ir.Value, count: ir.Value) -> None:
        builder, at_once = self.builder, _LANES // 2
        whole = builder.and_(count, WORD(-at_once))
        for first, last, elements in ((WORD(0), whole, at_once), (whole, count, 1)):
            with counted(builder, first, last, elements) as at:
                self._draw_vector(builder.gep(words, builder.shl(at, WORD(1))), builder.gep(result, at), elements)

    def _draw_vector(self, words: ir.Value, result: ir.Value, elements: int) -> None:
        builder = self.builder
        pairs, ones = ir.VectorType(WORD, elements), ir.VectorType(self.element, elements)
        kind = ir.VectorType(_NUMBER, 2 * elements)
        loaded = builder.load(builder.bitcast(words, ir.PointerType(kind)), 4)
        drawn = builder.bitcast(_scrambled(builder, loaded), pairs)
        half = _same(pairs, 32)
        number = builder.or_(builder.shl(drawn, half), builder.lshr(drawn, half))  # the first word is the higher one
        bits = builder.and_(number, _same(pairs, (1 << _RANDOM_BITS) - 1))
        is_below = builder.icmp_unsigned("<", bits, self._spread(self.threshold, elements))
        value = builder.select(is_below, self._spread(self.one, elements), ir.Constant(ones, None))
        builder.store(value, builder.bitcast(result, ir.PointerType(ones)), ANY_ADDRESS)

    def _word(self, which: TwisterWord) -> ir.Value:
        return self.builder.load(self.builder.gep(self.words, WORD(which)))

    def _state_word(self, index: int) -> ir.Value:
        return self.builder.load(self.builder.gep(self.state, WORD(index)), ANY_ADDRESS)

    def _place(self, index: ir.Value, kind: ir.VectorType) -> ir.Value:
        return self.builder.bitcast(self.builder.gep(self.window, index), ir.PointerType(kind))

    def _load_words(self, index: ir.Value, kind: ir.VectorType) -> ir.Value:
        return self.builder.load(self._place(index, kind), 4)

    def _spread(self, value: ir.Value, count: int) -> ir.Value:
        kind = ir.VectorType(value.type, count)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, 0)
        return self.builder.shuffle_vector(first, first, [0] * count)


def _mixed(builder: Any, word: ir.Value, following: ir.Value) -> ir.Value:
    """The highest bit of a word and the others of the next, divided by x in the generator's field."""
    same = lambda number: _same(word.type, number)
    joined = builder.or_(builder.and_(word, same(1 << 31)), builder.and_(following, same((1 << 31) - 1)))
    is_odd = builder.icmp_signed("!=", builder.and_(following, same(1)), same(0))
    return builder.xor(builder.lshr(joined, same(1)), builder.select(is_odd, same(0x9908B0DF), same(0)))


def _scrambled(builder: Any, word: ir.Value) -> ir.Value:
    """What the generator gives out for a word of its sequence."""
    steps: tuple[tuple[Callable[..., ir.Value], int, int], ...] = (
        (builder.lshr, 11, 0xFFFFFFFF),
        (builder.shl, 7, 0x9D2C5680),
        (builder.shl, 15, 0xEFC60000),
        (builder.lshr, 18, 0xFFFFFFFF),
    )
    for shift, distance, mask in steps:
        moved = shift(word, _same(word.type, distance))
        word = builder.xor(word, builder.and_(moved, _same(word.type, mask)))
    return word


def _same(kind: ir.VectorType, number: int) -> ir.Constant:
    return ir.Constant(kind, [number] * kind.count)
