"""A recorded function that may decide by the values of tensors.

In: a function and options. Out: what RecordedFunction gives, and where the function decides by a tensor's value,
recordings of the paths it takes, run without Python. What always holds: an answer that was never seen ends a call
before it has done anything; the call is then recorded, or Python runs.
"""

from __future__ import annotations

import time
from typing import Any

from ingot.base.collecting import collecting_later
from ingot.base.errors import IngotError
from ingot.base.logs import log
from ingot.frontend.jit.arguments.call_key import KeyedCall
from ingot.frontend.jit.autotune.timing import is_capturing, stopwatch
from ingot.frontend.jit.cache.paths import Paths
from ingot.frontend.jit.cache.recorded_function import ANOTHER_PATH, RecordedFunction
from ingot.frontend.jit.cache.settling import PAID
from ingot.frontend.jit.cache.specialisation import RESULT_NEEDS_GRADIENTS, Specialisation
from ingot.frontend.jit.lowering.branches import BranchingProgram, UnseenAnswer
from ingot.frontend.jit.lowering.pieces import DifferentPaths
from ingot.frontend.jit.trace.recorder import Broken

_MOST_UNPAID = 4
"""How many kinds of calls may have paths that answered few calls so far."""
_MOST_REFUSED = 8
"""After this many paths in a row that could not be recorded no more are tried."""
_REFUSED = 3
"""The weight of a path that cannot be recorded, beside 1 for one that can: the next call like this one meets it
again."""


class BranchingFunction(RecordedFunction):
    """The specialisations of one function, paths among them."""

    refused_paths = 0
    """How many paths in a row could not be proven."""

    @property
    def allows_questions(self) -> bool:
        """Whether to record paths of another kind of call: not while several kinds have hardly been called again, such
        as those of sizes that change all the time. Following takes such sizes as they come."""
        if self.refused_paths >= _MOST_REFUSED:
            return False
        kinds = [one for one in list(self.specialisations.values()) if isinstance(one, Paths) and one.trace is not None]
        return sum(self.calls_of(one) < PAID for one in kinds) < _MOST_UNPAID

    def _run(self, call: KeyedCall, found: Specialisation) -> Any:
        if not isinstance(found, Paths) or found.trace is None:
            return super()._run(call, found)
        if is_capturing():
            return self.function(*call.args, **call.kwargs)
        if found.knows(call.described):
            return self.otherwise(*call.args, **call.kwargs)
        self.python_calls += 1
        found.calls += 1
        self.latest = found
        self._unseen.note_answered(call.described)
        with collecting_later():  # kernels are compiled when they are first called
            try:
                program = found.prepare(self.compiler, self.options.freeze)
            except IngotError as error:
                return self._abandon(call, found, error)
        if found.take_unseen():
            return self._run_unseen(call, found)
        if found.needs_gradients:
            return self._run_differentiated(call, found)
        began = time.perf_counter()
        if program.mutates_leaves and found.shares_memory_anew(call.described.tensors):
            return self.function(*call.args, **call.kwargs)
        looking = time.perf_counter() - began if found.trains else 0.0
        return self._run_paths(call, found, program, looking)

    def _run_differentiated(self, call: KeyedCall, found: Paths) -> Any:
        """Find the path of a call that needs gradients, and have its own programs answer."""
        try:
            path = found.path_of(call.described.tensors)
        except UnseenAnswer:
            return self._run_unseen(call, found)
        except IngotError as error:
            return self._abandon(call, found, error)
        path.calls += 1
        if found.why_refused is not None:
            self._leave_to_python(found, f"{RESULT_NEEDS_GRADIENTS}, and {found.why_refused}")
        if path.gradients is None or path.gradients.refused is not None:
            return self.function(*call.args, **call.kwargs)
        return self._run_with_gradients(call, found, path)

    def _run_paths(self, call: KeyedCall, found: Paths, program: BranchingProgram, looking: float) -> Any:
        """Find the path of a call, and run what is left of it. Looking for shared memory has cost so many seconds."""
        assert found.trace is not None
        try:
            ending = program.find(call.described.tensors, found.trace.environment_tensors)
        except UnseenAnswer:
            return self._run_unseen(call, found)
        except IngotError as error:
            return self._abandon(call, found, error)
        path = found.paths[ending.node.path]
        path.calls += 1
        if found.is_compared and (audited := self._audit(call, found, (), path)) is not None:
            return audited.result  # nothing has happened yet
        comparison, watch = path.eager_comparison, stopwatch(found.trace.device)
        if comparison.is_eagers_turn and not found.is_compared:
            result = self.function(*call.args, **call.kwargs)
            comparison.eager.append(watch.stop())
            return result
        try:
            result = ending.run()
            if path.changes is not None:
                result = path.result_of(result, call.described)
        except IngotError as error:
            if program.has_effects:
                raise
            return self._abandon(call, found, error)
        except Exception:
            if path.repeats_errors:
                return self.function(*call.args, **call.kwargs)
            raise
        comparison.note_program(float(watch.stop()) + ending.seconds + looking)
        self._settle(call, found)
        return result

    def _settle(self, call: KeyedCall, found: Paths) -> None:
        """Let native code answer calls like this one from now on, or Python where that was quicker."""
        if not found.is_compared or self.specialisations.get(call.key) is not found:
            return
        if found.prefers_python:
            self._leave_to_python(found, found.comparison)
        else:
            self.native.add(call, found)

    def _run_unseen(self, call: KeyedCall, found: Paths) -> Any:
        """A call that leads to a path which was never recorded: nothing has happened yet."""
        if not found.is_exhausted:
            found.attempts += 1
            found.calls -= 1
            self.python_calls -= 1  # recording counts it
            return self._record(call, ANOTHER_PATH)
        found.unseen += 1
        if found.is_in_vain(self.calls_of(found)):
            self._leave_to_python(found, "values of tensors lead to more paths than are kept")
        return self.otherwise(*call.args, **call.kwargs)

    def _leave_to_python(self, found: Paths, reason: str) -> None:
        place = "" if found.trace is None else found.trace.questions[0].place
        with self._lock:
            self.native.drop(found)
            found.prefers_eager = found.trains or found.needs_gradients  # following is no better there
            found.trace, found.program, found.broken = None, None, Broken(reason, place)
        if not found.prefers_eager:
            self._hand_over(reason, place)
        log("fallbacks", f"{self.name}: Python runs: {reason}")

    def forget(self) -> None:
        super().forget()
        self.refused_paths = 0

    def _take_path(self, call: KeyedCall, made: Specialisation) -> Specialisation:
        found = self.specialisations.get(call.key)
        if isinstance(found, Paths):
            if found.trace is not None and found.changed() is None:
                return self._add_path(found, made)
            self.native.drop(found)
        return made if made.recorded is None or not made.recorded.questions else Paths.of([made], 1)

    def _add_path(self, known: Paths, made: Specialisation) -> Specialisation:
        """Paths that hold, and another recording for calls like theirs."""
        if made.recorded is None:
            known.attempts += _REFUSED  # Python runs where values lead to this path
            return known
        if known.has(made):  # another thread was quicker
            return known
        self.native.drop(known)
        try:
            return Paths.of([*known.paths, made], known.attempts)
        except DifferentPaths as error:
            made.trace, made.gradients, made.broken = None, None, Broken(str(error), "")
            return made
