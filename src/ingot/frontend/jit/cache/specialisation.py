"""One specialisation of a function: a recorded call, and the program for later calls like it.

A specialisation holds for calls with equal keys while its guards hold. The first call is eager's own; the program is
written when a second one comes.
"""

from __future__ import annotations

import math
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.collecting import collecting_later
from ingot.base.forks import new_lock
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.structure import Shape, builder_of, mutable_containers
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.cache.native_guards import NativeGuards
from ingot.frontend.jit.gradients.eligibility import why_never
from ingot.frontend.jit.gradients.gradient_calls import GradientCalls
from ingot.frontend.jit.gradients.whole_steps import as_whole_step, needs_more_gradients, with_more_results
from ingot.frontend.jit.guards.environment import Environment, environment_of
from ingot.frontend.jit.guards.proven import ProvenGuards
from ingot.frontend.jit.lowering.branches import single_path
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram, compile_trace, with_checked_weights
from ingot.frontend.jit.proof import SizeFacts
from ingot.frontend.jit.proof.domain.result_caches import KeptCall
from ingot.frontend.jit.trace.object_changes import ObjectChanges
from ingot.frontend.jit.trace.questions import draws, effect_before_questions, writes_leaves
from ingot.frontend.jit.trace.recorder import Broken, Recording
from ingot.frontend.jit.trace.results import take_results
from ingot.frontend.jit.trace.trace import EnvironmentTensor, GradientOf, Trace, TraceArgument
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.overlaps import KnownMemory, addresses_of, are_joined

RESULT_NEEDS_GRADIENTS = "its result needs gradients"
"""Why nothing stands in for Python while gradients are recorded."""
_TensorType = tuple[torch.dtype, torch.Size, tuple[int, ...], torch.device, bool]
"""dtype, shape, strides, device, and whether it needs gradients"""


