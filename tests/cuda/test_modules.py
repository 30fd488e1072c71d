"""Modules whose calls are others on a GPU than on a CPU: what `ingot.jit` makes of them is kernels there, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ingot.frontend.jit.lowering.partition import EagerCall
from tests.frontend.jit.comparing import check, is_compiled

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("no_eager_comparison")]

GPU = torch.device("cuda", 0)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


class Widening(nn.Module):
    """softmax in float32, which is one call on a GPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.softmax(x, -1, dtype=torch.float32) + functional.log_softmax(x, -1, dtype=torch.float32)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer_norm": (lambda: nn.LayerNorm(96), (24, 96)),
    "layer_norm_without_weights": (lambda: nn.LayerNorm([8, 12], elementwise_affine=False), (24, 8, 12)),
    "rms_norm": (lambda: nn.RMSNorm(96), (24, 96)),
    "rms_norm_with_eps": (lambda: nn.RMSNorm(96, eps=1e-3), (24, 96)),
    "batch_norm": (lambda: nn.BatchNorm2d(8), (4, 8, 6, 10)),
    "batch_norm_of_rows": (lambda: nn.BatchNorm1d(96), (24, 96)),
    "batch_norm_without_weights": (lambda: nn.BatchNorm2d(8, affine=False), (4, 8, 6, 10)),
    "group_norm": (lambda: nn.GroupNorm(4, 8), (4, 8, 6, 10)),
    "widening": (Widening, (24, 96)),
}


def called(compiled: Any) -> list[str]:
    """The operators that a recording has PyTorch compute."""
    (kind,) = compiled._compiled.specialisations.values()
    calls = [step.operation.event.target for step in kind.program.steps.steps if isinstance(step, EagerCall)]
    return [target.overloadpacket.__name__ for target in calls]


def prepared(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(0.5, 1.5)
    return module.to(GPU, dtype).eval()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_normalisations_become_kernels(name: str, dtype: torch.dtype):
    """Eager's group_norm rounds means and deviations to 16 bits, too, which shows where a sum cancels."""
    make, shape = MODULES[name]
    module = prepared(make(), dtype)
    rounded = torch.finfo(dtype).eps if name == "group_norm" and dtype.itemsize == 2 else None
    inputs = lambda: [torch.randn(shape, device=GPU).to(dtype)]
    with torch.no_grad():
        compiled = check(lambda x: module(torch.neg(x)) * 2, inputs, parts_of_largest=rounded)
    assert is_compiled(compiled)
    assert called(compiled) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell], ids=lambda kind: kind.__name__)
def test_only_the_products_of_recurrent_cells_are_left(kind: Callable[..., nn.Module], dtype: torch.dtype):
    module = prepared(kind(16, 32), dtype)
    with torch.no_grad():
        compiled = check(lambda x: module(x), lambda: [torch.randn(8, 16, device=GPU).to(dtype)])
    assert is_compiled(compiled)
    assert set(called(compiled)) <= {"mm", "addmm", "linear", "t", "zeros"}
