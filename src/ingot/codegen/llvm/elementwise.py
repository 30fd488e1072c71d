"""Pointwise kernels as LLVM: loops over strided memory with explicit vectors in the innermost one.

A compiled module has one entry point, `launch(arguments, count, grain, threads)`: it splits `count` units, in multiples
of the grain, among threads of torch's own OpenMP runtime and visits them. A unit is an element where there is one loop,
and otherwise a row of the innermost one.

Arguments are one array of 64-bit words:

    size of each loop, outermost first
    per buffer (outputs, then inputs): address, then its stride in bytes along each loop
    scalars, each in a word of its own
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ingot.base.dtypes import DataType
from ingot.codegen.llvm.host import Compiled, host, new_module
from ingot.codegen.llvm.instructions import Instructions, Value, memory_type, register_type
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.loops.elementwise import Argument, ElementwiseKernel, Known, Load, Motion, Operand, Schedule

WORD = ir.IntType(64)
BYTE_POINTER = ir.PointerType(ir.IntType(8))
LANES_BYTES = 64
"""Bytes a vector of the widest type takes: one AVX-512 register, two of AVX2, four of SSE or NEON."""
ANY_ADDRESS = 1
"""Alignment of what is read: a tensor may begin at any byte. Claiming more would be undefined behaviour."""
GRAIN_ELEMENTS = 64
"""Threads split a single loop at multiples of this, so that streaming stores stay aligned."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    kernel: ElementwiseKernel
    schedule: Schedule
    code: Compiled
    entry: int
    """Address of `launch`."""


def compile_kernel(kernel: ElementwiseKernel, schedule: Schedule) -> CompiledKernel:
    """Machine code for a kernel under a schedule."""
    module = new_module(f"kernel_{kernel.digest}")
    rows = _Emission(module, kernel, schedule).emit()
    _emit_launch(module, rows)
    code = Compiled(module)
    return CompiledKernel(kernel, schedule, code, code.address("launch"))