@dataclass(eq=False, slots=True)
class Specialisation:
    """A recorded call and what came of it."""

    environment: Environment
    objects: list[tuple[str, Any]]
    """The arguments that count by identity, held so that nothing takes their identity."""
    trace: Trace | None = None
    broken: Broken | None = None
    """Why calls like this one run eagerly, if they do."""
    result_shape: Shape | None = None
    program: RecordedProgram | None = None
    compile_seconds: float = 0.0
    record_seconds: float = 0.0
    calls: int = 0
    calls_seen: int = 0
    """How many calls it had answered when unused recordings were last looked for."""
    eager_comparison: EagerComparison = field(default_factory=EagerComparison)
    lock: threading.RLock = field(default_factory=new_lock)
    build_result: Callable[[Sequence[Any]], Any] | None = None
    passed: int = 0
    """How many tensors are passed, one that is passed twice counted twice."""
    looked_at: frozenset[int] = frozenset()
    """Numbers among the arguments whose value Python asked for, by their place."""
    checks_overlap: bool = True
    """Whether tensors that are written may share memory with others in some calls and not in others."""
    needs_gradients: bool = False
    """Whether results were made in grad mode of tensors that need gradients."""
    gradients: GradientCalls | None = None
    """What takes such calls, unless PyTorch does."""
    prefers_eager: bool = False
    """Whether calls like this one are best left to PyTorch as they are."""
    audits: Audits | None = None
    """When Python runs all the same, to be compared with the recording; never, where there is no Python."""

    calls_until_another: float = math.inf
    """Calls that run in Python because of `broken` before another like them is recorded."""
    sizes: SizeFacts | None = None
    """How Python used the sizes that it read, where that is proven."""
    is_kept: bool = False
    """Whether it is on disk, for later processes or from an earlier one, or cannot be."""
    is_taken_up: bool = False
    """Whether it comes from the disk: an earlier process has recorded it, or another function of this one."""
    ran: frozenset[types.CodeType] | None = None
    """The code that the recorded call has run, until it is known whether the recording stands in for it; None where it
    is not known."""
    repeated: Sequence[KeptCall] = ()
    """Calls of functions that keep a limited number of results, which are repeated when a program has answered."""
    changes: ObjectChanges | None = None
    """What calls leave in the objects that they are given, the last results of the trace; None where none are given."""
    called: frozenset[int] = frozenset()
    """Events that regions are known to leave to PyTorch, before the program is written."""

    def note_results(self, shape: Shape) -> None:
        """Take note of how results are nested, and of what the tensors around the function are like."""
        self.result_shape = shape
        self.build_result = builder_of(shape)
        grad_mode = torch.is_grad_enabled()
        self._environment_types = [
            (one.dtype, one.shape, one.stride(), one.device, grad_mode and one.requires_grad)
            for one in (self.trace.environment_tensors if self.trace is not None else ())
        ]

    def result_of(self, results: Sequence[Any], described: CallKey) -> Any:
        """What a call returns for which the program gave these results, when its objects have been changed."""
        assert self.build_result is not None
        if self.changes is None or described.given is None:
            return self.build_result(results)
        return self.changes.finish(self.build_result, results, described.given)

    @property
    def repeats_errors(self) -> bool:
        """Whether Python runs where the program raises an error: it may have changed objects before that line."""
        return self.changes is not None and bool(self.changes.changes)

    def knows(self, described: CallKey) -> bool:
        """Whether guards hold something of the objects that a call is given: then what the recording takes for two
        things may be one."""
        if described.given is None:
            return False
        if self._native is None:  # native records answer no such calls
            self._native = NativeGuards()
        if self._guarded is None:
            guards = self.environment.guards
            self._guarded = guards.identities() if isinstance(guards, ProvenGuards) else frozenset()
        return not self._guarded.isdisjoint(described.given.identities())

    def repeat(self, calls: Sequence[KeptCall]) -> None:
        """Have some calls made again whenever a program has answered."""
        build = self.build_result
        assert build is not None and not self.repeated

        def built(results: Sequence[Any]) -> Any:
            for call in calls:
                call.repeat()
            return build(results)

        if calls:
            self.repeated, self.build_result = calls, built

    def allow_open_sizes(self, facts: SizeFacts | None) -> None:
        """Take note of what is proven of sizes, if it is about the very reads that were recorded."""
        if facts is None or self.trace is None or self.trace.has_unseen_queries:
            return
        queries = self.trace.size_queries
        seen = [(query.name, self.trace.note(query.register).shape) for query in queries]
        if seen == [(read.name, read.shape) for read in facts.reads]:
            self.sizes = facts

    def let_go(self, outermost: torch.nn.Module | None) -> None:
        """Let go of the user's objects: this recording answers no calls."""
        self.environment.let_go(outermost)
        self.objects = []

    def is_unprepared(self, recording: Specialisation) -> bool:
        """Whether no program has been written for a recording that this holds, and this holds nothing else."""
        return recording.program is None

    @property
    def why_broken(self) -> Broken | None:
        """Why nothing stands in for Python, if nothing does."""
        if self.gradients is not None:
            refused = self.gradients.refused
            return None if refused is None else Broken(f"{RESULT_NEEDS_GRADIENTS}, and {refused}", "")
        return self.broken

    @property
    def trains(self) -> bool:
        """Whether it stands for calls that differentiate within."""
        return self.trace is not None and self.trace.training is not None

    @property
    def recorded(self) -> Trace | None:
        """What was recorded and can stand in for Python, as far as is proven."""
        return self.trace if self.gradients is None else self.gradients.trace

    @property
    def is_differentiated(self) -> bool:
        """Whether programs answer calls like it with gradients, and there is nothing left to measure."""
        return self.gradients is not None and self.gradients.is_settled

    @property
    def leaves_gradients(self) -> bool:
        """Whether what it does not answer needs gradients, so that PyTorch does."""
        return self.gradients is not None

    def path_of(self, tensors: Sequence[torch.Tensor]) -> Specialisation:
        """The recording that stands for a call with these tensors: itself, where it has no paths."""
        return self

    @property
    def standing_in(self) -> Trace | None:
        """What was recorded and stands in for Python, if anything does."""
        if self.gradients is not None and self.gradients.refused is None:
            return self.gradients.trace
        return self.trace

    def changed(self) -> str | None:
        """What has changed around the function since the recording; None if it still holds."""
        trace, native = self.standing_in, self._native
        if trace is None or native is None:
            return self._what_changed()
        if native():
            return None
        changed = self._what_changed()
        if changed is None:
            native.learn(self.environment.guards, trace.environment_tensors)
        return changed

    def _what_changed(self) -> str | None:
        changed = self.environment.guards.changed()
        trace = self.standing_in
        if changed is not None or trace is None:
            return changed
        grad_mode = torch.is_grad_enabled()
        for tensor, (dtype, shape, strides, device, needs_gradients) in zip(
            trace.environment_tensors, self._environment_types, strict=True
        ):
            is_like_it = tensor.dtype is dtype and tensor.shape == shape and tensor.stride() == strides
            if not is_like_it or tensor.device != device:
                return self.environment.names.get(id(tensor), "a tensor around it")
            if grad_mode and tensor.requires_grad is not needs_gradients:
                return f"{self.environment.names.get(id(tensor), 'a tensor around it')}.requires_grad"
        return None

    def note_unseen(self) -> None:
        """Take note that a call without Python ended at an answer which was never seen; paths alone have such."""

    def shares_memory_anew(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether tensors of a call share memory, with each other or with those around, that did not before."""
        trace = self.standing_in
        assert trace is not None
        if not self.checks_overlap:
            return False
        found, leaves = trace.environment_tensors, self._leaves_of(trace)
        pointers = [tensor.data_ptr() for tensor in found]
        if self._around is None or self._around[0] != pointers:
            memories = [(addresses_of(found[position]), number) for position, number in leaves[EnvironmentTensor]]
            self._around = pointers, KnownMemory(memories)
        around = self._around[1]
        passed = [(addresses_of(tensors[position]), number) for position, number in leaves[TraceArgument]]
        for position, number in leaves[GradientOf]:
            gradient = found[position].grad
            passed += [] if gradient is None else [(addresses_of(gradient), number)]
        if self._apart is not None and self._apart[0] is around and self._apart[1] == passed:
            return False
        if around.are_joined or any(around.meets(*one) for one in passed) or are_joined(passed):
            return True
        self._apart = around, passed
        return False

    def _leaves_of(self, trace: Trace) -> dict[type, list[tuple[int, int]]]:
        """For each kind of leaf, the positions of those that have elements, and the numbers of their memory."""
        if self._leaves is None:
            leaves = {kind: [] for kind in (TraceArgument, EnvironmentTensor, GradientOf)}
            for note in trace.tensors:
                if note.is_leaf and note.nbytes:
                    leaves[type(note.origin)].append((note.origin.position, note.storage))  # type: ignore[union-attr]
            self._leaves = leaves
        return self._leaves

    _native: NativeGuards | None = None
    """The guards in machine code, for calls that come to Python because of their arguments."""
    _guarded: frozenset[int] | None = None
    """The identities of what guards look at; the guards hold these objects."""
    _leaves: dict[type, list[tuple[int, int]]] | None = None
    _around: tuple[list[int], KnownMemory] | None = None
    """Where the tensors around the function lay when that was last looked at, and their memory."""
    _apart: tuple[KnownMemory, list[tuple[range, int]]] | None = None
    """Memory of a call's tensors that shares nothing anew with that memory: often the next call's is the same."""
    _environment_types: list[_TensorType] = field(default_factory=list)

    def differentiate(self, compiler: JitCompiler, name: str) -> None:
        """Have programs answer calls like this one with gradients, if they can, and otherwise PyTorch."""
        trace, self.trace = self.trace, None
        assert trace is not None and self.build_result is not None
        reason = why_never(trace)
        self.broken = Broken(RESULT_NEEDS_GRADIENTS + (f", and {reason}" if reason else ""), "")
        if reason is None:
            still_holds = lambda: self.changed() is None
            self.gradients = GradientCalls(trace, compiler, self.build_result, still_holds, name)
            if compiler.config["enable_profiling"]:
                self.gradients.eager_comparison.rounds = 0

    def prepare(self, compiler: JitCompiler, is_frozen: bool = False, is_replayed: bool = False) -> RecordedProgram:
        """The program, written at the first need."""
        with self.lock:
            if self.program is None:
                assert self.trace is not None
                start, trace = time.perf_counter(), self.trace
                if trace.questions and trace.training is None:
                    self.program = single_path(trace, self.passed, compiler, is_frozen)
                    self.compile_seconds += time.perf_counter() - start
                    return self.program
                is_private = not self.checks_overlap
                program = compile_trace(
                    with_more_results(trace), compiler, is_frozen, is_replayed, is_private, self.called
                )
                if not is_frozen:
                    program = with_checked_weights(program, trace, compiler, is_private)
                self.program = program if trace.training is None else as_whole_step(program, trace, trace.training)
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
    is_proven: bool = False,
) -> tuple[Any, Specialisation]:
    """Call a function eagerly and note down what it does: its result, and the specialisation for calls like this.

    `environment` is what the function can reach besides its arguments; left out, it is looked for. Code that reads
    attributes which user code has given tensors is not recorded where there are any. Where questions are allowed, the
    recording may be that of one path among several. Where nothing stands in for Python unless it
    `is_proven`, hooks of modules are left to the proof, and whether tensors of unknown origin are constants.
    """
    start = time.perf_counter()
    if environment is None:
        with collecting_later():
            environment = environment_of(function, described.objects)
    made = Specialisation(environment, described.objects, passed=len(described.tensors))
    hooked = None if is_proven else environment.hooked(outermost)
    recording = Recording(described.tensors, environment, strict, reads_attributes, allows_questions, is_proven)
    if hooked is not None:
        recording.stop(f"{hooked} has hooks, which are Python code")
    result = recording.run(function, args, kwargs)
    shape, made.changes = take_results(recording, result, described.given)
    held = {id(one) for one in mutable_containers((args, kwargs))} | environment.seen.keys()
    if described.given is not None:
        held |= described.given.places.keys()
    returned = [id(one) for one in mutable_containers(result)]
    if len(set(returned)) < len(returned) or not held.isdisjoint(returned):
        recording.stop("it returns a list, a dictionary or an object that is also held elsewhere")
    changed = environment.guards.changed()
    if changed is not None:
        recording.stop(f"the call changes {changed}, which is not a tensor's value")
    grad_mode = torch.is_grad_enabled()
    leaves = (*described.tensors, *recording.trace.environment_tensors)
    made.needs_gradients = grad_mode and any(tensor.requires_grad for tensor in leaves)
    if made.changes is not None:
        _require_nothing_else(recording, made.changes, made.needs_gradients)
    training = recording.trace.training
    if training is not None:
        made.needs_gradients = needs_more_gradients(result, training)
        if made.needs_gradients:
            recording.stop("it trains, and returns what can still be differentiated")
    made.broken = recording.broken
    # Questions of steps may turn out to be numbers that are returned: their proof tells (trace/questions.py).
    effect = effect_before_questions(recording.trace) if training is None else None
    if made.broken is None and effect is not None:
        made.broken = Broken(*effect)
    if made.broken is None:
        made.trace = recording.trace
    made.note_results(shape)
    made.ran = recording.ran
    made.record_seconds = time.perf_counter() - start
    return result, made


def _require_nothing_else(recording: Recording, changes: ObjectChanges, needs_gradients: bool) -> None:
    """Have a recording end where a call does more than change the objects that it was given: after an error in the
    middle ingot could not tell how much of both Python has done."""
    if needs_gradients:
        recording.stop("it is given an object with state, and its result needs gradients")
    if changes.changes and (writes_leaves(recording.trace) or draws(recording.trace)):
        recording.stop("it changes an object that it was given, and also writes into tensors or draws random numbers")
