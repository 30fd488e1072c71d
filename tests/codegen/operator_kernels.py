"""Small compiled loops around one operator's own emission, called on numpy arrays."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.ops import Op

ARRAYS = {
    DataType.Bool: numpy.bool_,
    DataType.UInt8: numpy.uint8,
    DataType.Int8: numpy.int8,
    DataType.Int16: numpy.int16,
    DataType.Int32: numpy.int32,
    DataType.Int: numpy.int64,
    DataType.Half: numpy.float16,
    DataType.BFloat16: numpy.uint16,  # as bits
    DataType.Float: numpy.float32,
    DataType.Double: numpy.float64,
}
INDEX = ir.IntType(64)


class OperatorModule:
    """void kernel(inputs..., output, count): whole vectors only. A known number takes the place of the last input."""

    def __init__(
        self,
        op: Op,
        dtypes: tuple[DataType, ...],
        host: Host,
        lanes: int,
        known: Number | None = None,
        **attributes: Any,
    ):
        self.module = HostModule(host)
        inputs = len(dtypes) - (known is not None)
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(ir.IntType(8))] * (inputs + 1) + [INDEX])
        function = ir.Function(self.module, kind, "kernel")
        self._builder: Any = ir.IRBuilder(function)
        self._instructions = Instructions(self._builder, lanes)
        before, body, after = self._builder.block, *(function.append_block() for _ in range(2))
        self._builder.branch(body)
        self._builder.position_at_end(body)
        position = self._builder.phi(INDEX)
        position.add_incoming(INDEX(0), before)
        operands = [self._load(function.arguments[i], position, dtypes[i]) for i in range(inputs)]
        if known is not None:
            operands.append(self._instructions.literal(known, dtypes[-1]))
        assert op.emit is not None
        self.result: TypedValue = op.emit(self._instructions, *operands, **attributes)
        self._store(function.arguments[inputs], position)
        following = self._builder.add(position, INDEX(lanes))
        position.add_incoming(following, self._builder.block)
        self._builder.cbranch(self._builder.icmp_signed("<", following, function.arguments[-1]), body, after)
        self._builder.position_at_end(after)
        self._builder.ret_void()

    def _place(self, base: Any, position: Any, dtype: DataType) -> Any:
        return self._builder.gep(self._builder.bitcast(base, ir.PointerType(memory_type(dtype))), position)

    def _load(self, base: Any, position: Any, dtype: DataType) -> TypedValue:
        kind = self._instructions.wide(memory_type(dtype))
        place = self._builder.bitcast(self._place(base, position, dtype), ir.PointerType(kind))
        code = self._builder.load(place, align=1)
        value = TypedValue(code, DataType.UInt8 if dtype is DataType.Bool else dtype)
        return self._instructions.convert(value, dtype)

    def _store(self, base: Any, position: Any) -> None:
        dtype = self.result.dtype
        stored = self._instructions.convert(self.result, DataType.UInt8) if dtype is DataType.Bool else self.result
        self._builder.store(stored.code, self._place(base, position, dtype), align=1)


@cache
def _compiled(
    op: Op, dtypes: tuple[DataType, ...], host: Host, lanes: int, known: Number | None, attributes: tuple[Any, ...]
) -> tuple[Compiled, Any, DataType]:
    kernel = OperatorModule(op, dtypes, host, lanes, known, **dict(attributes))
    code = Compiled(lambda: kernel.module)
    count = len(dtypes) + (known is None)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)
    return code, kind(code.address("kernel")), kernel.result.dtype


def evaluate_operator(
    op: Op,
    dtypes: tuple[DataType, ...],
    *inputs: numpy.ndarray,
    host: Host,
    lanes: int,
    known: Number | None = None,
    **attributes: Any,
) -> numpy.ndarray:
    """The operator over arrays whose length is a multiple of the lanes."""
    assert all(array.size % lanes == 0 for array in inputs)
    _, kernel, result = _compiled(op, dtypes, host, lanes, known, tuple(attributes.items()))
    arrays = [numpy.ascontiguousarray(array, ARRAYS[dtype]) for array, dtype in zip(inputs, dtypes, strict=False)]
    output = numpy.empty(inputs[0].size, ARRAYS[result])
    kernel(*(array.ctypes.data for array in arrays), output.ctypes.data, output.size)
    return output
