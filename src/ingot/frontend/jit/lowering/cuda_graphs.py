"""Programs as CUDA graphs: the launches of a program are captured once and replayed, which spares the host each launch.

In: the function of a program, and its calls. Out: a function that is called like it and gives the same. The first calls
run as they are, so that everything is compiled and loaded; then one is captured for each set of sizes and numbers. A
replay reads arguments from memory of its own, where they are copied to, and tensors around the function where they are;
if one of those has moved, the program is captured again. Whole training steps write into those, and are told learning
rates and counts of steps by the host (replayed_steps.py). Results are copies: the next replay overwrites what this one
wrote, and callers may keep what they are given. What cannot be captured runs as before, and says why.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.errors import IngotError
from ingot.base.forks import new_lock
from ingot.frontend.jit.autotune.timing import is_capturing
from ingot.frontend.jit.lowering.partition import Partition, Region
from ingot.frontend.jit.lowering.replayed_steps import HostInputs, HostMemory, is_count, why_not_captured
from ingot.frontend.jit.trace.trace import TraceArgument

WARM_UP = 2
"""Calls before one is captured."""
MOST_GRAPHS = 8
"""Graphs that are kept for one program; calls with other sizes and numbers run as they are."""
MOST_CAPTURES = 4
"""Times that a program is captured for the same sizes and numbers because tensors have moved."""

Function = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]


class _CannotReplay(Exception):
    """A program whose replay would differ from its run; the text says why."""


@dataclass(slots=True)
class _Captured:
    """A graph and the memory that it reads and writes."""

    graph: Any
    inputs: list[torch.Tensor]
    results: list[Any]
    around: tuple[int, ...]
    """Where the tensors around the function were."""
    host: HostMemory
    is_new: bool = True
    """Whether it has not been replayed yet."""
    stream: Any = None
    """Where it was replayed last."""
    lock: threading.RLock = field(default_factory=new_lock)

    def replay(
        self,
        given: Sequence[torch.Tensor],
        environment_tensors: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        device: torch.device,
    ) -> list[Any]:
        with self.lock, torch.no_grad():
            stream = _current_stream(device)
            if self.stream is not None and self.stream != stream:
                stream.wait_stream(self.stream)
            self.stream = stream
            if self.inputs:
                torch._foreach_copy_(self.inputs, list(given))
            self.host.fill(environment_tensors, numbers)
            self.graph.replay()
            self.host.count_writes(environment_tensors, self.is_new)
            self.is_new = False
            return _copies(self.results)


class Replayed:
    """A program's function that becomes graphs. Threads may share it."""

    def __init__(self, function: Function, steps: Partition):
        self._function = function
        self._device = steps.versions.trace.device
        leaves = [leaf.note.origin for leaf in steps.leaves]
        self._passed = sorted({origin.position for origin in leaves if isinstance(origin, TraceArgument)})
        self._host = HostInputs.of(steps)
        self._writes = steps.versions.mutates_leaves
        self.why_not = _why_not(steps, self._host)
        """Why the program is not captured, if it is not."""
        self._calls: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, _Captured] = {}
        self._captures: Counter[Hashable] = Counter()
        self._lock = new_lock()

    def __call__(
        self, arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]
    ) -> list[Any]:
        if self.why_not is not None or is_capturing():
            return self._function(arguments, environment_tensors, numbers)
        key = (*(arguments[position].shape for position in self._passed), *self._host.key_of(numbers))
        found = self._graphs.get(key)
        if found is None or found.around != _addresses(environment_tensors):
            found = self._capture(key, arguments, environment_tensors, numbers)
        if found is None:
            return self._function(arguments, environment_tensors, numbers)
        given = [arguments[position] for position in self._passed]
        return found.replay(given, environment_tensors, numbers, self._device)

    @property
    def text(self) -> str:
        """What has become of it, in words."""
        if self.why_not is not None:
            return f"not replayed as a CUDA graph: {self.why_not}"
        count = len(self._graphs)
        return (
            f"replayed as {count} CUDA graph{'' if count == 1 else 's'}" if count else "to be captured as a CUDA graph"
        )

    def _capture(
        self, key: Hashable, arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]
    ) -> _Captured | None:
        """The graph for calls like this; None if there is none yet, or never will be."""
        with self._lock:
            self._calls[key] += 1
            is_known = key in self._graphs
            is_full = len(self._graphs) >= MOST_GRAPHS and not is_known
            if is_full or self._calls[key] <= WARM_UP or self._captures[key] >= MOST_CAPTURES:
                return None
            self._captures[key] += 1
            try:
                made = self._captured(arguments, environment_tensors, numbers)
            except (_CannotReplay, RuntimeError, IngotError) as error:
                self.why_not = str(error).splitlines()[0]
                return None
            self._graphs[key] = made
            return made

    def _captured(
        self, arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]
    ) -> _Captured:
        given = list(arguments)
        with torch.no_grad():
            for position in self._passed:
                given[position] = _copy(arguments[position])
            host = HostMemory.of(self._host, environment_tensors, self._device)
        around, told = host.stand_ins(environment_tensors, numbers)
        written = around if self._writes else ()
        before = [tensor._version for tensor in written]
        graph, results = _capture(lambda: self._function(given, around, told), self._device)
        host.note_writes(before, written)
        _check_results(results, [*given, *environment_tensors])
        inputs = [given[position] for position in self._passed]
        return _Captured(graph, inputs, results, _addresses(environment_tensors), host)


