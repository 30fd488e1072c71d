"""Conversions in PTX: half types by two, whole numbers by the instruction that PyTorch's own kernels use."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
from typing import Any

import numpy
import pytest

from ingot import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule
from ingot.codegen.llvm.instructions import Instructions, TypedValue, register_type
from ingot.codegen.ptx.target import gpu, ptx_of
from tests.codegen.ptx.math.function_kernels import assembled
from tests.codegen.ptx.math.simulated import ACCURATE


def converting(given: DataType, result: DataType, lanes: int, host: Host) -> str:
    """PTX of a kernel that reads numbers, adds them to themselves in float32 and writes them as another type."""
    module = HostModule(host)
    shaped = lambda dtype: Instructions(builder, lanes).wide(register_type(dtype))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(ir.IntType(64))]), "kernel")
    function.make_kernel("[2 x i64]", 32)
    builder: Any = ir.IRBuilder(function)
    places = (builder.load(builder.gep(function.arguments[0], ir.IntType(64)(index))) for index in range(2))
    source, target = (
        builder.inttoptr(place, ir.PointerType(shaped(dtype), 1))
        for place, dtype in zip(places, (given, result), strict=True)
    )
    instructions = Instructions(builder, lanes)
    single = instructions.convert(TypedValue(builder.load(source), given), DataType.Float)
    total = instructions.add(single, single)
    builder.store(instructions.convert(total, result).code, target)
    builder.ret_void()
    return ptx_of(str(module), host)


@pytest.mark.parametrize(("half", "kind"), [(DataType.BFloat16, "bf16"), (DataType.Half, "f16")])
def test_eight_halves_take_one_access_and_four_roundings(half: DataType, kind: str):
    ptx = converting(half, half, 8, gpu((9, 0)))
    assert ptx.count("ld.global.v4.b32") == ptx.count("st.global.v4.b32") == 1
    assert ptx.count(f"cvt.rn.{kind}x2.f32") == 4


def test_words_of_bfloat16_are_taken_apart_by_one_instruction_each():
    ptx = converting(DataType.BFloat16, DataType.Float, 8, gpu((9, 0)))
    assert ptx.count("shl.b32") == ptx.count("and.b32") == 4
    assert "cvt" not in ptx


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        (DataType.Int, "cvt.rzi.s64.f32"),
        (DataType.Int32, "cvt.rzi.s32.f32"),
        (DataType.Int8, "cvt.rzi.s32.f32"),
        (DataType.UInt8, "cvt.rzi.s64.f32"),
    ],
)
def test_whole_numbers_are_what_the_instruction_makes_of_them(dtype: DataType, instruction: str):
    ptx = converting(DataType.Float, dtype, 4, gpu((9, 0)))
    assert ptx.count(instruction) == 4
    assert "setp" not in ptx


@pytest.mark.parametrize("dtype", [DataType.UInt8, DataType.Int8, DataType.Int16])
def test_small_whole_numbers_are_put_into_float32(dtype: DataType):
    ptx = converting(dtype, DataType.Float, 4, gpu((9, 0)))
    assert "cvt.rn" not in ptx
    if dtype.bits == 8:
        assert len(re.findall(r"prmt.b32 .*;", ptx)) == 4
    assert ("xor.b32" in ptx) == dtype.is_signed


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("kind", [numpy.uint8, numpy.int8, numpy.int16])
def test_all_small_whole_numbers_become_themselves(kind: Any, lanes: int):
    """By the method of a GPU, on this processor."""
    dtype = {numpy.uint8: DataType.UInt8, numpy.int8: DataType.Int8, numpy.int16: DataType.Int16}[kind]
    module = HostModule(ACCURATE)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(ir.IntType(64))] * 2), "convert")
    builder: Any = ir.IRBuilder(function)
    instructions = Instructions(builder, lanes)
    given, result = (instructions.wide(register_type(each)) for each in (dtype, DataType.Float))
    source, target = function.arguments
    numbers = TypedValue(builder.load(builder.bitcast(source, ir.PointerType(given)), align=1), dtype)
    converted = instructions.convert(numbers, DataType.Float).code
    builder.store(converted, builder.bitcast(target, ir.PointerType(result)), align=4)
    builder.ret_void()
    compiled = Compiled(lambda: module)
    convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(compiled.address("convert"))
    all_of_them = numpy.arange(numpy.iinfo(kind).min, numpy.iinfo(kind).max + 1).astype(kind)
    results = numpy.empty(all_of_them.size, numpy.float32)
    for start in range(0, all_of_them.size, lanes):
        convert(all_of_them[start:].ctypes.data, results[start:].ctypes.data)
    assert numpy.array_equal(results, all_of_them)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs NVIDIA's assembler")
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)])
def test_conversions_assemble(capability: tuple[int, int], tmp_path):
    host = gpu(capability)
    types = DataType.BFloat16, DataType.Half, DataType.Int, DataType.UInt8
    for given, result in itertools.product((DataType.BFloat16, DataType.Int8), types):
        for lanes in (1, 8):
            assert assembled(converting(given, result, lanes, host), host.name, tmp_path) == ""
