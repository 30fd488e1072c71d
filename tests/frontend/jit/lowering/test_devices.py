"""Tensors on several devices: regions stay on one, what crosses is PyTorch's, numbers come along.

PyTorch's device without memory stands for a GPU, which this machine may not have; what is planned is looked at, and
not run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.frontend.jit.arguments import supported_tensors
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.guards.recompile_reasons import difference
from ingot.frontend.jit.lowering.partition import EagerCall, Partition, Region, partition
from ingot.frontend.jit.lowering.recorded_program import write_program
from ingot.frontend.jit.trace.ssa import to_ssa
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.backends.registry import backend_for
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.torch_state import state_of_torch

META = torch.device("meta")


@pytest.fixture(autouse=True)
def another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = backend_for(torch.device("cpu"))
    monkeypatch.setattr(
        supported_tensors, "backend_for", lambda device: cpu if device.type in ("cpu", "meta") else None
    )
    torch.relu(on_meta(1) * 2)  # imports what PyTorch needs for such tensors, which no recording should see


def recorded(function: Callable[..., Any], *args: Any) -> Trace:
    _, made = record(function, args, {}, describe(args, {}), None, strict=True)
    assert made.trace is not None
    return made.trace


def planned(function: Callable[..., Any], *args: Any) -> Partition:
    return partition(to_ssa(recorded(function, *args), "fast"))


def outline(steps: Partition) -> list[str]:
    """Every step: a region's device and operations, or the operator that is called."""
    return [
        f"{step.device}: {' '.join(operation.target.overloadpacket.__name__ for operation in step.operations)}"
        if isinstance(step, Region)
        else step.operation.target.overloadpacket.__name__
        for step in steps.steps
    ]


def on_meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device=META)


def test_a_region_is_on_the_device_of_its_tensors():
    (region,) = planned(lambda x: torch.relu(x * 2), on_meta(3, 4)).steps
    assert isinstance(region, Region) and region.device == META and region.names_device


def test_what_goes_to_another_device_is_a_call():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu((x * 2).to(META) + 1)

    assert outline(planned(function, torch.ones(4))) == ["cpu: mul", "_to_copy", "meta: add relu"]


def test_two_devices_have_a_region_each():
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.exp(x * 2), torch.exp(y * 3)

    assert sorted(outline(planned(function, torch.ones(4), on_meta(4)))) == ["cpu: mul exp", "meta: mul exp"]


def test_tensors_without_dimensions_act_as_numbers():
    steps = planned(lambda x, scale: x * scale + 1, on_meta(3, 4), torch.tensor(2.0))
    (region,) = steps.steps
    assert outline(steps) == ["meta: mul add"]
    assert isinstance(region, Region)
    assert [version.note.device.type for version in region.inputs] == ["meta", "cpu"]


def test_numbers_made_of_numbers_are_computed_beside_what_reads_them():
    def function(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * (scale * 2 + 0.5)

    assert outline(planned(function, on_meta(3, 4), torch.tensor(2.0))) == ["meta: mul add mul"]


def test_numbers_that_are_results_are_computed_where_they_belong():
    def function(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = scale * 2
        return doubled, x * doubled

    steps = planned(function, on_meta(3, 4), torch.tensor(2.0))
    assert outline(steps) == ["meta: mul mul", "cpu: mul"]


def test_numbers_made_of_more_than_numbers_are_computed_before():
    steps = planned(lambda x, weights: x * weights.sum(), on_meta(3, 4), torch.ones(5))
    assert outline(steps) == ["cpu: sum", "meta: mul"]


def test_a_number_is_read_before_it_is_overwritten():
    def function(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        scaled = x * step
        step.add_(1)
        return scaled * 2

    assert outline(planned(function, on_meta(3, 4), torch.tensor(2.0))) == ["meta: mul mul", "cpu: add"]


def test_a_number_is_read_before_a_call_overwrites_it():
    def function(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        scaled = x * step
        step.bernoulli_()
        return scaled * 2

    steps = outline(planned(function, on_meta(3, 4), torch.tensor(2.0)))
    assert steps == ["meta: mul", "bernoulli_", "meta: mul"]


def test_a_number_is_read_after_it_was_overwritten_with_what_only_the_cpu_can_compute():
    def function(x: torch.Tensor, step: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        step.add_(weights.sum())
        return x * step

    steps = planned(function, on_meta(3, 4), torch.tensor(2.0), torch.ones(5))
    assert outline(steps) == ["cpu: sum add", "meta: mul"]


def test_tensors_made_on_a_device_name_it():
    trace = recorded(lambda: torch.zeros(4, device="meta"))
    assert trace.device == trace.events[0].keywords["device"] == META


def test_regions_of_numbers_alone_are_told_their_device():
    steps = planned(lambda number: number.to(META) * 2, torch.tensor(2.0))
    (region,) = steps.steps
    assert isinstance(region, Region) and region.device == META and not region.names_device
    assert ".execute([t0], meta)" in write_program(steps, JitCompiler()).text


def test_memory_of_a_pool_is_for_the_cpu_alone():
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight)

    texts = []
    for made in (on_meta(256, 256), torch.ones(256, 256)):
        texts.append(write_program(planned(function, made, made), JitCompiler()).text)
    assert "out=" not in texts[0] and "out=" in texts[1]


def test_views_are_on_the_device_of_their_base():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x.t()).values * 2

    steps = planned(function, on_meta(3, 4))
    assert outline(steps) == ["t", "sort", "meta: mul"]
    assert all(isinstance(step, Region | EagerCall) for step in steps.steps)


def test_a_device_is_part_of_what_makes_calls_alike():
    before, now = ((describe((x,), {}).key, state_of_torch()) for x in (torch.ones(3, 4), on_meta(3, 4)))
    assert before != now
    assert difference(now, [before], lambda x: x) == "x: was on cpu, is on meta"


def test_where_tensors_around_a_function_went_is_seen():
    layer = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with torch.no_grad():
        _, made = record(layer.forward, (x,), {}, describe((x,), {}), None, strict=True)
        assert made.changed() is None
        torch.utils.swap_tensors(layer.weight, torch.nn.Parameter(on_meta(4, 4)))
        assert made.changed() == "self.weight"
