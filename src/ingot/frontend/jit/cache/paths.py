"""Paths: recordings of one kind of call that differ in what Python decided by the values of tensors.

In: recorded paths. Out: one specialisation for all of them, whose program takes the path that the values of a call
decide. Where gradients are needed, its program only finds the path, which has programs of its own. What always holds:
it answers calls only while the guards of all its paths hold.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.autotune.eager_comparison import CLEARLY
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.gradients.whole_steps import as_whole_step, with_more_results
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.guards.guards import Guards
from ingot.frontend.jit.guards.proven import ProvenGuards
from ingot.frontend.jit.lowering.branches import BranchingProgram, branching_program
from ingot.frontend.jit.lowering.pieces import DifferentPaths, Piece, tree_of, with_common_environment
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram
from ingot.frontend.jit.proof import Proof
from ingot.frontend.jit.trace.questions import questions_alone, ready_to_cut
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.dispatch.conditions import Places

MOST_PATHS = 16
"""Paths that are recorded for one kind of call; where there are more, its Python runs."""
_MOST_UNSEEN = 0.25
"""The largest share of calls that may take paths which are not recorded, once no more paths are recorded."""
_LONG_ENOUGH = 16
"""After this many calls the comparison with eager ends, even if some paths were hardly ever taken."""


@dataclass(slots=True)
class JoinedGuards(Guards):
    """The guards of several recordings."""

    parts: Sequence[Guards] = ()

    def changed(self) -> str | None:
        return next(filter(None, (part.changed() for part in self.parts)), None)

    def add_to(self, places: Places) -> bool:
        return all(part.add_to(places) for part in self.parts)


def joined(parts: Sequence[Guards]) -> Guards:
    """Guards that hold where all of these do; places that several look at are looked at once, where that is known."""
    proven = [part.proof for part in parts if isinstance(part, ProvenGuards)]
    if len(proven) < len(parts):
        return JoinedGuards(parts=parts)
    by_key = {key: guard for proof in proven for key, guard in zip(proof.keys, proof.guards, strict=True)}
    arguments, absent = ([one for proof in proven for one in getattr(proof, name)] for name in ("arguments", "absent"))
    return ProvenGuards(proof=Proof(list(by_key.values()), arguments, absent, [], keys=list(by_key)))


class _Unseen(threading.local):
    """Whether the call that a thread makes now has met an answer that was never seen."""

    is_noted = False


@dataclass(eq=False, slots=True)
class Paths(Specialisation):
    """Recorded paths of one kind of call. It is replaced when a path is added."""

    paths: list[Specialisation] = field(default_factory=list)
    attempts: int = 0
    """How often a path was to be recorded, with those that ended in an exception."""
    traces: list[Trace] = field(default_factory=list)
    """What the tree was cut from: the paths with one list of environment tensors."""
    tree: Piece | None = None
    unseen: int = 0
    """Calls that took other paths after the last attempt."""
    _noted: _Unseen = field(default_factory=_Unseen)

    @staticmethod
    def of(paths: list[Specialisation], attempts: int) -> Paths:
        """The specialisation for these paths, the latest of which is the last; DifferentPaths where they contradict
        each other."""
        latest = paths[-1]
        if len({path.needs_gradients for path in paths}) > 1:
            raise DifferentPaths("gradients are needed after some answers of tensors, and not after others")
        recorded = [path.recorded for path in paths if path.recorded is not None]
        cut = list(map(questions_alone, recorded)) if latest.needs_gradients else ready_to_cut(recorded)
        traces = with_common_environment(cut)
        types = {}
        for path, trace in zip(reversed(paths), reversed(recorded), strict=True):
            types |= {id(tensor): one for tensor, one in zip(trace.environment_tensors, path._environment_types)}  # noqa: B905
        made = Paths(
            Environment(guards=joined([path.environment.guards for path in paths])),
            latest.objects,
            trace=traces[-1],
            result_shape=latest.result_shape,
            build_result=_as_it_is,
            record_seconds=sum(path.record_seconds for path in paths),
            compile_seconds=sum(path.compile_seconds for path in paths),
            passed=latest.passed,
            looked_at=latest.looked_at,
            checks_overlap=latest.checks_overlap,
            needs_gradients=latest.needs_gradients,
            audits=None if latest.audits is None else Audits(),
            paths=paths,
            attempts=attempts,
            traces=traces,
            tree=tree_of(list(map(with_more_results, traces)), latest.passed),
        )
        made._environment_types = [types[id(tensor)] for tensor in traces[-1].environment_tensors]
        for path in paths:
            made.environment.names |= path.environment.names
        made.eager_comparison.rounds, made.eager_comparison.is_warm = 0, True  # paths are compared one by one
        return made

    def prepare(self, compiler: JitCompiler, is_frozen: bool = False, is_replayed: bool = False) -> BranchingProgram:
        with self.lock:
            if self.program is None:
                start = time.perf_counter()
                assert self.tree is not None
                built = [path.build_result for path in self.paths if path.changes is None]
                builds = [one for one in built if one is not None] if built else [list] * len(self.paths)
                self.program = branching_program(self.tree, self.traces, builds, compiler, is_frozen, self._finish)
                self.compile_seconds += time.perf_counter() - start
            assert isinstance(self.program, BranchingProgram)
            return self.program

    def _finish(self, program: RecordedProgram, path: int) -> RecordedProgram:
        trace = self.traces[path]
        return program if trace.training is None else as_whole_step(program, trace, trace.training)

    def shares_memory_anew(self, tensors: Sequence[torch.Tensor]) -> bool:
        return any(path.shares_memory_anew(tensors) for path in self.paths)

    @property
    def trains(self) -> bool:
        return any(trace.training is not None for trace in self.traces)

    @property
    def leaves_gradients(self) -> bool:
        return self.needs_gradients

    @property
    def is_differentiated(self) -> bool:
        """So it is for all paths; those that were refused run as they are."""
        calls = [path.gradients for path in self.paths if path.gradients is not None]
        return bool(calls) and all(one.is_settled or one.refused is not None for one in calls)

    @property
    def why_refused(self) -> str | None:
        """Why PyTorch runs all paths with gradients, if it does."""
        reasons = [None if path.gradients is None else path.gradients.refused for path in self.paths]
        return None if None in reasons else reasons[-1]

    def path_of(self, tensors: Sequence[torch.Tensor]) -> Specialisation:
        """UnseenAnswer where there is none yet."""
        assert isinstance(self.program, BranchingProgram) and self.trace is not None
        return self.paths[self.program.find(tensors, self.trace.environment_tensors).node.path]

    def is_unprepared(self, recording: Specialisation) -> bool:
        return self.program is None and self.paths == [recording]

    def has(self, path: Specialisation) -> bool:
        """Whether the same was decided on one of its paths."""
        return _decisions(path) in map(_decisions, self.paths)

    def note_unseen(self) -> None:
        self._noted.is_noted = True

    def take_unseen(self) -> bool:
        """Whether the call that this thread makes has met such an answer already; asked once."""
        noted, self._noted.is_noted = self._noted.is_noted, False
        return noted

    @property
    def is_exhausted(self) -> bool:
        """Whether no more paths are recorded."""
        return self.attempts >= MOST_PATHS

    def is_in_vain(self, calls: int) -> bool:
        """Whether too many of so many calls take paths that are not recorded."""
        return self.unseen > 2 and self.unseen > _MOST_UNSEEN * (calls + self.unseen)

    # --- comparison with eager calls ----------------------------------------------------------------------------------

    @property
    def is_compared(self) -> bool:
        """Whether there is nothing left to measure, or not soon."""
        return self.calls >= _LONG_ENOUGH or all(path.eager_comparison.is_settled for path in self.paths)

    @property
    def prefers_python(self) -> bool:
        """Whether eager calls were quicker on the whole, over the paths for which both were measured."""
        eager, program = self._seconds
        return eager < CLEARLY * program

    @property
    def _seconds(self) -> tuple[float, float]:
        comparisons = [
            (path.calls, path.eager_comparison)
            for path in self.paths
            if path.eager_comparison.eager and path.eager_comparison.program
        ]
        eager = sum(calls * min(map(float, comparison.eager)) for calls, comparison in comparisons)
        return eager, sum(calls * min(map(float, comparison.program)) for calls, comparison in comparisons)

    @property
    def comparison(self) -> str:
        eager, program = self._seconds
        return f"eager PyTorch is quicker than the recorded paths, by {program / max(eager, 1e-9):.3g}"


def _decisions(path: Specialisation) -> list[Any]:
    return [] if path.recorded is None else [question.decisions for question in path.recorded.questions]


def _as_it_is(result: object) -> object:
    """Programs of paths give what the function returns, not its parts."""
    return result
