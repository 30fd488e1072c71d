"""Activations taken into products and convolutions: which, and what becomes of the trace.

The CPU poses as a GPU whose libraries are always quicker; its results are compared with eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.lowering.recorded_program import compile_trace
from ingot.frontend.jit.rewrites import epilogues
from ingot.frontend.jit.rewrites.epilogues import TakeInActivations
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler


@pytest.fixture(autouse=True)
def quicker_libraries(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
    monkeypatch.setattr(epilogues, "_is_quicker", lambda *_: True)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    with torch.no_grad():
        yield


def rewritten(function: Callable[..., Any], *args: Any) -> Trace:
    _, made = record(function, args, {}, describe(args, {}), None, strict=True)
    assert made.trace is not None
    return TakeInActivations().run(made.trace).trace


def names(trace: Trace) -> list[str]:
    return [event.target.overloadpacket.__name__ for event in trace.events]


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(functional.linear(x, weight, bias)) * 2


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_products_take_in_a_relu(shape: tuple[int, ...]):
    x, weight, bias = torch.randn(shape), torch.randn(4, 8), torch.randn(4)
    _, made = record(layer, (x, weight, bias), {}, describe((x, weight, bias), {}), None, strict=True)
    assert made.trace is not None
    trace = TakeInActivations().run(made.trace).trace
    assert "_addmm_activation" in names(trace) and "relu" not in names(trace)
    program = compile_trace(made.trace, JitCompiler())
    for _ in range(2):
        given = [torch.randn(shape), torch.randn(4, 8), torch.randn(4)]
        (result,) = program.function(given, [], ())
        torch.testing.assert_close(result, layer(*given))


def test_views_of_what_was_taken_in_are_views_still():
    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.relu(functional.linear(x, weight, bias))
        return made, made.view(-1)

    x, weight, bias = torch.randn(2, 3, 8), torch.randn(4, 8), torch.randn(4)
    _, made = record(function, (x, weight, bias), {}, describe((x, weight, bias), {}), None, strict=True)
    assert made.trace is not None
    whole, flat = compile_trace(made.trace, JitCompiler()).function([x, weight, bias], [], ())
    assert whole.data_ptr() == flat.data_ptr()
    torch.testing.assert_close(whole, function(x, weight, bias)[0])


@pytest.mark.parametrize(("approximate", "is_taken"), [("tanh", True), ("none", False)])
def test_only_the_gelu_that_the_library_knows_is_taken_in(approximate: str, is_taken: bool):
    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.linear(x, weight, bias), approximate=approximate)

    trace = rewritten(function, torch.randn(5, 8), torch.randn(4, 8), torch.randn(4))
    assert ("gelu" not in names(trace)) == is_taken
    assert [event.keywords for event in trace.events if "use_gelu" in event.keywords] == [{"use_gelu": True}] * is_taken


def test_results_that_others_read_are_left():
    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        made = functional.linear(x, weight, bias)
        return torch.relu(made) + made

    assert "addmm" in names(rewritten(function, torch.randn(5, 8), torch.randn(4, 8), torch.randn(4)))


def test_convolutions_take_in_a_relu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.Sigmoid())
    trace = rewritten(model.forward, torch.randn(1, 3, 8, 8))
    assert names(trace) == ["cudnn_convolution_relu", "convolution", "sigmoid"]


def test_traces_of_the_cpu_stay_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trace, "device", torch.device("cpu"))
    assert "addmm" in names(rewritten(layer, torch.randn(5, 8), torch.randn(4, 8), torch.randn(4)))
