"""Writing native routines in Python: every value is a 64-bit word, and control flow is nested.

In: calls of the methods below, in the order the routine does them. Out: machine code that stays for the life of the
process. Pointers are words too. Loops and conditions are `with` blocks; a routine leaves them by returning. There are
no variables: what changes lives in memory, on the stack or elsewhere.

The routines are written as LLVM's text at once, and compiled with as little effort as LLVM offers: they are needed
before the first call can be answered, and better code saves a twentieth of a call for five times the wait.

Their text is the same in every process, so that machine code can be kept on disk: a number that is too large to be an
offset or a count, as every address of this process is, stands in a table beside the code, which is filled when the code
is loaded. Routines read it from there, which costs what a number inside an instruction does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import binding

from ingot.codegen.llvm.host import add_symbol, host, loaded, plain_code
from ingot.codegen.llvm.object_code import CodeSource, object_code
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.native.assembler.structs import WORD_BYTES, Struct

_RELATIONS = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word that a routine computes: its name in LLVM's text, or the text of a constant."""

    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds or does not, while a routine runs."""

    text: str


Value = Word | int


@dataclass(frozen=True, slots=True)
class Foreign:
    """A C function of this process: where it is, and how many bits its result has."""

    address: int
    result_bits: int = 64


@dataclass(frozen=True, slots=True)
class Catching:
    """The functions of the C++ library that catch an exception of C++."""

    begin: Foreign
    end: Foreign
    personality: int
    """The address of the personality function, which LLVM knows by its name."""


_PERSONALITY = "__gxx_personality_v0"

_TABLE, _TABLE_ADDRESS = "large_numbers", "large_numbers_address"
_LARGE = 1 << 16
"""Numbers from here on stand in the table. Addresses are larger, on every system; a smaller one that got into the text
would be part of what code is found by, so that no other process would find it."""


class _LargeNumbers:
    """The table of a library: numbers that may differ from process to process, each with its place."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def place(self, number: int) -> int:
        return self.places.setdefault(number, len(self.places))

    @property
    def text(self) -> list[str]:
        """The table, which code outside of the text writes to, and a function that tells where it is."""
        return [
            f"@{_TABLE} = dso_local global [{len(self.places)} x i64] zeroinitializer",
            f"define i64 @{_TABLE_ADDRESS}() {{\nret i64 ptrtoint (ptr @{_TABLE} to i64)\n}}",
        ]

    def fill(self, address: int) -> None:
        words = (ctypes.c_int64 * len(self.places)).from_address(address)
        for number, place in self.places.items():
            words[place] = number


class Library:
    """Routines that are compiled together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._memories: list[str] = []
        self._routines: list[Routine] = []
        self._numbers = _LargeNumbers()
        self._engine: binding.ExecutionEngine | None = None

    def routine(self, name: str, parameters: int) -> Routine:
        """A new routine of some words that returns a word."""
        self._routines.append(Routine(name, parameters, self._numbers))
        return self._routines[-1]

    def memory(self, name: str, words: int) -> Word:
        """The address of zeroed memory that lives as long as the routines."""
        self._memories.append(f"@{name} = internal global [{words} x i64] zeroinitializer")
        return Word(f"ptrtoint (ptr @{name} to i64)")

    @property
    def text(self) -> str:
        """The routines in LLVM's language, the same in every process."""
        intrinsics = ["declare i64 @llvm.ctlz.i64(i64, i1)", "declare i64 @llvm.readcyclecounter()"]
        declared = [*intrinsics, f"declare i32 @{_PERSONALITY}(...)", *self._memories]
        routines = [routine.text for routine in self._routines]
        return "\n".join([*declared, *routines, *self._numbers.text, "!0 = !{}"])

    def compile(self) -> None:
        """Make machine code of all routines. It is never thrown away: a tensor may outlive everything else in Python,
        and its memory goes back through here."""
        text, machine = self.text, host()
        source = CodeSource("native routines", self.name, text, machine, is_optimized=False)
        self._engine = loaded(object_code(source, process_functions(), lambda: plain_code(text, machine)))
        self._numbers.fill(ctypes.CFUNCTYPE(ctypes.c_int64)(self.address(_TABLE_ADDRESS))())
        make_immortal(self._engine)

    def address(self, name: str) -> int:
        assert self._engine is not None
        return self._engine.get_function_address(name)


