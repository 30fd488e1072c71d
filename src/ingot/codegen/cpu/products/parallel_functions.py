"""What products are given, what is computed at a time, and how threads share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ingot.codegen.cpu.common import REGION, declare
from ingot.codegen.cpu.frame import counted
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, HostModule
from ingot.codegen.llvm.instructions import Instructions
from ingot.codegen.llvm.storage import ANY_ADDRESS, BYTE_POINTER, WORD

FLOAT = ir.FloatType()
FLOAT_BYTES = 4
VECTORS = 2
"""Vectors of a panel's columns: each element of a row is multiplied with both."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """Results whose sums are in registers at the same time."""

    rows: int
    lanes: int

    @property
    def columns(self) -> int:
        """The columns of a tile, and of a panel."""
        return VECTORS * self.lanes

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(FLOAT, self.lanes)

    @classmethod
    def of(cls, host: Host) -> ProductTile:
        """The largest whose sums leave registers for a panel's vectors and an element of a row."""
        has_many_registers = host.vector_bits == 512 or not host.triple.startswith(("x86_64", "i686"))
        return cls(12 if has_many_registers else 6, host.vector_bits // (8 * FLOAT_BYTES))

    def panel_floats(self, columns: int, inner: int) -> int:
        """What the panels of a matrix take: the last one is filled up."""
        return -(-columns // self.columns) * self.columns * inner


class Writing:
    """Where code is being written, and the few things it is made of: places of floats and vectors of them."""

    def __init__(self, builder: Any, tile: ProductTile):
        self.builder = builder
        self.tile = tile

    def further(self, pointer: ir.Value, floats: ir.Value) -> ir.Value:
        """The place so many floats on."""
        return self.builder.gep(pointer, self.builder.mul(floats, WORD(FLOAT_BYTES)))

    def row(self, pointer: ir.Value, number: ir.Value, stride: ir.Value) -> ir.Value:
        """Where a row begins; strides are in bytes."""
        return self.builder.gep(pointer, self.builder.mul(number, stride))

    def load(self, place: ir.Value) -> ir.Value:
        """The vector at a place."""
        return self.builder.load(self.builder.bitcast(place, ir.PointerType(self.tile.vector)), ANY_ADDRESS)

    def store(self, vector: ir.Value, place: ir.Value) -> None:
        self.builder.store(vector, self.builder.bitcast(place, ir.PointerType(self.tile.vector)), ANY_ADDRESS)

    def load_single(self, place: ir.Value) -> ir.Value:
        return self.builder.load(self.builder.bitcast(place, ir.PointerType(FLOAT)), ANY_ADDRESS)

    def store_single(self, value: ir.Value, place: ir.Value) -> None:
        self.builder.store(value, self.builder.bitcast(place, ir.PointerType(FLOAT)), ANY_ADDRESS)

    def spread(self, element: ir.Value) -> ir.Value:
        """A vector of one number, of any type."""
        return Instructions(self.builder, self.tile.lanes).splat(element)

    def copy_singly(self, source: ir.Value, target: ir.Value, floats: ir.Value) -> None:
        with counted(self.builder, WORD(0), floats) as at:
            self.store_single(self.load_single(self.further(source, at)), self.further(target, at))


class ParallelFunction(Writing):
    """A function that threads run, over an array of words."""

    def __init__(self, module: HostModule, tile: ProductTile, name: str):
        self.module = module
        self.name = name
        self.function = ir.Function(module, REGION, f"{name}_region")
        self.function.is_internal = True
        super().__init__(ir.IRBuilder(self.function), tile)
        self._words = self.builder.bitcast(self.function.arguments[0], ir.PointerType(WORD))

    def word(self, which: int) -> ir.Value:
        return self.builder.load(self._place(which))

    def pointer(self, which: IntEnum) -> ir.Value:
        return self.builder.inttoptr(self.word(which), BYTE_POINTER)

    def count(self, which: IntEnum) -> ir.Value:
        """What a word was; it is one more from now on, for all threads."""
        return self.builder.atomic_add(self._place(which), WORD(1))

    def store_word(self, which: IntEnum, value: ir.Value) -> None:
        self.builder.store(value, self._place(which))

    def _place(self, which: int) -> ir.Value:
        return self.builder.gep(self._words, WORD(which))

    def finish(self, threads: IntEnum, grains_of: IntEnum | None = None, size: int = 1) -> None:
        """End the region, and write the entry: threads share as many grains as a word is over a size, rounded up, or
        have one each."""
        self.builder.ret_void()
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)])
        entry = ir.Function(self.module, kind, self.name)
        builder: Any = ir.IRBuilder(entry)
        words = entry.arguments[0]
        load = lambda which: builder.load(builder.gep(words, WORD(which)))
        grains = load(threads) if grains_of is None else in_wholes(builder, load(grains_of), size)
        context = builder.bitcast(words, BYTE_POINTER)
        builder.call(declare(self.module, "share"), [self.function, context, grains, load(threads)])
        builder.ret_void()


def in_wholes(builder: Any, count: ir.Value, size: int) -> ir.Value:
    """How many of a size it takes to hold so many."""
    return builder.udiv(builder.add(count, WORD(size - 1)), WORD(size))


def internal_function(module: HostModule, name: str, arguments: list[ir.Type]) -> ir.Function:
    """A function that others of the module call."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.is_internal = True
    function.attributes += " noinline"
    return function


@contextmanager
def each_task(region: ParallelFunction, counter: IntEnum, tasks: ir.Value) -> Iterator[ir.Value]:
    """`with each_task(...) as task:` writes what a thread does with each task that it takes; other threads take the
    other tasks."""
    builder = region.builder
    taking, working, done = (builder.append_block(name) for name in ("taking", "working", "done"))
    builder.branch(taking)
    builder.position_at_end(taking)
    task = region.count(counter)
    builder.cbranch(builder.icmp_signed("<", task, tasks), working, done)
    builder.position_at_end(working)
    yield task
    builder.branch(taking)
    builder.position_at_end(done)