class _Emission:
    """Writes the function `rows(arguments, begin, end)`."""

    def __init__(self, module: ir.Module, kernel: ElementwiseKernel, schedule: Schedule):
        self.kernel = kernel
        self.schedule = schedule
        kind = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, WORD, WORD])
        self.function = ir.Function(module, kind, "rows")
        self.function.linkage = "internal"
        self.builder: Any = ir.IRBuilder(self.function.append_basic_block("entry"))
        widest = max(dtype.widened.bits for dtype in kernel.buffers) // 8
        functions = any(statement.op.name in FUNCTIONS for statement in kernel.statements)
        # Polynomials need registers for their terms: half as many elements at once then.
        budget = LANES_BYTES // 2 if functions and host().vector_bits < 512 else LANES_BYTES
        self.lanes = max(budget // widest, 2)

    def emit(self) -> ir.Function:
        builder, schedule = self.builder, self.schedule
        arguments = builder.bitcast(self.function.args[0], ir.PointerType(WORD))
        words = _Words(builder, arguments, self.kernel, schedule.loops)
        begin, end = self.function.args[1], self.function.args[2]
        scalars = [self._scalar(words.scalar(i), dtype) for i, dtype in enumerate(self.kernel.scalars)]
        if schedule.loops == 1:
            pointers = [words.address(buffer) for buffer in range(len(self.kernel.buffers))]
            self._row(words, pointers, begin, end, scalars)
        else:
            with _counted(builder, begin, end, WORD(1)) as row:
                pointers = self._row_pointers(words, row)
                self._row(words, pointers, WORD(0), words.size(schedule.loops - 1), scalars)
        builder.ret_void()
        return self.function

    def _row_pointers(self, words: _Words, row: ir.Value) -> list[ir.Value]:
        """Where each buffer's row begins: the row's number taken apart into one index per outer loop."""
        builder = self.builder
        offsets: list[ir.Value] = [WORD(0)] * len(self.kernel.buffers)
        remaining = row
        for loop in reversed(range(self.schedule.loops - 1)):
            if loop:
                index = builder.urem(remaining, words.size(loop))
                remaining = builder.udiv(remaining, words.size(loop))
            else:
                index = remaining
            for buffer in range(len(offsets)):
                offsets[buffer] = builder.add(offsets[buffer], builder.mul(index, words.stride(buffer, loop)))
        return [builder.gep(words.address(buffer), [offset]) for buffer, offset in enumerate(offsets)]

    def _row(
        self, words: _Words, pointers: list[ir.Value], begin: ir.Value, end: ir.Value, scalars: list[Value]
    ) -> None:
        """Elements begin to end of one row: vectors as long as they fit, then single elements."""
        builder = self.builder
        strides = [words.stride(buffer, self.schedule.loops - 1) for buffer in range(len(pointers))]
        still = {
            index: self._load_one(pointers[buffer], dtype)
            for buffer, index, dtype in self._loads()
            if self.schedule.motions[buffer] is Motion.STILL
        }
        step = WORD(self.lanes)
        whole = builder.sub(end, builder.urem(builder.sub(end, begin), step))
        for lanes, first, last in ((self.lanes, begin, whole), (1, whole, end)):
            outside = Instructions(builder, lanes)
            fixed = {index: Value(outside.splat(value.code), value.dtype) for index, value in still.items()}
            wide_scalars = [Value(outside.splat(value.code), value.dtype) for value in scalars]
            with _counted(builder, first, last, WORD(lanes)) as position:
                self._elements(Instructions(builder, lanes), pointers, strides, position, fixed, wide_scalars)

    def _loads(self):
        """Each input: its buffer number, its own number, its type."""
        for index, dtype in enumerate(self.kernel.inputs):
            yield len(self.kernel.outputs) + index, index, dtype

    def _elements(
        self,
        instructions: Instructions,
        pointers: list[ir.Value],
        strides: list[ir.Value],
        position: ir.Value,
        fixed: dict[int, Value],
        scalars: list[Value],
    ) -> None:
        loaded = dict(fixed)
        for buffer, index, dtype in self._loads():
            if index not in loaded:
                loaded[index] = self._load(instructions, pointers[buffer], strides[buffer], buffer, position, dtype)
        results: list[Value] = []

        def value_of(operand: Operand) -> Value:
            if isinstance(operand, Known):
                return instructions.literal(operand.value, operand.dtype)
            if isinstance(operand, Load):
                return loaded[operand.index]
            return scalars[operand.index] if isinstance(operand, Argument) else results[operand.index]

        for statement in self.kernel.statements:
            assert statement.op.emit is not None
            operands = map(value_of, statement.operands)
            results.append(statement.op.emit(instructions, *operands, **dict(statement.attributes)))
        for buffer, output in enumerate(self.kernel.outputs):
            self._store(instructions, pointers[buffer], position, results[output.index])

    # --- memory -------------------------------------------------------------------------------------------------------

    def _load_one(self, pointer: ir.Value, dtype: DataType) -> Value:
        typed = self.builder.bitcast(pointer, ir.PointerType(memory_type(dtype)))
        return self._in_register(Instructions(self.builder, 1), self.builder.load(typed, align=ANY_ADDRESS), dtype)

    def _load(
        self,
        instructions: Instructions,
        pointer: ir.Value,
        stride: ir.Value,
        buffer: int,
        position: ir.Value,
        dtype: DataType,
    ) -> Value:
        builder, element = self.builder, memory_type(dtype)
        if self.schedule.motions[buffer] is Motion.NEXT:
            address = builder.gep(pointer, [builder.mul(position, WORD(dtype.bytes))])
            typed = builder.bitcast(address, ir.PointerType(instructions.wide(element)))
            return self._in_register(instructions, builder.load(typed, align=ANY_ADDRESS), dtype)
        singles = []
        for lane in range(instructions.lanes):
            offset = builder.mul(builder.add(position, WORD(lane)), stride)
            typed = builder.bitcast(builder.gep(pointer, [offset]), ir.PointerType(element))
            singles.append(builder.load(typed, align=ANY_ADDRESS))
        if instructions.lanes == 1:
            return self._in_register(instructions, singles[0], dtype)
        gathered: ir.Value = ir.Constant(instructions.wide(element), ir.Undefined)
        for lane, single in enumerate(singles):
            gathered = builder.insert_element(gathered, single, ir.Constant(ir.IntType(32), lane))
        return self._in_register(instructions, gathered, dtype)

    def _in_register(self, instructions: Instructions, code: Any, dtype: DataType) -> Value:
        if dtype is DataType.Bool:
            zero = ir.Constant(code.type, None)
            return Value(self.builder.icmp_unsigned("!=", code, zero), dtype)
        return Value(code, dtype)

    def _store(self, instructions: Instructions, pointer: ir.Value, position: ir.Value, value: Value) -> None:
        """Results are new and dense: they always move to the next element."""
        builder, dtype = self.builder, value.dtype
        code = value.code
        if dtype is DataType.Bool:
            code = builder.zext(code, instructions.wide(memory_type(dtype)))
        address = builder.gep(pointer, [builder.mul(position, WORD(dtype.bytes))])
        typed = builder.bitcast(address, ir.PointerType(instructions.wide(memory_type(dtype))))
        streams = self.schedule.streaming and instructions.lanes > 1
        store = builder.store(code, typed, align=dtype.bytes * instructions.lanes if streams else dtype.bytes)
        if streams:
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))

    def _scalar(self, word: ir.Value, dtype: DataType) -> Value:
        """A number from its word: floats lie there as doubles, whole numbers as 64 bits."""
        builder = self.builder
        if dtype.is_float:
            number = Value(builder.bitcast(word, ir.DoubleType()), DataType.Double)
            return Instructions(builder, 1).convert(number, dtype)
        kind = register_type(dtype)
        return Value(word if kind == WORD else builder.trunc(word, kind), dtype)


