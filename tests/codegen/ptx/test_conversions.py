"""Conversions in PTX: half types by two, whole numbers by the instruction that PyTorch's own kernels use."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from ingot import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, HostModule
from ingot.codegen.llvm.instructions import Instructions, Value, register_type
from ingot.codegen.ptx.target import gpu, ptx_of
from tests.codegen.ptx.function_kernels import assembled


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
    single = instructions.convert(Value(builder.load(source), given), DataType.Float)
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


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs NVIDIA's assembler")
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)])
def test_conversions_assemble(capability: tuple[int, int], tmp_path):
    host = gpu(capability)
    types = DataType.BFloat16, DataType.Half, DataType.Int, DataType.UInt8
    for result in types:
        for lanes in (1, 8):
            assert assembled(converting(types[0], result, lanes, host), host.name, tmp_path) == ""
