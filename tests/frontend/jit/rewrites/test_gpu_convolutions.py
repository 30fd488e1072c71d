"""Convolutions with channels last: which, what lies between them, and how results lie.

The CPU poses as a GPU that is always quicker so; results are compared with eager's. Tests marked `cuda` look at what a
GPU and its library really do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ingot import jit
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.lowering.recorded_program import compile_trace
from ingot.frontend.jit.rewrites import gpu_convolutions
from ingot.frontend.jit.rewrites.channels_last import strides_of
from ingot.frontend.jit.rewrites.gpu_convolutions import KeepChannelsLast
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler


class Block(nn.Module):
    """Two convolutions with batch norms around a residual."""

    def __init__(self, channels: int, wider: int, stride: int = 1):
        super().__init__()
        self.first = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        self.aside = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))
        self.norms = nn.ModuleList(nn.BatchNorm2d(wider) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = functional.relu(self.norms[0](self.first(x)), inplace=True)
        made = self.norms[1](self.second(made))
        made += self.aside(x)
        return functional.relu(made)


class Classifier(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Block(width, width), Block(width, 2 * width, 2))
        self.last = nn.Linear(2 * width, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made = self.blocks(self.pool(self.stem(images)))
        return self.last(torch.flatten(functional.adaptive_avg_pool2d(made, 1), 1))


def settled(model: nn.Module) -> nn.Module:
    """A model in eval mode whose batch norms have seen something."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn_like(module.running_mean)  # type: ignore[arg-type]
            module.running_var = torch.rand_like(module.running_var) + 0.5  # type: ignore[arg-type]
    return model.eval()


@pytest.fixture
def posing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
    monkeypatch.setattr(gpu_convolutions, "_KIND", "cpu")
    monkeypatch.setattr(gpu_convolutions, "_is_quicker", lambda *_: True)


def recorded(function: Callable[..., Any], *args: Any) -> Trace:
    with torch.no_grad():
        called = function.forward if isinstance(function, nn.Module) else function
        _, made = record(called, args, {}, describe(args, {}), None, strict=True)
    assert made.trace is not None
    return made.trace


def rewritten(function: Callable[..., Any], *args: Any) -> Trace:
    return KeepChannelsLast().run(recorded(function, *args)).trace


def clones(trace: Trace) -> list[torch.memory_format]:
    """Into which orders something is copied."""
    return [event.keywords["memory_format"] for event in trace.events if "memory_format" in event.keywords]


def in_other_order(trace: Trace, name: str) -> list[bool]:
    """Whether the results of operations of a name are channels last."""
    found = [event.products[0] for event in trace.events if event.target.overloadpacket.__name__ == name]
    return [trace.note(one).strides == strides_of(trace.note(one).shape) for one in found]


def check(function: Callable[..., Any], *args: Any, is_frozen: bool = False) -> None:
    """Compare the program of a function with eager, strides included."""
    trace = recorded(function, *args)
    with torch.no_grad():
        found = compile_trace(trace, JitCompiler({"disabled_passes": ["take_in_activations"]}), is_frozen=is_frozen)
        expected = function(*args)
        results = found.function(list(args), trace.environment_tensors, ())
    for one, other in zip(results, expected if isinstance(expected, tuple) else [expected], strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("posing")
def test_a_classifier_is_channels_last_from_its_images_to_its_pooling():
    model, images = settled(Classifier()), torch.randn(2, 3, 16, 16)
    trace = rewritten(model, images)
    assert in_other_order(trace, "convolution") == [True] * 7
    assert all(in_other_order(trace, "max_pool2d_with_indices"))
    assert clones(trace) == [torch.channels_last]  # of the images
    check(model, images)


@pytest.mark.usefixtures("posing")
def test_frozen_weights_are_turned_once():
    model, images = settled(Classifier()), torch.randn(2, 3, 16, 16)
    trace = recorded(model, images)
    result = KeepChannelsLast(is_frozen=True).run(trace)
    weights = [
        event.arguments[1] for event in result.trace.events if event.target.overloadpacket.__name__ == "convolution"
    ]
    assert all(
        isinstance(one, torch.Tensor) and one.is_contiguous(memory_format=torch.channels_last) for one in weights
    )
    assert len(result.taken) == 7
    check(model, images, is_frozen=True)


@pytest.mark.usefixtures("posing")
def test_results_lie_as_eagers():
    def function(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.conv2d(x, weight)
        return made, torch.relu(made), made.flatten(1), made.mean((2, 3)), made.permute(0, 2, 3, 1) * 2

    given = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    check(function, *given)
    check(lambda x, weight: torch.relu(torch.conv2d(x, weight)), *given)
    check(
        lambda x, weight: torch.relu(torch.conv2d(x, weight)),
        *(one.contiguous(memory_format=torch.channels_last) for one in given),
    )


@pytest.mark.usefixtures("posing")
def test_joins_and_larger_images_keep_the_order():
    def function(x: torch.Tensor, weight: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        made = torch.conv2d(x, weight, padding=1)
        smaller = torch.relu(torch.conv2d(made, weight, stride=2, padding=1))
        larger = functional.interpolate(smaller, scale_factor=2, mode="nearest")
        return torch.conv2d(torch.cat([larger, made], 1), other)

    given = torch.randn(2, 3, 8, 8), torch.randn(3, 3, 3, 3), torch.randn(4, 6, 1, 1)
    trace = rewritten(function, *given)
    assert clones(trace) == [torch.channels_last, torch.contiguous_format]
    assert in_other_order(trace, "cat") == in_other_order(trace, "upsample_nearest2d") == [True]
    check(function, *given)


@pytest.mark.usefixtures("posing")
def test_what_reads_elements_in_order_gets_a_copy():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 3)).eval()
    images = torch.randn(2, 3, 8, 8)
    assert clones(rewritten(model, images)).count(torch.contiguous_format) == 2
    check(model, images)


@pytest.mark.usefixtures("posing")
def test_batch_norms_in_training_mode_get_a_copy():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3))
    trace = rewritten(model, torch.randn(2, 3, 8, 8))
    norm = next(event for event in trace.events if "batch_norm" in str(event.target))
    assert trace.note(norm.arguments[0]).strides == torch.empty(2, 4, 6, 6).stride()