class _Words:
    """The arguments of a call, read when they are needed; LLVM moves the reads out of loops."""

    def __init__(self, builder: Any, arguments: ir.Value, kernel: ElementwiseKernel, loops: int):
        self._builder = builder
        self._arguments = arguments
        self._loops = loops
        self._buffers = len(kernel.buffers)
        # Read all of them at once, before any store could seem to change them.
        count = loops + self._buffers * (loops + 1) + len(kernel.scalars)
        self._values = [builder.load(builder.gep(arguments, [WORD(i)])) for i in range(count)]

    def size(self, loop: int) -> ir.Value:
        return self._values[loop]

    def address(self, buffer: int) -> ir.Value:
        return self._builder.inttoptr(self._values[self._loops + buffer * (self._loops + 1)], BYTE_POINTER)

    def stride(self, buffer: int, loop: int) -> ir.Value:
        return self._values[self._loops + buffer * (self._loops + 1) + 1 + loop]

    def scalar(self, index: int) -> ir.Value:
        return self._values[self._loops + self._buffers * (self._loops + 1) + index]


class _counted:
    """`with _counted(builder, first, last, step) as i:` emits a loop; the builder is after it when the block ends."""

    def __init__(self, builder: Any, first: ir.Value, last: ir.Value, step: ir.Value):
        self._builder, self._last, self._step = builder, last, step
        before = builder.block
        self._body = builder.append_basic_block("body")
        self._after = builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", first, last), self._body, self._after)
        builder.position_at_end(self._body)
        self._index = builder.phi(WORD)
        self._index.add_incoming(first, before)

    def __enter__(self) -> ir.Value:
        return self._index

    def __exit__(self, *_: object) -> None:
        builder = self._builder
        following = builder.add(self._index, self._step)
        self._index.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, self._last), self._body, self._after)
        builder.position_at_end(self._after)


def _emit_launch(module: ir.Module, rows: ir.Function) -> None:
    """launch(arguments, count, threads): one thread directly, several through GOMP_parallel."""
    number = ir.IntType(32)
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTE_POINTER]), "work")
    work.linkage = "internal"
    thread_number = ir.Function(module, ir.FunctionType(number, []), "omp_get_thread_num")
    thread_count = ir.Function(module, ir.FunctionType(number, []), "omp_get_num_threads")
    builder: Any = ir.IRBuilder(work.append_basic_block("entry"))
    task = builder.bitcast(work.args[0], ir.PointerType(WORD))
    arguments = builder.inttoptr(builder.load(builder.gep(task, [WORD(0)])), BYTE_POINTER)
    count, grain = (builder.load(builder.gep(task, [WORD(i)])) for i in (1, 2))
    me, all_ = (builder.zext(builder.call(function, []), WORD) for function in (thread_number, thread_count))
    # Equal shares in whole grains; the last threads may have less or nothing.
    grains = builder.udiv(builder.add(count, builder.sub(grain, WORD(1))), grain)
    share = builder.mul(builder.udiv(builder.add(grains, builder.sub(all_, WORD(1))), all_), grain)
    begin = builder.mul(me, share)
    wanted = builder.add(begin, share)
    end = builder.select(builder.icmp_signed("<", wanted, count), wanted, count)
    builder.call(rows, [arguments, begin, end])
    builder.ret_void()

    kind = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, WORD, WORD, number])
    launch = ir.Function(module, kind, "launch")
    parallel_kind = ir.FunctionType(ir.VoidType(), [work.type, BYTE_POINTER, number, number])
    parallel = ir.Function(module, parallel_kind, "GOMP_parallel")
    builder = ir.IRBuilder(launch.append_basic_block("entry"))
    arguments, count, grain, threads = launch.args
    with builder.if_else(builder.icmp_unsigned("<=", threads, number(1))) as (alone, together):
        with alone:
            builder.call(rows, [arguments, WORD(0), count])
        with together:
            task = builder.alloca(WORD, size=3)
            for index, word in enumerate((builder.ptrtoint(arguments, WORD), count, grain)):
                builder.store(word, builder.gep(task, [WORD(index)]))
            builder.call(parallel, [work, builder.bitcast(task, BYTE_POINTER), threads, number(0)])
    builder.ret_void()
