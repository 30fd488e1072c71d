"""One way a function can go: a recorded call, and the program for later calls like it.

A specialisation holds for calls with equal keys while its watch sees no change. The first call is eager's own; the
program is written when a second one comes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.structure import Shape, builder_of, mutable_containers, take_apart
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.guards.environment import Environment, environment_of
from ingot.frontend.jit.lowering.program import Program, compile_trace
from ingot.frontend.jit.proof import SizeFacts
from ingot.frontend.jit.trace.questions import effect_before_questions
from ingot.frontend.jit.trace.recorder import Broken, Recording
from ingot.frontend.jit.trace.trace import Argument, Made, Trace
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.overlaps import addresses_of, are_joined

RESULT_NEEDS_GRADIENTS = "its result needs gradients"
"""Why nothing stands in for Python while gradients are recorded."""
_TensorType = tuple[torch.dtype, torch.Size, tuple[int, ...], torch.device]
"""dtype, shape, strides and device"""


@dataclass(eq=False, slots=True)
class Specialisation:
    """A recorded call and what came of it."""

    surroundings: Environment
    objects: list[tuple[str, Any]]
    """The arguments that count by identity, held so that nothing takes their identity."""
    trace: Trace | None = None
    broken: Broken | None = None
    """Why calls like this one run eagerly, if they do."""
    result_shape: Shape | None = None
    program: Program | None = None
    compile_seconds: float = 0.0
    record_seconds: float = 0.0
    calls: int = 0
    calls_seen: int = 0
    """Calls that it had answered when recordings that are not used were last looked for."""
    trial: EagerComparison = field(default_factory=EagerComparison)
    lock: threading.RLock = field(default_factory=new_lock)
    build_result: Callable[[Sequence[Any]], Any] | None = None
    passed: int = 0
    """How many tensors are passed, one that is passed twice counted twice."""
    looked_at: frozenset[int] = frozenset()
    """Numbers among the arguments whose value Python asked for, by their place."""
    checks_overlap: bool = True
    """Whether tensors that are written may share memory with others in some calls and not in others."""
    prefers_eager: bool = False
    """Whether calls like this one are best left to PyTorch as they are."""
    audits: Audits | None = None
    """When Python runs all the same, to be compared with the recording; never, where there is no Python."""

    calls_until_another: float = math.inf
    """Calls that run in Python because of `broken` before another like them is recorded."""
    sizes: SizeFacts | None = None
    """How Python used the sizes that it read, where that is proven."""

    def allow_open_sizes(self, facts: SizeFacts | None) -> None:
        """Take note of what is proven of sizes, if it is about the very reads that were recorded."""
        if facts is None or self.trace is None or self.trace.has_unseen_queries:
            return
        queries = self.trace.size_queries
        seen = [(query.name, self.trace.note(query.register).shape) for query in queries]
        if seen == [(read.name, read.shape) for read in facts.reads]:
            self.sizes = facts

    def let_go(self, outermost: torch.nn.Module | None) -> None:
        """Hold nothing of the user's: this stands for nothing."""
        self.surroundings.let_go(outermost)
        self.objects = []

    def changed(self) -> str | None:
        """What has changed around the function since the recording; None if it still holds."""
        changed = self.surroundings.watch.changed()
        if changed is not None or self.trace is None:
            return changed
        grad_mode = torch.is_grad_enabled()
        for tensor, (dtype, shape, strides, device) in zip(
            self.trace.surroundings, self._surrounding_types, strict=True
        ):
            is_like_it = tensor.dtype is dtype and tensor.shape == shape and tensor.stride() == strides
            if not is_like_it or tensor.device != device:
                return self.surroundings.names.get(id(tensor), "a tensor around it")
            if grad_mode and tensor.requires_grad:
                return f"{self.surroundings.names.get(id(tensor), 'a tensor around it')}.requires_grad"
        return None

    def note_unseen(self) -> None:
        """Take note that a call without Python ended at an answer which was never seen; paths alone have such."""

    def shares_memory_anew(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether tensors of a call share memory, with each other or with those around, that did not before."""
        assert self.trace is not None
        if not self.checks_overlap:
            return False
        memories: list[tuple[range, int]] = []
        for note in self.trace.tensors:
            if isinstance(note.origin, Made):
                continue
            source = tensors if isinstance(note.origin, Argument) else self.trace.surroundings
            tensor = source[note.origin.position]
            if tensor.numel():
                memories.append((addresses_of(tensor), note.storage))
        return are_joined(memories)

    _surrounding_types: list[_TensorType] = field(default_factory=list)

    def prepare(self, compiler: JitCompiler, is_frozen: bool = False, is_replayed: bool = False) -> Program:
        """The program, written at the first need."""
        with self.lock:
            if self.program is None:
                assert self.trace is not None
                start = time.perf_counter()
                self.program = compile_trace(
                    self.trace, compiler, is_frozen, is_replayed, is_private=not self.checks_overlap
                )
                self.compile_seconds += time.perf_counter() - start
            return self.program


def record(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    described: CallKey,
    outermost: torch.nn.Module | None,
    strict: bool,
    environment: Environment | None = None,
    reads_attributes: bool = True,
    allows_questions: bool = False,
) -> tuple[Any, Specialisation]:
    """Call a function eagerly and note down what it does: its result, and the specialisation for calls like this.

    `environment` is what the function can reach besides its arguments; left out, it is looked for. Code that reads
    attributes which user code has given tensors is not recorded where there are any. Where questions are allowed, the
    recording may be that of one path among several.
    """
    start = time.perf_counter()
    surroundings = environment_of(function, described.objects) if environment is None else environment
    made = Specialisation(surroundings, described.objects, passed=len(described.tensors))
    hooked = surroundings.hooked(outermost)
    recording = Recording(described.tensors, surroundings, strict, reads_attributes, allows_questions)
    if hooked is not None:
        recording.stop(f"{hooked} has hooks, which are Python code")
    result = recording.run(function, args, kwargs)
    made.result_shape = take_results(recording, result)
    made.build_result = builder_of(made.result_shape)
    held = {id(one) for one in mutable_containers((args, kwargs))} | surroundings.seen.keys()
    returned = [id(one) for one in mutable_containers(result)]
    if len(set(returned)) < len(returned) or not held.isdisjoint(returned):
        recording.stop("it returns a list, a dictionary or an object that is also held elsewhere")
    changed = surroundings.watch.changed()
    if changed is not None:
        recording.stop(f"the call changes {changed}, which is not a tensor's value")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in recording.trace.surroundings):
        recording.stop(RESULT_NEEDS_GRADIENTS)
    made.broken = recording.broken
    effect = effect_before_questions(recording.trace)
    if made.broken is None and effect is not None:
        made.broken = Broken(*effect)
    if made.broken is None:
        made.trace = recording.trace
        made._surrounding_types = [(t.dtype, t.shape, t.stride(), t.device) for t in made.trace.surroundings]
    made.record_seconds = time.perf_counter() - start
    return result, made


def take_results(recording: Recording, result: Any) -> Shape:
    """Note what the function returned, and how it is nested; results must be tensors of the recording and plain
    values."""
    leaves: list[Any] = []
    shape = take_apart(result, leaves)
    noted: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if leaf.requires_grad:
                recording.stop(RESULT_NEEDS_GRADIENTS)
            if vars(leaf):
                recording.stop("it returns a tensor that has attributes of its own")
            register = recording.value_of(leaf)
            if register is None:
                recording.stop("it returns a tensor that was made outside PyTorch's operators")
            noted.append(register)
        elif isinstance(leaf, _PLAIN_RESULTS):
            noted.append(leaf)
        else:
            recording.stop(f"it returns a {type(leaf).__name__}, which would be the same object at every call")
    recording.trace.results = noted
    return shape


_PLAIN_RESULTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice)
