"""The models and functions of the published comparison are proven, and stay so without reading more than guards see."""

from __future__ import annotations

import pytest
import torch
from benchmarks.cases import POINTWISE, REDUCTIONS, SMALL_FUNCTIONS, Case
from benchmarks.models import MODELS, Model

from ingot.frontend.jit.proof import Proof, prove


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_models_are_proven(model: Model):
    module, inputs = model.make(True)
    with torch.no_grad():
        module(**inputs)
    proof = prove(module, (), inputs)
    assert isinstance(proof, Proof), proof
    assert proof.broken() is None
    module.forward = lambda **inputs: None
    assert proof.broken() is not None


def test_models_are_proven_after_torch_compile_was_used():
    """It has every module's constructor note something."""
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    module, inputs = next(model for model in MODELS if model.name == "Llama").make(True)
    with torch.no_grad():
        module(**inputs)
    proof = prove(module, (), inputs)
    assert isinstance(proof, Proof), proof


@pytest.mark.parametrize("case", POINTWISE + REDUCTIONS + SMALL_FUNCTIONS, ids=lambda case: case.name)
def test_functions_are_proven(case: Case):
    proof = prove(case.eager, tuple(case.tensors(4, 4)), {})
    assert isinstance(proof, Proof), proof
    assert proof.broken() is None
