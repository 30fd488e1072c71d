"""Which backend runs kernels on a device, and that a third one takes a class and a registration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

import ingot
from ingot.base.environment_variables import EnvironmentVariables
from ingot.base.errors import ConfigError
from ingot.base.numbers import Number
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.interpreter import interpret
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.gpu.schedule import MOST_COUNTERS, MOST_SPLITS
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.program import Program
from ingot.runtime.backends import registry
from ingot.runtime.backends.interface import Backend, Bound, Features, Targets, Tensors
from ingot.runtime.backends.registry import backend_for, register, registered, using
from ingot.runtime.cpu.backend import CpuBackend
from ingot.runtime.cpu.kernels import kernels, scheduled
from ingot.runtime.kernels import Kernel, KernelFault, OutputTypes, extents
from tests.loops.running import memory_of
from tests.runtime.test_kernels import define
from tests.warm_processes import run_python

CPU = torch.device("cpu")


class LoopInterpreter(Backend):
    """Runs kernels as loops, in plain Python: no code is generated, nothing is native."""

    name: ClassVar[str] = "loops"
    device_type: ClassVar[str] = "cpu"
    features: ClassVar[Features] = Features("yes", "none", "none", "in place")

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        self.launched: list[str] = []

    @property
    def platform(self) -> str:
        return "Python"

    def why_unavailable(self) -> str | None:
        return self.reason

    def compile(
        self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets, device: torch.device
    ) -> tuple[Callable[[], object], OutputTypes]:
        return lambda: None, scheduled(kernel, tensors, bound, targets)[1]

    def launch(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        device: torch.device,
    ) -> list[torch.Tensor]:
        self.launched.append(kernel.name)
        call, outputs = scheduled(kernel, tensors, bound, targets)
        results = [torch.empty(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
        results = [targets.get(index, result) for index, result in enumerate(results)]
        room = extents(outputs, tensors, targets)
        memory = [memory_of(tensor, extent) for tensor, extent in zip((*results, *tensors), room, strict=True)]
        if not interpret(build_nest(kernel.program, call.schedule), call, memory, scalars):
            raise KernelFault
        return results

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    @property
    def stages(self) -> Mapping[str, Callable[[Program], list[str]]]:
        return {"interpretation": lambda program: [f"interpreted:\n{program.text}"]}


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What tests register is gone after them."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_chosen", {})
    yield


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets INGOT_BACKEND."""

    def name(backends: str) -> None:
        found = EnvironmentVariables.read({"INGOT_BACKEND": backends})
        monkeypatch.setattr(registry, "environment", lambda: found)
        registry._chosen.clear()

    return name


def softmax() -> ingot.FusionDefinition:
    return define(lambda fd, x: [fd.ops.softmax(x * 0.4375, -1), fd.ops.sum(x, [0])], ingot.DataType.Float)


def test_a_third_backend_takes_a_class_and_a_registration(environment: Callable[[str], None]):
    third, x = LoopInterpreter(), torch.randn(9, 33)
    register(third)
    assert isinstance(backend_for(CPU), CpuBackend), "earlier ones are preferred"
    environment("loops")
    assert backend_for(CPU) is third
    fd = softmax()
    normalized, total = fd.execute([x])
    torch.testing.assert_close(normalized, torch.softmax(x * 0.4375, -1))
    torch.testing.assert_close(total, x.sum(0))
    assert third.launched and len(third.launched) == len(fd.module.kernels())
    assert fd.module.inspect("interpretation").startswith("interpreted:")
    for _ in range(3):
        fd.execute([x])
    assert len(third.launched) == 4 * len(fd.module.kernels()), "calls are not answered by the CPU's native code"


def test_functions_run_through_the_backend_in_use():
    third = LoopInterpreter()

    @ingot.jit
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2.4375 - x

    x = torch.randn(64)
    with using(third):
        for _ in range(3):
            torch.testing.assert_close(shifted(x), torch.tanh(x) * 2.4375 - x)
    assert third.launched


def test_the_first_named_backend_of_a_kind_is_used(environment: Callable[[str], None]):
    third = LoopInterpreter()
    register(third)
    for names, expected in (("loops,cpu", third), ("cpu, loops", registry._registered["cpu"]), ("", None)):
        environment(names)
        assert backend_for(CPU) is (expected or registry._registered["cpu"])


