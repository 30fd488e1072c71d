"""repr(fd) executed as Python defines the same fusion, for every operator of the table."""

import pytest
import torch

from ingot import DataType, FusionDefinition
from ingot.base.dtypes import COMPUTED, in_order
from ingot.base.errors import IngotError
from ingot.frontend.fusion_definition.defined_values import FusionValue, FusionVector
from ingot.ops import table
from ingot.ops.samples import Operand

SHAPES = [(3, 4), (2, 3, 5), (7,), ()]
PUBLIC = [op for op in table().values() if op.is_public]


def define_sample(op, sample, dtype):
    """A fusion that is one sample call of an operator; symbolic sizes wherever the sample allows them."""

    def materialise(fd, value):
        if isinstance(value, Operand):
            return fd.define_tensor(shape=list(value.shape), dtype=value.dtype or dtype)
        if isinstance(value, list):
            return [materialise(fd, element) for element in value]
        return value

    with FusionDefinition() as fd:
        arguments = [materialise(fd, argument) for argument in sample.arguments]
        keywords = {name: materialise(fd, value) for name, value in sample.keywords.items()}
        results = getattr(fd.ops, op.name)(*arguments, **keywords)
        for result in results if isinstance(results, tuple) else (results,):
            if isinstance(result, FusionVector):
                result = result[0] if len(result) else fd.define_scalar(0)
            assert isinstance(result, FusionValue)
            fd.add_output(result)
    return fd


def rebuilt(fd):
    scope = {"FusionDefinition": FusionDefinition, "DataType": DataType, "torch": torch}
    exec(repr(fd), scope)
    with FusionDefinition() as again:
        scope["nvfuser_fusion"](again)
    return again


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_printed_definition_has_the_same_structural_hash(op):
    defined = 0
    for dtype in in_order(COMPUTED | op.dtypes):
        for shape in SHAPES:
            for sample in op.samples(shape)[:6]:
                try:
                    fd = define_sample(op, sample, dtype)
                except IngotError:
                    continue  # this operator does not take this dtype or shape
                defined += 1
                again = rebuilt(fd)
                assert again.graph.digest == fd.graph.digest
                assert again.graph == fd.graph
                assert repr(again) == repr(fd)
    assert defined, f"no sample of {op.name} could be defined"