def _why_not(steps: Partition, host: HostInputs) -> str | None:
    device = steps.versions.trace.device
    if len(steps.steps) < 2:
        return "it is a single step, which native code launches as quickly as a graph"
    if steps.versions.mutates_leaves and (refused := why_not_captured(steps)) is not None:
        return refused
    versions = [*steps.leaves, *steps.versions.results]
    for step in steps.steps:
        versions += step.inputs if isinstance(step, Region) else step.operation.operands
    others = (version for version in versions if version.note.device != device and not is_count(version, host))
    elsewhere = next((version.note.device for version in others), None)
    return None if elsewhere is None else f"some of its tensors are on {elsewhere}"


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's twin in memory of its own, of the same strides."""
    made = tensor.detach().clone()
    if made.stride() != tensor.stride():
        raise _CannotReplay("an argument is part of other memory, or some of its elements share theirs")
    return made


def _check_results(results: Sequence[Any], before: Sequence[torch.Tensor]) -> None:
    """Check that copies can stand in for the results: the same layout, and no memory shared that callers know of."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in before}
    for result in results:
        if not isinstance(result, torch.Tensor):
            continue
        memory = result.untyped_storage().data_ptr()
        if memory in taken and result.numel():
            raise _CannotReplay("its results share memory with its arguments, with tensors around it or each other")
        if torch.empty_like(result).stride() != result.stride():
            raise _CannotReplay("a result is part of larger memory")
        taken.add(memory)


def _copies(results: Sequence[Any]) -> list[Any]:
    """Results in memory of their own, those of one type copied at once."""
    copies = [torch.empty_like(one) if isinstance(one, torch.Tensor) else one for one in results]
    alike: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for copy, result in zip(copies, results, strict=True):
        if isinstance(result, torch.Tensor):
            targets, sources = alike.setdefault(result.dtype, ([], []))
            targets.append(copy)
            sources.append(result)
    for targets, sources in alike.values():
        torch._foreach_copy_(targets, sources)
    return copies


def _addresses(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)


def _current_stream(device: torch.device) -> Any:
    return torch.cuda.current_stream(device)


def _capture(run: Callable[[], list[Any]], device: torch.device) -> tuple[Any, list[Any]]:
    """A graph of what a function asks of a device, and what it returned; other threads go on meanwhile."""
    graph = torch.cuda.CUDAGraph()
    before, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    beside.wait_stream(before)
    with torch.cuda.stream(beside):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            results = run()
        finally:
            graph.capture_end()
    before.wait_stream(beside)
    return graph, results
