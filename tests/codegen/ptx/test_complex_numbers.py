"""PTX of kernels on complex numbers: both parts are read and written together."""

from __future__ import annotations

from typing import Any

import pytest

from ingot import DataType, GraphBuilder
from ingot.codegen.ptx.accuracy import suited
from ingot.codegen.ptx.target import gpu
from ingot.loops.gpu.schedule import Grid, ThreadGroups, Tiles
from ingot.runtime.plan import Plan
from tests.codegen.ptx.fusions import SQUARES, Fusion


def test_complex_results_are_as_accurate_as_ever():
    """Only results of 16 bits may be computed roughly, and no double is contracted that reaches memory."""
    builder = GraphBuilder()
    x, z = builder.input((64, 64), DataType.BFloat16), builder.input((64, 64), DataType.ComplexDouble)
    builder.output(builder.ops.exp(x) * z)
    (kernel,) = Plan(builder.build()).kernels()
    host = suited(gpu((9, 0)), kernel.program)
    assert not kernel.program.is_of_halves and not host.approximates and not host.contracts_doubles


def _quotient(ops: Any, x: Any, y: Any) -> Any:
    return ops.exp(x) / y


def _magnitudes(ops: Any, x: Any) -> Any:
    return ops.sum(ops.abs(x * x), [1])


FUSIONS = {
    "product": Fusion(Grid, lambda ops, x, y: x * y + 1j, SQUARES, DataType.ComplexFloat),
    "quotient": Fusion(Grid, _quotient, SQUARES, DataType.ComplexFloat),
    "doubles": Fusion(Grid, lambda ops, x, y: x * y, SQUARES, DataType.ComplexDouble),
    "rows": Fusion(ThreadGroups, _magnitudes, ((512, 1024),), DataType.ComplexFloat),
    "transposed": Fusion(Tiles, lambda ops, x, y: x + y, SQUARES, DataType.ComplexFloat),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_parts_are_accessed_together(name: str):
    fusion = FUSIONS[name]
    kernel, call = fusion.kernel()
    assert isinstance(call.schedule, fusion.form)
    accesses = [line for line in kernel.ptx.splitlines() if "ld.global" in line or "st.global" in line]
    assert accesses
    if fusion.form is Grid:
        assert all(".v2.b64" in line or ".v4.b32" in line or ".v4.f32" in line for line in accesses)
