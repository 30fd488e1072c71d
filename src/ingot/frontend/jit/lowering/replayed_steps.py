"""What a replayed training step is told by the host: learning rates, and how many steps optimizers have taken.

In: the steps of a program, and the tensors and numbers of a call. Out: tensors of a GPU that stand for the rates, and
for the counts that lie on the CPU, while the program is captured; they are filled before each replay. What always
holds: counts on the CPU have after a replay what they have after a run, and writes that a run counts are counted at
each replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.lowering.partition import EagerCall, Partition, Region
from ingot.frontend.jit.trace.ssa import Operation, Version
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    GradientOf,
    TraceArgument,
    Variable,
    all_of,
    values_in,
    written_arguments,
)
from ingot.runtime.optimizers.steps import ADAM_STEP, SGD_STEP, UNSCALE_STEP, count_steps
from ingot.runtime.optimizers.torch_steps import TORCH_STEP

_RATES = {ADAM_STEP: 5, SGD_STEP: 3}
"""Steps that can be captured: where they are given their learning rate."""
_COUNTS = 4
"""Where steps of Adam are given the counts."""
_FOUND_INFINITIES = -2
"""Where both are told what a gradient scaler has found."""


@dataclass(frozen=True, slots=True)
class HostInputs:
    """Which numbers and which tensors around a program the host changes between its calls."""

    rates: tuple[int, ...]
    """Learning rates, by their positions among the numbers; nothing else reads them."""
    counts: Counter[int]
    """Counts of steps that lie on the CPU, by their positions among the tensors around the program: how many steps of
    one call are counted there."""

    @staticmethod
    def of(steps: Partition) -> HostInputs:
        found = list(_optimizer_steps(steps))
        rates = [one.arguments[_RATES[one.target]] for one in found]
        others = all_of(Variable, [_others(step.operation) for step in steps.steps if isinstance(step, EagerCall)])
        regions = [step for step in steps.steps if isinstance(step, Region)]
        others += all_of(Variable, [(one.arguments, one.keywords) for region in regions for one in region.operations])
        kept = {one.position for one in others}
        counts = [
            version.note.origin.position
            for one in found
            if one.target is ADAM_STEP
            for version in one.arguments[_COUNTS]
            if version.note.is_number and isinstance(version.note.origin, EnvironmentTensor)
        ]
        positions = {rate.position for rate in rates if isinstance(rate, Variable)}
        return HostInputs(tuple(sorted(positions - kept)), Counter(counts))

    def key_of(self, numbers: Sequence[Any]) -> tuple[str, ...]:
        """The numbers that a graph is captured for."""
        return tuple(repr(number) for place, number in enumerate(numbers) if place not in self.rates)


def _optimizer_steps(steps: Partition) -> Iterable[Operation]:
    for step in steps.steps:
        if isinstance(step, EagerCall) and step.operation.target in _RATES:
            yield step.operation


def _others(operation: Operation) -> Sequence[Any]:
    """What an operation is given besides a learning rate."""
    place = _RATES.get(operation.target)
    given = [one for index, one in enumerate(operation.arguments) if index != place]
    return [*given, operation.keywords]


def why_not_captured(steps: Partition) -> str | None:
    """Why a program that writes into tensors from before the call is not captured; None if it is."""
    trace = steps.versions.trace
    if trace.training is None:
        return "it writes into tensors that exist before the call"
    written = {
        trace.note(one).storage
        for event in trace.events
        for one in values_in(written_arguments(event.target, event.arguments, event.keywords))
    }
    for note in trace.tensors:
        if isinstance(note.origin, TraceArgument) and note.storage in written:
            return "it writes into an argument"
    if any(isinstance(leaf.note.origin, GradientOf) for leaf in steps.leaves):
        return "it reads gradients from before the call: set them to None in it"
    calls = [step.operation for step in steps.steps if isinstance(step, EagerCall)]
    if any(call.target in (TORCH_STEP, UNSCALE_STEP) for call in calls):
        return "its optimizer's steps are computed by functions of PyTorch's that ask the host"
    if any(call.target in _RATES and call.arguments[_FOUND_INFINITIES] is not None for call in calls):
        return "a gradient scaler decides on the host whether its optimizer takes a step"
    return None


def is_count(version: Version, inputs: HostInputs) -> bool:
    """Whether a tensor on the CPU is a count that the host keeps."""
    origin = version.note.origin
    return isinstance(origin, EnvironmentTensor) and origin.position in inputs.counts


@dataclass(slots=True)
class HostMemory:
    """The tensors of a GPU that stand for what the host changes, of one graph."""

    inputs: HostInputs
    rates: list[torch.Tensor]
    counts: torch.Tensor | None
    """All counts of steps side by side; a replay makes each more."""
    counted: list[torch.Tensor]
    """The same one by one."""
    seen: torch.Tensor | None
    """What the counts of the CPU were after the last replay."""
    moved: dict[int, list[int]] = field(default_factory=dict)
    """By how often a run counts a write: the tensors around the program, by position."""

    @staticmethod
    def of(inputs: HostInputs, environment_tensors: Sequence[torch.Tensor], device: torch.device) -> HostMemory:
        rates = [torch.zeros((), dtype=torch.float32, device=device) for _ in inputs.rates]
        if not inputs.counts:
            return HostMemory(inputs, rates, None, [], None)
        seen = torch.stack([environment_tensors[position] for position in inputs.counts])
        counts = seen.to(device)
        counted = [counts[place].data for place in range(len(inputs.counts))]  # each counts its own writes
        return HostMemory(inputs, rates, counts, counted, seen)

    def stand_ins(
        self, environment_tensors: Sequence[Any], numbers: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """What a program is captured with instead of tensors around it, and of numbers."""
        around, given = list(environment_tensors), list(numbers)
        for position, tensor in zip(self.inputs.counts, self.counted, strict=True):
            around[position] = tensor
        for position, tensor in zip(self.inputs.rates, self.rates, strict=True):
            given[position] = tensor
        return around, given

    def note_writes(self, before: Sequence[int], around: Sequence[Any]) -> None:
        """Note how often the captured run has counted writes of each tensor around it."""
        for position, (version, tensor) in enumerate(zip(before, around, strict=True)):
            if tensor._version != version:
                self.moved.setdefault(tensor._version - version, []).append(position)

    def fill(self, environment_tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> None:
        """Tell the GPU what the host knows, before a replay."""
        for position, tensor in zip(self.inputs.rates, self.rates, strict=True):
            tensor.fill_(numbers[position])
        if self.counts is not None and self.seen is not None:
            counts = [environment_tensors[position] for position in self.inputs.counts]
            if not torch.equal(torch.stack(counts), self.seen):
                self.counts.copy_(torch.stack(counts))
            count_steps([environment_tensors[position] for position in self.inputs.counts.elements()])
            self.seen = torch.stack(counts)

    def count_writes(self, environment_tensors: Sequence[torch.Tensor], is_first: bool) -> None:
        """Count writes as a run would; capturing has counted those of all tensors but the counts."""
        for times, positions in self.moved.items():
            counted = [position for position in positions if not is_first or position in self.inputs.counts]
            for _ in range(times):
                torch.autograd.graph.increment_version([environment_tensors[position] for position in counted])
