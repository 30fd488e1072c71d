"""TorchScript functions: proven where their graphs only compute, with the tensors that they make of numbers."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.proof import Proof, Refusal, prove
from tests.frontend.jit.proof.cases import tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what PyTorch says of TorchScript

    @torch.jit.script
    def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
        if x.dim() > 1:
            x = x + 1
        return x * torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * factor)

    @torch.jit.script
    def gives_back(x: torch.Tensor, number: int):
        return x

    @torch.jit.script
    def one_of_them(x: torch.Tensor, other: torch.Tensor, number: int):
        return (
            (x, other.expand(x.size(0), 4) + torch.arange(x.size(1), device=x.device) * number)
            if number > 0
            else (other, x)
        )

    @torch.jit.script
    def reads_a_value(x: torch.Tensor):
        return x * torch.tensor(int(x.sum()))

    @torch.jit.script
    def decides(x: torch.Tensor):
        return x * 2 if bool(x.sum() > 0) else x

    @torch.jit.script
    def draws(x: torch.Tensor):
        return x + torch.rand_like(x)

    @torch.jit.script
    def drops(x: torch.Tensor):
        return torch.dropout(x, 0.5, True)

    @torch.jit.script
    def writes(x: torch.Tensor):
        y = x * 2
        return y.add_(1)

    @torch.jit.script
    def prints(x: torch.Tensor):
        print("noted")
        return x * 2

    @torch.jit.script
    def makes_a_constant(x: torch.Tensor):
        return x * torch.tensor([2.0 * 3])

    @torch.jit.ignore(drop=False)
    def _in_python(x):
        return x * len(HELD)

    @torch.jit.script
    def calls_python(x: torch.Tensor):
        return _in_python(x)


HELD: list[int] = []


def test_results_are_eagers_at_every_length_and_number(no_eager_comparison: None):
    def function(x: Any, y: Any, number: Any) -> Any:
        left, right = one_of_them(scaled(x, 3), y, number)
        return left * scaled(right, number + 2).sum()

    compiled: Any = ingot.jit(function)
    for _ in range(5):
        for rows, number in ((2, 1), (3, 1), (2, 0), (5, 2)):
            x, y = torch.randn(rows, 4), torch.randn(1, 4)
            torch.testing.assert_close(compiled(x, y, number), function(x, y, number))
    assert compiled.tier == "skipping", compiled.explain()


@pytest.mark.parametrize(
    "script", [reads_a_value, decides, draws, drops, writes, prints, makes_a_constant, calls_python]
)
def test_what_does_more_than_compute_is_refused(script: Any):
    found = prove(lambda x: script(x) * 2, (tensor(4),), {})
    assert isinstance(found, Refusal) and "not an operation on tensors alone" in found.reason


def test_fusers_gradients_and_autocast_are_told_apart(no_eager_comparison: None):
    function: Callable[..., Any] = lambda x: scaled(x, 2)
    proof = prove(function, (tensor(4),), {})
    assert isinstance(proof, Proof) and proof.holds()
    before = torch._C._jit_can_fuse_on_cpu()
    torch._C._jit_override_can_fuse_on_cpu(True)
    try:
        assert not proof.holds() and isinstance(prove(function, (tensor(4),), {}), Refusal)
    finally:
        torch._C._jit_override_can_fuse_on_cpu(before)
    with torch.autocast("cpu", torch.bfloat16):
        assert isinstance(prove(function, (tensor(4),), {}), Refusal)
    compiled: Any = ingot.jit(function)
    for _ in range(3):
        compiled(tensor(4).requires_grad_()).sum().backward()
    assert compiled.tier != "skipping"


def test_a_tensor_held_out_of_sight_is_not_taken_for_a_constant(
    monkeypatch: pytest.MonkeyPatch, no_eager_comparison: None
):
    """The names of torch are not searched for tensors."""
    monkeypatch.setattr(torch, "hidden", torch.tensor(2.0), raising=False)
    compiled: Any = ingot.jit(lambda x: scaled(x, 2) * torch.hidden)  # type: ignore[attr-defined]
    without: Any = ingot.jit(lambda x: x * torch.hidden)  # type: ignore[attr-defined]
    for _ in range(6):
        torch.hidden.add_(1)  # type: ignore[attr-defined]
        assert torch.equal(compiled(tensor(4)), scaled(tensor(4), 2) * torch.hidden)  # type: ignore[attr-defined]
        assert torch.equal(without(tensor(4)), tensor(4) * torch.hidden)  # type: ignore[attr-defined]
    assert compiled.tier != "skipping" and without.tier != "skipping"


def test_another_script_under_the_same_name_is_noticed(no_eager_comparison: None):
    holder: Any = types.SimpleNamespace(script=scaled)
    compiled: Any = ingot.jit(lambda x: holder.script(x, 2))
    for _ in range(4):
        compiled(tensor(4))
    assert compiled.tier == "skipping", compiled.explain()
    holder.script = gives_back
    assert torch.equal(compiled(tensor(4)), tensor(4))
