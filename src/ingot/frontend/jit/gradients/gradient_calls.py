"""Calls of one kind that need gradients, and what they become: recorded once with their backward pass, two programs.

In: the trace of the first such call, of a function whose Python is known to do nothing but what was recorded; later
what a call and its backward pass have done together, and how long calls take. Out: the two programs, or why such calls
run eagerly. What always holds: what was refused once stays refused. `answering.py` has the ways that a call takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import torch

from ingot.base.collecting import collecting_later
from ingot.base.errors import IngotError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.autotune.timing import is_capturing
from ingot.frontend.jit.gradients.eligibility import written_leaves
from ingot.frontend.jit.gradients.joint_trace import JointTrace
from ingot.frontend.jit.gradients.saved_values import Split, split
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram, compile_trace
from ingot.frontend.jit.trace.trace import Trace, TraceValue, tags_of
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.torch_state import State, state_of_torch


@dataclass(eq=False, slots=True)
class GradientPrograms:
    """What a recorded call and its backward pass became."""

    joint: JointTrace
    split: Split
    forward: RecordedProgram
    backward: RecordedProgram | None = None
    """Written when the first backward pass comes."""

    @property
    def all(self) -> Sequence[RecordedProgram]:
        return [self.forward, *([] if self.backward is None else [self.backward])]


@dataclass(eq=False, slots=True)
class GradientCalls:
    """All calls of one kind."""

    trace: Trace
    """What the first of them did."""
    compiler: JitCompiler
    build_result: Callable[[Sequence[Any]], Any]
    still_holds: Callable[[], bool]
    """Whether what the function finds around itself is as it was."""
    name: str
    refused: str | None = None
    """Why calls run eagerly for good, if they do."""
    programs: GradientPrograms | None = None
    eager_comparison: EagerComparison = field(default_factory=EagerComparison)
    compile_seconds: float = 0.0
    calls: int = 0
    written: Sequence[TraceValue] = ()
    """Leaves that calls write into."""
    draws: bool = False
    """Whether calls draw random numbers."""
    state: State = field(default_factory=state_of_torch)
    """torch's settings, which are part of what makes calls alike."""
    _recorded: JointTrace | None = None
    _next_recording: int = 1
    """The call that is recorded next, if no backward pass has come until then."""
    _lock: Any = field(default_factory=new_lock)

    def __post_init__(self) -> None:
        self.written = written_leaves(self.trace, self.trace.events)
        tags = [tags_of(event.target) for event in self.trace.events]
        self.draws = any(torch.Tag.nondeterministic_seeded in one for one in tags)

    @property
    def is_idle(self) -> bool:
        """Whether the next call is the function's as it is: no backward pass has come since the last recording."""
        is_compiled = self.programs is not None or self._recorded is not None
        return not is_compiled and self.calls + 1 < self._next_recording

    @property
    def is_settled(self) -> bool:
        """Whether the next calls are compiled ones, and there is nothing left to measure."""
        return self.refused is None and self.programs is not None and self.eager_comparison.is_settled

    def is_recorded_next(self) -> bool:
        """Whether to record this call; the next one to record then comes later."""
        with self._lock:
            if self.calls < self._next_recording or is_capturing():
                return False
            self._next_recording = 2 * self.calls
            return True

    def prepare(self) -> GradientPrograms | None:
        """The programs, if a backward pass has come."""
        joint = self._recorded
        if joint is None:
            return self.programs
        start = time.perf_counter()
        with self._lock, collecting_later():
            if self.programs is None and self.refused is None:
                try:
                    parts = split(joint, self.compiler.config["numerics"])
                    program = compile_trace(parts.forward, self.compiler)
                except IngotError as error:
                    self.refuse(f"{type(error).__name__}: {error}")
                    return None
                self.programs = GradientPrograms(joint, parts, program)
                self._recorded = None
                self.compile_seconds += time.perf_counter() - start
        return self.programs

    def take(self, joint: JointTrace) -> None:
        """Note what a call and its backward pass have done."""
        if self.programs is None:
            self._recorded = joint

    def backward_program(self, programs: GradientPrograms) -> RecordedProgram:
        if programs.backward is None:
            start = time.perf_counter()
            with self._lock, collecting_later():
                programs.backward = programs.backward or compile_trace(programs.split.backward, self.compiler)
            self.compile_seconds += time.perf_counter() - start
        return programs.backward

    def refuse(self, reason: str) -> None:
        """Run calls like these eagerly from now on."""
        self.refused, self.programs, self._recorded = reason, None, None
        log("fallbacks", f"{self.name} runs eagerly where gradients are needed: {reason}")

    def note(self, seconds: SupportsFloat, is_eager: bool) -> None:
        """A call and its backward pass took so long."""
        if self.eager_comparison.is_settled:
            return
        if is_eager:
            self.eager_comparison.eager.append(seconds)
        else:
            self.eager_comparison.note_program(seconds)
        if self.eager_comparison.prefers_eager:
            self.refuse(self.eager_comparison.text)