@pytest.mark.usefixtures("posing")
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(3, 4, 3),
        nn.Conv3d(3, 4, 2),
        nn.ConvTranspose2d(3, 4, 3),
        nn.Conv2d(3, 3, 3, groups=3),
        nn.Conv2d(3, 4, 3).double(),
        nn.Conv2d(3, 4, 6),
    ],
    ids=str,
)
def test_other_convolutions_are_left(layer: nn.Module):
    sizes = (6,) * (2 if "2d" in str(layer) else 1 if "1d" in str(layer) else 3)
    images = torch.randn(2, 3, *sizes, dtype=next(layer.parameters()).dtype)
    trace = recorded(layer, images)
    assert KeepChannelsLast().run(trace).trace is trace


@pytest.mark.usefixtures("posing")
def test_dilated_and_pointwise_convolutions_and_their_neighbours_are_right():
    model = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, dilation=2, padding=2), nn.GELU(), nn.Conv2d(6, 6, 3, padding=1, groups=6)),
        *(nn.Hardswish(), nn.Conv2d(6, 4, 1), nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Sigmoid()),
    ).eval()
    check(model, torch.randn(2, 3, 8, 8))


@pytest.mark.usefixtures("posing")
def test_images_that_are_written_between_convolutions_are_copied_anew():
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = x * 2
        first = torch.conv2d(made, weight)
        made += 1
        return first + torch.conv2d(made, weight)

    check(function, torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3))


def test_convolutions_with_many_copies_between_them_are_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
    monkeypatch.setattr(gpu_convolutions, "_KIND", "cpu")
    monkeypatch.setattr(gpu_convolutions, "_seconds", lambda *calls: [0.1, 1.0][: len(calls)])
    model, images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3)), torch.randn(2, 3, 8, 8)
    trace = recorded(model, images)
    assert KeepChannelsLast().run(trace).trace is trace
    assert KeepChannelsLast().run(recorded(settled(Classifier()), images)).changed


def test_slower_convolutions_are_not_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trace, "device", torch.device("cuda", 0))
    monkeypatch.setattr(gpu_convolutions, "_KIND", "cpu")
    monkeypatch.setattr(gpu_convolutions, "_seconds", lambda *calls: [0.95, 1.0][: len(calls)])
    trace = recorded(settled(Classifier()), torch.randn(2, 3, 16, 16))
    assert KeepChannelsLast().run(trace).trace is trace


def test_traces_of_the_cpu_stay_as_they_are():
    trace = recorded(settled(Classifier()), torch.randn(2, 3, 16, 16))
    assert KeepChannelsLast().run(trace).trace is trace


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.usefixtures("no_eager_comparison")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("is_always", [True, False])
@pytest.mark.parametrize("freeze", [False, True])
def test_a_classifier_is_right_on_a_gpu(
    dtype: torch.dtype, is_always: bool, freeze: bool, monkeypatch: pytest.MonkeyPatch
):
    if is_always:
        monkeypatch.setattr(gpu_convolutions, "_is_quicker", lambda *_: True)
    model = settled(Classifier(64)).to("cuda", dtype)
    images = torch.randn(8, 3, 64, 64, device="cuda", dtype=dtype)
    compiled: Any = jit(model, freeze=freeze)
    with torch.no_grad():
        expected = model(images)
        tolerance = 1e-2 if dtype is torch.float32 else 6e-2
        scale = float(expected.abs().max())
        for _ in range(3):
            found = compiled(images)
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.cuda
@pytest.mark.usefixtures("no_eager_comparison")
def test_pytorch_lies_as_is_noted_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """What keeps the order by our account does, and what is returned has eager's strides."""
    monkeypatch.setattr(gpu_convolutions, "_is_quicker", lambda *_: True)
    x = torch.randn(2, 16, 16, 16, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(16, 16, 3, 3, device="cuda", dtype=torch.bfloat16) * 0.1

    def function(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.conv2d(x, weight, padding=1)
        pooled, places = functional.max_pool2d(made, 2, return_indices=True)
        larger = functional.interpolate(pooled, scale_factor=2, mode="bilinear")
        joined = torch.cat([larger, made], 1)
        return made, pooled, places, joined, functional.adaptive_avg_pool2d(joined, 2), made.flatten(1)

    compiled = jit(function)
    with torch.no_grad():
        expected = function(x, weight)
        for _ in range(3):
            for one, other in zip(compiled(x, weight), expected, strict=True):
                assert one.stride() == other.stride()
                if other.dtype.is_floating_point:  # equal neighbours may change places
                    torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
        last = x.to(memory_format=torch.channels_last)
        given = torch.conv2d(last, weight, padding=1)
        larger = functional.interpolate(given, scale_factor=2, mode="bilinear")
        for made in (given, functional.max_pool2d(given, 2), torch.cat([given, given], 1), larger):
            assert made.is_contiguous(memory_format=torch.channels_last)