def test_backends_that_are_not_available_are_passed_over():
    absent = LoopInterpreter("Python is on holiday")
    with using(absent):
        assert isinstance(backend_for(CPU), CpuBackend)


def test_an_unknown_name_is_told_with_what_is_available(environment: Callable[[str], None]):
    environment("cpu,tpu")
    with pytest.raises(ConfigError, match=r"there is no backend .tpu.; available are cpu.*ingot backends"):
        backend_for(CPU)


def test_a_backend_that_is_not_available_is_told_with_the_reason(environment: Callable[[str], None]):
    register(LoopInterpreter("Python is on holiday"))
    environment("loops")
    with pytest.raises(ConfigError, match=r"loops is not available: Python is on holiday; available are cpu"):
        backend_for(CPU)


def test_devices_of_no_named_backend_are_left_to_pytorch(environment: Callable[[str], None]):
    class Elsewhere(LoopInterpreter):
        name: ClassVar[str] = "elsewhere"
        device_type: ClassVar[str] = "meta"

    register(Elsewhere())
    environment("elsewhere")
    assert backend_for(CPU) is None
    before, x = kernels.compilations, torch.randn(7, 19)
    fd = define(lambda fd, x: [fd.ops.exp(x * 0.140625) - 3.140625], ingot.DataType.Float)
    assert torch.equal(fd.execute([x])[0], torch.exp(x * 0.140625) - 3.140625)
    assert kernels.compilations == before


def test_the_environment_is_read_where_functions_are_called():
    script = "import ingot, torch\ningot.jit(lambda x: x + 1)(torch.ones(3))"
    done = run_python("-c", script, env={**os.environ, "INGOT_BACKEND": "abacus"})
    assert done.returncode and "INGOT_BACKEND: there is no backend 'abacus'; available are cpu" in done.stderr


def test_what_a_context_prefers_ends_with_it():
    first = backend_for(CPU)
    with using(LoopInterpreter()) as _, using(CpuBackend()):
        assert isinstance(backend_for(CPU), CpuBackend)
    assert backend_for(CPU) is first


def test_names_and_kinds_are_told_apart():
    assert [backend.name for backend in registered()] == ["cpu", "cuda"]
    assert registry.backend_of_kind("cuda") is registered()[1]
    assert registry.backend_of_kind("meta") is None


# --- what the table says ----------------------------------------------------------------------------------------------


def test_kernels_of_the_cpu_are_reused_by_broadcast_pattern_and_read_in_place():
    fd = define(lambda fd, x: [fd.ops.sum(fd.ops.exp(x) * 0.71875, [1])], ingot.DataType.Float)
    base = torch.randn(400, 40)
    fd.execute([base[:100]])
    before = kernels.compilations
    for rows in (99, 101, 160):  # other shapes, and every other row
        fd.execute([base[:rows]])
        (found,) = fd.execute([base[: 2 * rows : 2]])
        torch.testing.assert_close(found, (torch.exp(base[: 2 * rows : 2]) * 0.71875).sum(1))
    assert kernels.compilations == before
    assert fd.module.stats().kernel_launches == fd.module.stats().executions, "no copies"


def test_tuning_chooses_schedules():
    x = torch.randn(64, 4096)
    (kernel,) = define(lambda fd, x: [x * 0.84375], ingot.DataType.Float).module.kernels()
    bound = {"s0": 64, "s1": 4096}
    tuning = replace(CpuBackend().tuning, flat_block=128)
    assert scheduled(kernel, [x], bound)[0].blocks == (16_384,)
    assert scheduled(kernel, [x], bound, tuning=tuning)[0].blocks == (128,)


@pytest.mark.parametrize("name", ["splits", "function_splits", "column_splits", "most_counters"])
def test_tuning_stays_within_what_kernels_count_on(name: str):
    most = MOST_COUNTERS if name == "most_counters" else MOST_SPLITS
    assert getattr(CudaTuning(**{name: most}), name) == most
    with pytest.raises(ConfigError):
        CudaTuning(**{name: most + 1})
