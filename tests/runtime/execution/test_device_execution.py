"""Whole plans answered natively on a device: recorded, launched and given back, on a machine made of native routines.

Its kernels are those of the CPU, so results must be those of the CPU to the last bit. Each kernel is two launches: the
first one overwrites a workspace that nothing else may lie in.
"""

from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

import ingot
from ingot import JitCompiler
from ingot.codegen.cpu.nests import CompiledKernel
from ingot.runtime import runner
from ingot.runtime.backends.interface import NativeSite
from ingot.runtime.cpu.kernels import prepare
from ingot.runtime.cuda.backend import launched
from ingot.runtime.cuda.prepared import Launch, PreparedLaunches
from ingot.runtime.kernels import address_of
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.launch.records import TensorGuard
from tests.property.random_values import same_bits
from tests.runtime.execution.fusions import CASES, define
from tests.runtime.native.devices import Machine

ALIGNMENT = 256
WORKSPACE_WORDS = 100
ONE = (1, 1, 1)


@cache
def spoiling(word):
    """A kernel that fills the workspace, whose address is the word of a number."""
    library = Library("test")
    spoil = library.routine("spoil", 1)
    target = spoil.load(spoil.parameters[0], word)
    with spoil.loop(WORKSPACE_WORDS) as index:
        spoil.store(-1, target, index)
    spoil.give_back()
    library.compile()
    return library


@dataclass
class Device:
    """A machine that records can be made for; it keeps kernels, and where tensors were that they were for."""

    machine: Machine = field(default_factory=Machine)
    seen: list[list[int]] = field(default_factory=list)
    kept: list[CompiledKernel] = field(default_factory=list)
    alignment: int = 1
    """What the addresses of all buffers must be a multiple of."""

    def prepare(self, kernel, tensors, bound, targets):
        self.seen.append([address_of(tensor) for tensor in tensors])
        call = prepare(kernel, tensors, bound, targets)
        self.kept.append(call.compiled)
        word = len(call.words)
        functions = (spoiling(word).address("spoil"), call.entry)
        return launched(
            PreparedLaunches(
                tuple(Launch(function, ONE, ONE) for function in functions),
                (*call.words, 0),
                call.addresses,
                call.scalars,
                call.outputs,
                (self.alignment,) * len(call.addresses),
                WORKSPACE_WORDS * 8,
                word,
            )
        )


@pytest.fixture
def simulated_gpu(monkeypatch):
    made = Device()
    site = NativeSite(torch.device("cpu"), made.prepare, ALIGNMENT, True, True, made.machine.site())
    monkeypatch.setattr(runner, "site_for", lambda device: site)
    return made


def answered(jitted):
    """Calls of a jitted function that were answered natively."""
    return jitted._compiled.native.total


def compiled(make, *declared):
    """A new module, which no other test shares."""
    return JitCompiler().compile(define(make, *declared).graph)


@pytest.mark.parametrize(("make", "declared", "inputs"), CASES.values(), ids=CASES.keys())
def test_plans_give_the_same_bits_and_cost_the_same(simulated_gpu, make, declared, inputs):
    module = compiled(make, *declared)
    expected = module.execute(inputs)
    first = module.stats()
    found = module.execute(inputs)
    second = module.stats()
    assert module._runner._native.executions == 1
    record = module.record_for(inputs)
    assert record is not None and first.kernel_launches > 0
    assert simulated_gpu.machine.launch_count == 2 * (first.kernel_launches + record.copies)
    assert all(same_bits(one, other) for one, other in zip(found, expected, strict=True))
    assert second.kernel_launches == 2 * first.kernel_launches
    assert second.memory_transferred == 2 * first.memory_transferred


def test_a_failing_launch_leaves_the_call_to_python(simulated_gpu):
    module = compiled(lambda fd, x: [fd.ops.exp(x) + 1.0], 1)
    x = torch.randn(9)
    (expected,) = module.execute([x])
    simulated_gpu.machine.fail_launch(1, 719)
    assert torch.equal(module.execute([x])[0], expected)
    assert module._runner._native.executions == 0 and simulated_gpu.machine.launch_count == 1


def test_calls_of_jitted_functions_are_launched_on_the_device(simulated_gpu):
    def function(x, y):
        return torch.tanh(x * y) - 0.123456  # no other test computes this, so it is not recorded yet

    jitted = ingot.jit(function)
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    for _ in range(30):  # more than it takes until a record answers
        torch.testing.assert_close(jitted(x, y), function(x, y))
    before, launches = answered(jitted), simulated_gpu.machine.launch_count
    torch.testing.assert_close(jitted(x, y), function(x, y))
    assert answered(jitted) == before + 1
    assert simulated_gpu.machine.launch_count == launches + 2
    simulated_gpu.machine.make_current(1)  # the context of another device: the call goes through Python
    torch.testing.assert_close(jitted(x, y), function(x, y))
    assert answered(jitted) == before + 1


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted_addresses(monkeypatch):
    """Guards count the last bits of addresses, as those of CUDA tensors do."""
    like = TensorGuard.like.__func__  # pyright: ignore[reportFunctionMemberAccess]

    def counting(cls, tensor, is_strict=False):
        found = like(cls, tensor, is_strict)
        return cls(found.dtype, found.sizes, found.strides, is_strict, found.device, tensor.data_ptr() % 16)

    monkeypatch.setattr(TensorGuard, "like", classmethod(counting))


@pytest.mark.usefixtures("counted_addresses")
def test_calls_are_recorded_for_addresses_as_even_as_they_were(simulated_gpu):
    module = compiled(lambda fd, x, y: [x * y + 1.0], 1, 1)
    memory = torch.randn(40)
    places = [(0, 4), (1, 4), (4, 8), (3, 6)]
    for time in range(2):
        for one, other in places:
            x, y = memory[one : one + 16], memory[other : other + 16]
            assert torch.equal(module.execute([x, y])[0], x * y + 1.0)
        assert module._runner._native.executions == (1, 5)[time]  # (4, 8) is as even as (0, 4)
    assert [[place % 16 for place in seen] for seen in simulated_gpu.seen] == [[0, 0], [4, 0], [12, 8]]


@pytest.mark.usefixtures("counted_addresses")
def test_views_of_odd_inputs_are_found(simulated_gpu):
    module = compiled(lambda fd, x: [fd.ops.slice(x, [2], [7], [1]) + 1.0], 1)
    x = torch.randn(40)[3:23]
    for _ in range(3):
        assert torch.equal(module.execute([x])[0], x[2:7] + 1.0)
    assert module._runner._native.executions == 2


@pytest.mark.usefixtures("counted_addresses")
@pytest.mark.parametrize(("alignment", "begin", "is_native"), [(16, 0, True), (16, 1, False), (32, 0, False)])
def test_calls_are_not_recorded_that_could_have_odd_addresses(simulated_gpu, alignment, begin, is_native):
    """A kernel may ask for no more than guards tell."""
    simulated_gpu.alignment = alignment
    module = compiled(lambda fd, x: [x + 1.0], 1)
    x = torch.randn(40)[begin : begin + 16]
    for _ in range(2):
        assert torch.equal(module.execute([x])[0], x + 1.0)
    assert module._runner._native.executions == is_native


def test_tensors_of_several_devices_are_not_recorded():
    module = compiled(lambda fd, x, y: [x + y], 1, 1)
    assert module.record_for([torch.randn(3), torch.randn(3, device="meta")]) is None
