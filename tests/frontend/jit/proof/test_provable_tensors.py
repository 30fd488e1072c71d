"""Operations, contexts and modules of PyTorch that the proof has to understand."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ingot.frontend.jit.proof import Proof, prove
from tests.frontend.jit.proof.cases import Case, Cases, check_proven, tensor

provable = Cases()


@provable()
def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return y + 1


@provable()
def decorated_by_a_context(x):
    return _without(x)


@torch.no_grad()
def _without(x):
    return x + 1


@provable()
def asks_a_cast_tensor_for_an_attribute(x):
    mask = x.to(torch.bool)
    return x if hasattr(mask, "jax") else x * mask


@provable()
def pools_over_one_axis(x):
    return F.adaptive_avg_pool1d(x[None] * 2, 2) + 1


class _Clamped(nn.Module):
    """Sets an attribute to what it holds already, once it has been called."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 4

    def forward(self, x):
        if min(x.shape) <= self.window:
            self.window = min(x.shape)
        return x * self.window


_CLAMPED = _Clamped()
_CLAMPED(tensor(3, 4))
provable.append(Case(_CLAMPED.forward, (tensor(3, 4),)))


@provable()
def null_contexts(x):
    with contextlib.nullcontext():
        return x * 2


@provable()
def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.T


@provable()
def functionals(x):
    return F.gelu(F.layer_norm(F.relu(x), (4,))) + F.dropout(x, 0.5, training=False) + F.silu(x)


@provable(tensor(1, 2, 6, 6))
def pooling(x):
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.interpolate(x, scale_factor=2)


@provable(torch.randint(0, 5, (2, 3)), tensor(5, 4))
def embeddings(ids, table):
    return F.embedding(ids, table), table[ids]


@provable(tensor(1, 2, 4, 8))
def attention(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True), torch.einsum("bhqd,bhkd->bhqk", x, x)


@provable()
def random_operations(x):
    return x + torch.randn_like(x) + F.dropout(x, 0.1)


@provable()
def writes_into_tensors(x):
    y = x.clone()
    y[:, 0] = 0
    y.add_(1).mul_(2)
    y += 1
    return y


@provable()
def writes_by_a_mask(x):
    y = x.clone()
    y[y > 0] = 0.0
    return y


@provable()
def makes_tensors(x):
    steps = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
    return x + steps + torch.zeros(4) + torch.full((4,), math.pi) + torch.tensor([1.0, 2.0, 3.0, 4.0])


@provable()
def decides_by_constants(x):
    steps = torch.arange(4)
    return x * 2 if (steps.diff() == 1).all() else x


provable(tensor(2, 4))(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.LayerNorm(4)))
provable(tensor(2, 3, 8, 8))(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten()).eval())
provable(tensor(2, 3, 8, 8))(nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.GELU()).train())
provable(torch.zeros(2, 3, dtype=torch.long))(nn.Embedding(5, 4))


@pytest.mark.parametrize("case", provable, ids=str)
def test_ordinary_code_is_proven(case: Case):
    check_proven(case)


def test_a_proof_has_no_effect():
    generator, module = torch.get_rng_state(), nn.BatchNorm1d(4).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert isinstance(prove(module, (tensor(3, 4),), {}), Proof)
    x = tensor(3, 4)
    assert isinstance(prove(random_operations, (x,), {}), Proof)
    assert isinstance(prove(torch.nn.functional.relu_, (x,), {}), Proof)
    assert torch.equal(x, tensor(3, 4)) and torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
