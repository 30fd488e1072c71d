"""validate raises no false alarm for any operator of the table, alone, on its own samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot import DataType, FusionDefinition, IngotError
from ingot.frontend.fusion_definition.defined_values import FusionVector
from ingot.ops import Op, table
from ingot.ops.samples import Sample
from tests.ops import generation

PUBLIC = [op for op in table().values() if op.is_public]
DTYPES = (DataType.Float, DataType.BFloat16, DataType.Int, DataType.ComplexFloat)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def defined(op: Op, sample: Sample) -> FusionDefinition | None:
    """A fusion of one call; None where the operator does not take these operands."""
    try:
        with FusionDefinition() as fd:
            call = generation.replace(sample, torch.Tensor, lambda tensor: fd.from_pytorch(tensor, static_sizes=True))
            result: Any = fd.call(op.name, call.arguments, call.keywords)
            values = list(result) if isinstance(result, FusionVector | tuple) else [result]
            for value in values:
                fd.add_output(value)
    except IngotError:
        return None
    return fd


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_results_of_one_call_are_right(op: Op):
    assert op.samples is not None
    for shape in ((3, 4), (2, 3, 5), (33,), ()):
        for sample in op.samples(shape)[:4]:
            for dtype in DTYPES if generation.depends_on_dtype(sample) else DTYPES[:1]:
                filled = generation.with_tensors(sample, dtype)
                fd = defined(op, filled)
                if fd is None or (op.name == "lerp" and not dtype.is_float):
                    continue  # PyTorch has no lerp of integers to compare with
                fd.validate(generation.found_in(filled, torch.Tensor))
