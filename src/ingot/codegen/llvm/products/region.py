"""What products are given, what is computed at a time, and how threads come to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.common import REGION, declare
from ingot.codegen.llvm.frame import BYTE_POINTER, WORD
from ingot.codegen.llvm.host import Host, HostModule

FLOAT = ir.FloatType()
FLOAT_BYTES = 4
VECTORS = 2
"""Of a panel's columns: each element of a row is multiplied with both."""


class Word(IntEnum):
    """The array of words that `pack` and `multiply` take; strides are in bytes."""

    ROWS_ADDRESS = 0
    ROWS_STRIDE = 1
    PANELS_ADDRESS = 2
    BIAS_ADDRESS = 3
    """0 where there is none."""
    RESULTS_ADDRESS = 4
    RESULTS_STRIDE = 5
    WEIGHTS_ADDRESS = 6
    WEIGHTS_STRIDE = 7
    ROWS = 8
    COLUMNS = 9
    INNER = 10
    THREADS = 11
    NEXT_TASK = 12
    """0 at the start."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Results whose sums are in registers at the same time."""

    rows: int
    lanes: int

    @property
    def columns(self) -> int:
        """Those of a panel, too."""
        return VECTORS * self.lanes

    @classmethod
    def of(cls, host: Host) -> Tile:
        """The largest whose sums leave registers for a panel's vectors and an element of a row."""
        has_many_registers = host.vector_bits == 512 or not host.triple.startswith(("x86_64", "i686"))
        return cls(12 if has_many_registers else 6, host.vector_bits // (8 * FLOAT_BYTES))

    def panel_floats(self, columns: int, inner: int) -> int:
        """What the panels of weights take: the last one is filled up."""
        return -(-columns // self.columns) * self.columns * inner


class Region:
    """A function that threads run, over the array of words; and where it is being written."""

    def __init__(self, module: HostModule, name: str):
        self.module = module
        self.name = name
        self.function = ir.Function(module, REGION, f"{name}_region")
        self.function.is_internal = True
        self.builder: Any = ir.IRBuilder(self.function)
        self._words = self.builder.bitcast(self.function.arguments[0], ir.PointerType(WORD))

    def place(self, which: Word) -> ir.Value:
        return self.builder.gep(self._words, WORD(which))

    def word(self, which: Word) -> ir.Value:
        return self.builder.load(self.place(which))

    def pointer(self, which: Word) -> ir.Value:
        return self.builder.inttoptr(self.word(which), BYTE_POINTER)

    def further(self, pointer: ir.Value, floats: ir.Value) -> ir.Value:
        """The place so many floats on."""
        return self.builder.gep(pointer, self.builder.mul(floats, WORD(FLOAT_BYTES)))

    def finish(self, grains_of: Word, size: int = 1) -> None:
        """End the region, and write the entry that has threads share so many grains: a word over a size, rounded up."""
        self.builder.ret_void()
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)])
        entry = ir.Function(self.module, kind, self.name)
        builder: Any = ir.IRBuilder(entry)
        words = entry.arguments[0]
        counted, threads = (builder.load(builder.gep(words, WORD(which))) for which in (grains_of, Word.THREADS))
        share = declare(self.module, "share")
        context = builder.bitcast(words, BYTE_POINTER)
        builder.call(share, [self.function, context, in_wholes(builder, counted, size), threads])
        builder.ret_void()


def in_wholes(builder: Any, count: ir.Value, size: int) -> ir.Value:
    """How many of a size it takes to hold so many."""
    return builder.udiv(builder.add(count, WORD(size - 1)), WORD(size))