class Routine:
    """One routine under construction."""

    def __init__(self, name: str, parameters: int, numbers: _LargeNumbers):
        self.name = name
        self._numbers = numbers
        self.parameters = tuple(Word(f"%p{position}") for position in range(parameters))
        self._lines: list[str] = []
        self._names = 0
        self._block = "start"
        self._has_ended = False
        self._catches = ""

    @property
    def text(self) -> str:
        declared = ", ".join(f"i64 {parameter.text}" for parameter in self.parameters)
        return "\n".join([f"define i64 @{self.name}({declared}){self._catches} {{", "start:", *self._lines, "}"])

    @property
    def address(self) -> Word:
        """Where the routine will be."""
        return Word(f"ptrtoint (ptr @{self.name} to i64)")

    # --- memory -------------------------------------------------------------------------------------------------------

    def load(self, address: Value, word: Value = 0) -> Word:
        """The word at an address, counted in words from it."""
        return self._word(f"load i64, ptr {self._pointer(address, word)}")

    def store(self, value: Value, address: Value, word: Value = 0) -> None:
        self._write(f"store i64 {self._text(value)}, ptr {self._pointer(address, word)}")

    def increase(self, amount: Value, address: Value, word: Value = 0) -> Word:
        """Add to a word in memory; the sum."""
        pointer = self._pointer(address, word)
        total = self.add(self._word(f"load i64, ptr {pointer}"), amount)
        self._write(f"store i64 {total.text}, ptr {pointer}")
        return total

    def stack(self, words: Value) -> Word:
        """The address of that many words, free until the routine returns."""
        return self._word(f"ptrtoint ptr {self._name(f'alloca i64, i64 {self._text(words)}')} to i64")

    def item(self, array: Value, index: Value, struct: type[Struct]) -> Word:
        """The address of one of the structs that lie side by side in an array."""
        return self.add(array, self.multiply(index, struct.words() * WORD_BYTES))

    def part(self, address: Value, word: Value) -> Word:
        """The address of a word, counted in words from another address."""
        distance = word * WORD_BYTES if isinstance(word, int) else self.multiply(word, WORD_BYTES)
        return self.add(address, distance)

    def fill(self, address: Value, struct: type[Struct], **values: Value) -> None:
        """Store all fields of a struct, each given by its name."""
        struct.check(values)
        for name, value in values.items():
            self.store(value, address, getattr(struct, name))

    def copy(self, source: Value, target: Value, struct: type[Struct]) -> None:
        """Store the words of one struct in another of the same kind."""
        for word in range(struct.words()):
            self.store(self.load(source, word), target, word)

    def exchange(self, address: Value, expected: int, value: int) -> Condition:
        """Replace a word if it is as expected, in one step; whether it was."""
        pointer = self._pointer(address, 0)
        pair = self._name(f"cmpxchg ptr {pointer}, i64 {expected}, i64 {value} acquire monotonic")
        return self._condition(f"extractvalue {{i64, i1}} {pair}, 1")

    def publish(self, value: int, address: Value) -> None:
        """Store a word after everything stored before it, as other threads see it."""
        self._write(f"store atomic i64 {value}, ptr {self._pointer(address, 0)} release, align {WORD_BYTES}")

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def add(self, left: Value, right: Value) -> Word:
        return self._word(f"add i64 {self._text(left)}, {self._text(right)}")

    def subtract(self, left: Value, right: Value) -> Word:
        return self._word(f"sub i64 {self._text(left)}, {self._text(right)}")

    def multiply(self, left: Value, right: Value) -> Word:
        return self._word(f"mul i64 {self._text(left)}, {self._text(right)}")

    def shift_left(self, value: Value, bits: Value) -> Word:
        return self._word(f"shl i64 {self._text(value)}, {self._text(bits)}")

    def shift_right(self, value: Value, bits: Value) -> Word:
        return self._word(f"lshr i64 {self._text(value)}, {self._text(bits)}")

    def common_bits(self, left: Value, right: Value) -> Word:
        return self._word(f"and i64 {self._text(left)}, {self._text(right)}")

    def united_bits(self, left: Value, right: Value) -> Word:
        return self._word(f"or i64 {self._text(left)}, {self._text(right)}")

    def differing_bits(self, left: Value, right: Value) -> Word:
        return self._word(f"xor i64 {self._text(left)}, {self._text(right)}")

    def leading_zeros(self, value: Value) -> Word:
        return self._word(f"call i64 @llvm.ctlz.i64(i64 {self._text(value)}, i1 false)")

    def to_double(self, value: Value) -> Word:
        """The bits of the double that is nearest to a signed word."""
        return self._word(f"bitcast double {self._name(f'sitofp i64 {self._text(value)} to double')} to i64")

    def cycles(self) -> Word:
        """The processor's counter of cycles. Only x86 lets every program read it."""
        return self._word("call i64 @llvm.readcyclecounter()")

    # --- conditions ---------------------------------------------------------------------------------------------------

    def compare(self, left: Value, relation: str, right: Value) -> Condition:
        """A condition on two signed words."""
        return self._condition(f"icmp {_RELATIONS[relation]} i64 {self._text(left)}, {self._text(right)}")

    def both(self, left: Condition, right: Condition) -> Condition:
        return self._condition(f"and i1 {left.text}, {right.text}")

    def either(self, left: Condition, right: Condition) -> Condition:
        return self._condition(f"or i1 {left.text}, {right.text}")

    def opposite(self, condition: Condition) -> Condition:
        return self._condition(f"xor i1 {condition.text}, true")

    def choose(self, condition: Condition, one: Value, other: Value) -> Word:
        return self._word(f"select i1 {condition.text}, i64 {self._text(one)}, i64 {self._text(other)}")

    # --- control ------------------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: Condition) -> Iterator[None]:
        """The block if a condition holds."""
        body, after = self._label(), self._label()
        self._write(f"br i1 {condition.text}, label %{body}, label %{after}")
        self._begin(body)
        yield
        self._go(after)
        self._begin(after)

    @contextmanager
    def loop(self, count: Value) -> Iterator[Word]:
        """The block for 0, 1, ... below a count."""
        head, body, step, after = (self._label() for _ in range(4))
        before, index, following = self._block, Word(f"%{head}.index"), f"%{head}.next"
        self._go(head)
        self._begin(head)
        self._write(f"{index.text} = phi i64 [0, %{before}], [{following}, %{step}]")
        more = self.compare(index, "<", count)
        self._write(f"br i1 {more.text}, label %{body}, label %{after}")
        self._begin(body)
        yield index
        self._go(step)
        self._begin(step)
        self._write(f"{following} = add i64 {index.text}, 1")
        self._go(head)
        self._begin(after)

    @contextmanager
    def forever(self) -> Iterator[None]:
        """The block again and again, until something in it returns."""
        body = self._label()
        self._go(body)
        self._begin(body)
        yield
        self._go(body)

    def give_back(self, value: Value = 0) -> None:
        """End the routine with a result."""
        self._write(f"ret i64 {self._text(value)}")
        self._has_ended = True

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, target: Routine | Foreign | Word, *arguments: Value) -> Word:
        """The result of another routine, of code at an address that the routine has computed, or of a C function of
        words. A result of fewer bits is widened to a word."""
        listed = ", ".join(f"i64 {self._text(argument)}" for argument in arguments)
        if isinstance(target, Routine):
            return self._word(f"call i64 @{target.name}({listed})")
        if isinstance(target, Word):
            return self._word(f"call i64 {self._pointer(target, 0)}({listed})")
        bits = target.result_bits
        result = self._name(f"call i{bits} {self._pointer(target.address, 0)}({listed})")
        return Word(result) if bits == 64 else self._word(f"zext i{bits} {result} to i64")

    def throws(self, catching: Catching, target: Foreign, *arguments: Value) -> Condition:
        """Call a C++ function of words that returns nothing; whether it threw an exception, which is dropped."""
        add_symbol(_PERSONALITY, catching.personality)
        self._catches = f" personality ptr @{_PERSONALITY}"
        listed = ", ".join(f"i64 {self._text(argument)}" for argument in arguments)
        before, thrown, after = self._block, self._label(), self._label()
        function = self._pointer(target.address, 0)
        self._write(f"invoke void {function}({listed}) to label %{after} unwind label %{thrown}")
        self._begin(thrown)
        caught = self._name("landingpad {ptr, i32} catch ptr null")
        exception = self._name(f"extractvalue {{ptr, i32}} {caught}, 0")
        self.call(catching.begin, self._word(f"ptrtoint ptr {exception} to i64"))
        self.call(catching.end)
        self._go(after)
        self._begin(after)
        return self._condition(f"phi i1 [false, %{before}], [true, %{thrown}]")

    def call_address(self, address: Word, argument: Value) -> None:
        """Call a C function of one word that returns nothing, at an address that the routine has computed."""
        self._write(f"call void {self._pointer(address, 0)}(i64 {self._text(argument)})")

    # --- text ---------------------------------------------------------------------------------------------------------

    def _text(self, value: Value) -> str:
        """A word as an operand; a large number is read from the table."""
        if not isinstance(value, int):
            return value.text
        if -_LARGE < value < _LARGE:
            return str(value)
        place = f"getelementptr (i64, ptr @{_TABLE}, i64 {self._numbers.place(value)})"
        return self._name(f"load i64, ptr {place}, !invariant.load !0")

    def _pointer(self, address: Value, word: Value) -> str:
        distance = word * WORD_BYTES if isinstance(word, int) else self.shift_left(word, 3)
        moved = address if distance == 0 else self.add(address, distance)
        return self._name(f"inttoptr i64 {self._text(moved)} to ptr")

    def _word(self, instruction: str) -> Word:
        return Word(self._name(instruction))

    def _condition(self, instruction: str) -> Condition:
        return Condition(self._name(instruction))

    def _name(self, instruction: str) -> str:
        """The name of what an instruction computes."""
        self._names += 1
        self._write(f"%v{self._names} = {instruction}")
        return f"%v{self._names}"

    def _write(self, line: str) -> None:
        self._lines.append(line)

    def _label(self) -> str:
        self._names += 1
        return f"b{self._names}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block, self._has_ended = label, False

    def _go(self, label: str) -> None:
        """Continue in another block, unless this one has returned."""
        if not self._has_ended:
            self._write(f"br label %{label}")


def make_immortal(thing: object) -> None:
    """Keep an object to the very end of the process, after Python itself has been taken down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
