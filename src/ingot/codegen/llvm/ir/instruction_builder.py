"""Writing instructions: every method appends a line where the builder is and gives the value that the line computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ingot.codegen.llvm.ir.blocks import BasicBlock, Function, Module, Phi
from ingot.codegen.llvm.ir.values import Constant, IntType, PointerType, Type, Undefined, Value, VectorType

_BIT, _BYTE = IntType(1), IntType(8)
_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "uno": "no"}


def _binary(operation: str) -> Callable[[IRBuilder, Any, Any], Value]:
    def write(self: IRBuilder, left: Value, right: Value) -> Value:
        return self._computed(left.type, f"{operation} {left.type.text} {left.reference}, {right.reference}")

    return write


def _cast(operation: str) -> Callable[[IRBuilder, Any, Any], Value]:
    def write(self: IRBuilder, value: Value, type: Type) -> Value:
        return self._computed(type, f"{operation} {value.type.text} {value.reference} to {type.text}")

    return write


class _Elsewhere:
    """Writing in another block for a while. A class, because a block made by `contextmanager` takes longer than writing
    a line."""

    __slots__ = ("_block", "_builder")

    def __init__(self, builder: IRBuilder, block: BasicBlock):
        self._builder, self._block = builder, block

    def __enter__(self) -> None:
        self._builder.block, self._block = self._block, self._builder.block

    def __exit__(self, *_: object) -> None:
        self._builder.block = self._block


class IRBuilder:
    """Writes at the end of a function, or wherever it is moved to."""

    def __init__(self, function: Function):
        self.function = function
        self.block = function.blocks[-1] if function.blocks else function.append_block("entry")

    @property
    def module(self) -> Module:
        return self.function.module

    def _computed(self, type: Any, expression: str) -> Value:
        """The value of an expression without effects, written unless this block has it already."""
        known = self.block.known
        found = known.get(expression)
        if found is None:
            found = known[expression] = self._assigned(type, expression)
        return found

    def _assigned(self, type: Any, expression: str) -> Value:
        name = next(self.function.names)
        self.block.lines.append(f"  {name} = {expression}")
        return Value(type, name)

    # --- places -------------------------------------------------------------------------------------------------------

    def append_block(self, name: str = "block") -> BasicBlock:
        return self.function.append_block(name)

    def position_at_end(self, block: BasicBlock) -> None:
        self.block = block

    def at_entry(self) -> _Elsewhere:
        """Write at the end of the function's first block."""
        return _Elsewhere(self, self.function.blocks[0])

    # --- control ------------------------------------------------------------------------------------------------------

    def branch(self, target: BasicBlock) -> None:
        self.block.end = f"  br label %{target.name}"

    def cbranch(self, condition: Value, yes: BasicBlock, no: BasicBlock, odds: tuple[int, int] | None = None) -> None:
        """Go one way or the other; the odds tell LLVM which is rare."""
        weights = ""
        if odds is not None:
            name = self.module.metadata(f'!"branch_weights", i32 {odds[0]}, i32 {odds[1]}')
            weights = f", !prof {name}"
        self.block.end = f"  br i1 {condition.reference}, label %{yes.name}, label %{no.name}{weights}"

    def repeat(self, condition: Value, body: BasicBlock, after: BasicBlock) -> None:
        """Go back to where a loop begins, or on. It stays as it is: LLVM does not unroll it."""
        self.cbranch(condition, body, after)
        self.block.end += f", !llvm.loop {self.module.rolled_up_loop()}"

    def ret(self, value: Value) -> None:
        self.block.end = f"  ret {value.type.text} {value.reference}"

    def ret_void(self) -> None:
        self.block.end = "  ret void"

    @contextmanager
    def if_then(self, condition: Value, odds: tuple[int, int] | None = None) -> Iterator[None]:
        yes, after = self.append_block("then"), self.append_block("after")
        self.cbranch(condition, yes, after, odds)
        self.block = yes
        yield
        self.branch(after)
        self.block = after

    def phi(self, type: Type) -> Phi:
        value = Phi(type, next(self.function.names))
        self.block.lines.append(value)
        return value

    def call(self, function: Value, arguments: Sequence[Value], is_pure: bool = False) -> Value:
        """`is_pure` says that a result depends on the arguments alone, and is all that comes of a call."""
        given = ", ".join([f"{argument.type.text} {argument.reference}" for argument in arguments])
        result = function.type.pointee.result
        expression = f"call {result.text} {function.reference}({given})"
        if result.text == "void":
            self.block.lines.append(f"  {expression}")
            return Value(result, "")
        return self._computed(result, expression) if is_pure else self._assigned(result, expression)

    def assembly(self, text: str, constraints: str, result: Type, operands: Sequence[Value]) -> Value:
        """An instruction of the processor's own that touches nothing but registers, as its assembly language has it."""
        given = ", ".join([f"{operand.type.text} {operand.reference}" for operand in operands])
        called = f'call {result.text} asm "{text}", "{constraints}"({given}) memory(none)'
        return self._computed(result, called)

    # --- memory -------------------------------------------------------------------------------------------------------

    def alloca(self, type: Type, size: Value | None = None, align: int | None = None) -> Value:
        count = "" if size is None else f", {size.type.text} {size.reference}"
        return self._assigned(PointerType(type), f"alloca {type.text}{count}{_aligned(align)}")

    def load(self, pointer: Value, align: int | None = None) -> Value:
        type = pointer.type.pointee
        return self._assigned(type, f"load {type.text}, {pointer.type.text} {pointer.reference}{_aligned(align)}")

    def store(self, value: Value, pointer: Value, align: int | None = None, streams: bool = False) -> None:
        """`streams` writes past the caches."""
        how = f", !nontemporal {self.module.metadata('i32 1')}" if streams else ""
        stored = f"{value.type.text} {value.reference}"
        self.block.lines.append(f"  store {stored}, {pointer.type.text} {pointer.reference}{_aligned(align)}{how}")

    def gep(self, pointer: Value, index: Value) -> Value:
        """So many elements further on."""
        element, place = pointer.type.pointee.text, f"{pointer.type.text} {pointer.reference}"
        return self._computed(pointer.type, f"getelementptr {element}, {place}, {index.type.text} {index.reference}")

    def atomic_add(self, pointer: Value, value: Value) -> Value:
        """Add to what threads share; what was there before."""
        what = f"{pointer.type.text} {pointer.reference}, {value.type.text} {value.reference}"
        return self._assigned(value.type, f"atomicrmw add {what} monotonic")

    def atomic_count(self, pointer: Value, last: Value) -> Value:
        """Add 1 to what the threads of a GPU share, or after so many times begin at 0 again; what was there before."""
        what = f"{pointer.type.text} {pointer.reference}, {last.type.text} {last.reference}"
        return self._assigned(last.type, f'atomicrmw uinc_wrap {what} syncscope("device") monotonic')

    def device_fence(self) -> None:
        """What was written and read before is before what is written and read after, for all threads of a GPU."""
        self.block.lines.append('  fence syncscope("device") acq_rel')

    def fence(self) -> None:
        """What was written before is seen before what is written after."""
        self.block.lines.append("  fence seq_cst")

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    udiv, sdiv, urem, srem = _binary("udiv"), _binary("sdiv"), _binary("urem"), _binary("srem")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    fadd, fsub, fmul, fdiv = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")
    contracted_fadd, contracted_fmul = _binary("fadd contract"), _binary("fmul contract")

    def neg(self, value: Value) -> Value:
        return self.sub(Constant(value.type, None), value)

    def fneg(self, value: Value) -> Value:
        return self._computed(value.type, f"fneg {value.type.text} {value.reference}")

    def not_(self, value: Value) -> Value:
        ones = f"splat ({value.type.element.text} -1)" if isinstance(value.type, VectorType) else "-1"
        return self.xor(value, Value(value.type, ones))

    # --- comparisons and choices --------------------------------------------------------------------------------------

    def icmp_signed(self, relation: str, left: Value, right: Value) -> Value:
        sign = "" if relation in ("==", "!=") else "s"
        return self._compared(f"icmp {sign}{_RELATIONS[relation]}", left, right)

    def icmp_unsigned(self, relation: str, left: Value, right: Value) -> Value:
        sign = "" if relation in ("==", "!=") else "u"
        return self._compared(f"icmp {sign}{_RELATIONS[relation]}", left, right)

    def fcmp_ordered(self, relation: str, left: Value, right: Value) -> Value:
        """False where one of them is NaN."""
        return self._compared(f"fcmp o{_RELATIONS[relation]}", left, right)

    def fcmp_unordered(self, relation: str, left: Value, right: Value) -> Value:
        """True where one of them is NaN."""
        return self._compared(f"fcmp u{_RELATIONS[relation]}", left, right)

    def _compared(self, how: str, left: Value, right: Value) -> Value:
        kind = VectorType(_BIT, left.type.count) if isinstance(left.type, VectorType) else _BIT
        return self._computed(kind, f"{how} {left.type.text} {left.reference}, {right.reference}")

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if self.module.chooses_bytes_singly and isinstance(condition.type, VectorType) and yes.type.element is _BYTE:
            return self._selected_singly(condition, yes, no)
        of = f"{condition.type.text} {condition.reference}"
        both = f"{yes.type.text} {yes.reference}, {no.type.text} {no.reference}"
        return self._computed(yes.type, f"select {of}, {both}")

    def _selected_singly(self, condition: Value, yes: Value, no: Value) -> Value:
        result: Value = Constant(yes.type, Undefined)
        for lane in range(yes.type.count):
            chosen = self.select(*(self.extract_element(vector, lane) for vector in (condition, yes, no)))
            result = self.insert_element(result, chosen, lane)
        return result

    # --- conversions --------------------------------------------------------------------------------------------------

    trunc, zext, sext = _cast("trunc"), _cast("zext"), _cast("sext")
    fptrunc, fpext, fptosi = _cast("fptrunc"), _cast("fpext"), _cast("fptosi")
    sitofp, uitofp = _cast("sitofp"), _cast("uitofp")
    ptrtoint = _cast("ptrtoint")
    _bitcast, _inttoptr = _cast("bitcast"), _cast("inttoptr")

    def bitcast(self, value: Value, type: Type) -> Value:
        """The same bits as another type; nothing is written for pointers, which are all alike in the text."""
        return Value(type, value.reference) if isinstance(type, PointerType) else self._bitcast(value, type)

    def inttoptr(self, value: Value, type: PointerType) -> Value:
        return self.bitcast(self._inttoptr(value, type), type)

    # --- lanes --------------------------------------------------------------------------------------------------------

    def insert_element(self, vector: Value, value: Value, lane: int) -> Value:
        given = f"{vector.type.text} {vector.reference}, {value.type.text} {value.reference}"
        return self._computed(vector.type, f"insertelement {given}, i32 {lane}")

    def extract_element(self, vector: Value, lane: int) -> Value:
        expression = f"extractelement {vector.type.text} {vector.reference}, i32 {lane}"
        return self._computed(vector.type.element, expression)

    def shuffle_vector(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors, those of the second counted on from those of the first."""
        kind, text = VectorType(first.type.element, len(lanes)), first.type.text
        mask = Constant(VectorType(IntType(32), len(lanes)), lanes if any(lanes) else None)
        given = f"{text} {first.reference}, {text} {second.reference}"
        return self._computed(kind, f"shufflevector {given}, {mask.type.text} {mask.reference}")


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
