"""Which threads are given few registers, so that there is room for many of them."""

from __future__ import annotations

from dataclasses import replace

from ingot import DataType
from ingot.codegen.ptx.registers import FEW_REGISTERS, most_registers
from tests.codegen.ptx.fusions import FUSIONS, Fusion

LAYER_NORM = FUSIONS["layer_norm_half"]


def registers(fusion: Fusion) -> int | None:
    kernel, call = fusion.kernel()
    most = most_registers(kernel.nest, call.schedule)
    assert (".maxnreg" in kernel.ptx) == (most is not None), "what is decided is what the assembler is told"
    return most


def test_blocks_that_keep_little_of_a_row_leave_room_for_others():
    assert registers(LAYER_NORM) == FEW_REGISTERS


def test_blocks_that_keep_more_of_a_row_have_registers_for_it():
    assert registers(replace(LAYER_NORM, dtype=DataType.Float)) is None


def test_functions_of_elements_have_the_registers_they_need():
    assert registers(replace(LAYER_NORM, body=lambda ops, *given: ops.sin(LAYER_NORM.body(ops, *given)))) is None


def test_functions_of_rows_leave_room_for_others():
    shapes = ((64, 8192),)
    assert registers(Fusion(LAYER_NORM.form, lambda ops, x: ops.sin(ops.sum(x, [1])), shapes)) == FEW_REGISTERS


def test_rows_that_a_warp_has_to_itself_wait_at_no_barrier():
    assert registers(FUSIONS["layer_norm"]) is None
