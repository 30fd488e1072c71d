"""config={"verify": True}: eager beside every compiled call."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.base.errors import MismatchError
from ingot.frontend.jit.cache.recorded_function import RecordedFunction
from tests.warm_processes import run_python

jit: Any = ingot.jit
VERIFY = {"verify": True}


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def scaled_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(y).add_(1)
    return x.sum()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(nn.functional.dropout(x, 0.5)) + torch.rand_like(x)


@pytest.fixture
def wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled calls after the first give one wrong element."""
    original = RecordedFunction._run_program

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        result[1, 2] += 1
        return result

    monkeypatch.setattr(RecordedFunction, "_run_program", run)


def test_calls_that_agree_give_their_results_in_every_tier():
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    compiled = jit(gate, config=VERIFY)
    for _ in range(20):
        assert torch.allclose(compiled(x, y), gate(x, y), atol=1e-6)
    assert compiled.tier == "skipping" and compiled.stats().launches > 10
    seen: list[float] = []

    def noted(x: torch.Tensor) -> torch.Tensor:
        seen.append((x * 2).sum().item())
        return torch.tanh(x) * seen[-1]

    followed = jit(noted, config=VERIFY, python="run")
    for _ in range(5):
        followed(x)
    assert len(seen) == 10  # Python runs in both calls where it is not skipped


def test_arguments_written_in_place_are_written_once():
    compiled = jit(scaled_, config=VERIFY)
    for _ in range(6):
        x, y = torch.randn(8, 8), torch.randn(8, 8)
        whole = torch.cat([x, x])
        wanted = whole.clone()
        wanted_sum = scaled_(wanted[2:10], y)
        assert torch.allclose(compiled(whole[2:10], y), wanted_sum, atol=1e-4)
        assert torch.allclose(whole, wanted)


def test_random_numbers_are_those_of_one_call():
    compiled, x = jit(noisy, config=VERIFY), torch.randn(16, 16)
    for _ in range(6):
        torch.manual_seed(3)
        wanted, after = noisy(x), torch.rand(4)
        torch.manual_seed(3)
        assert torch.allclose(compiled(x), wanted, atol=1e-6) and torch.equal(torch.rand(4), after)


def test_buffers_of_modules_change_once():
    modules = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    compiled = jit(modules[0], config=VERIFY)
    for _ in range(5):
        x = torch.randn(6, 4)
        assert torch.allclose(compiled(x), modules[1](x), atol=1e-5)
    for name, tensor in modules[0].state_dict().items():
        assert torch.allclose(tensor, modules[1].state_dict()[name]), name


def test_calls_with_gradients_are_verified_and_differentiate():
    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    compiled = jit(gate, config=VERIFY)
    for _ in range(5):
        (found,) = torch.autograd.grad(compiled(x, y).sum(), x)
        (wanted,) = torch.autograd.grad(gate(x, y).sum(), x)
        assert torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.usefixtures("wrong_results")
def test_a_difference_names_element_values_and_tolerance_and_leaves_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compiled = jit(gate, config=VERIFY, python="skip")
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    with torch.no_grad():
        compiled(x, y)
        with pytest.raises(MismatchError) as raised:
            compiled(x, y)
    text = str(raised.value)
    wanted = gate(x, y)[1, 2].item()
    assert f"at element [1, 2]: it is {str(wanted + 1)[:5]}" in text and f"eager gives {wanted!r}" in text
    assert "tolerance: 0.0001 relative" in text and "1 of 32 elements differ" in text
    (script,) = re.findall(r"python (\S+repro.py)", text)
    assert Path(script).is_relative_to(tmp_path)
    done = run_python(script)
    assert done.returncode == 0 and done.stdout == "no difference\n", done.stderr  # nothing is wrong over there


@pytest.mark.usefixtures("wrong_results")
def test_functions_without_a_source_of_their_own_say_that_there_is_no_script():
    factor = 2.0
    compiled = jit(lambda x: torch.tanh(x) * factor, config=VERIFY, python="skip")
    with torch.no_grad(), pytest.raises(MismatchError, match="There is no script"):
        for _ in range(2):
            compiled(torch.ones(4, 4))


def test_what_cannot_be_copied_is_called_and_warned_of():
    compiled = jit(lambda x: x * 2, config=VERIFY)
    with pytest.warns(UserWarning, match="was not verified"):
        compiled(torch.ones(3).to_sparse())


def test_training_steps_are_not_run_twice():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    compiled = ingot.jit(step, config={"verify": True})
    for number in range(4):
        with pytest.warns(UserWarning, match="it trains"):
            compiled(torch.randn(3, 4))
        assert all(state["step"] == number + 1 for state in optimizer.state.values())
