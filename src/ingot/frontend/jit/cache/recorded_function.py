"""A function whose recordings stand in for its Python: finds the specialisation for a call, or makes one.

In: a function and options. Out: an object that is called like the function and gives what the function gives, as
long as its Python does nothing that the recording does not tell. Segments have no Python of their own;
for other functions `api/function.py` decides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ingot.base.collecting import collecting_later
from ingot.base.errors import IngotError, InternalError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.base.warning import warn
from ingot.frontend.jit.arguments.call_key import KeyedCall, describe
from ingot.frontend.jit.arguments.variable_numbers import MarkedArguments
from ingot.frontend.jit.autotune.timing import is_capturing, stopwatch
from ingot.frontend.jit.cache.auditing import Audited
from ingot.frontend.jit.cache.native_calls import NativeCalls
from ingot.frontend.jit.cache.recording_table import RecordingTable
from ingot.frontend.jit.cache.settling import PAID, Payoff, UnseenCalls, numbers_in_a_row, unless_off
from ingot.frontend.jit.cache.shape_families import Generalised, Numbers, ShapeFamilies
from ingot.frontend.jit.cache.specialisation import RESULT_NEEDS_GRADIENTS, Specialisation, record
from ingot.frontend.jit.gradients.answering import Call, answer
from ingot.frontend.jit.gradients.autograd_functions import is_observed
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.guards.guards import Outdated
from ingot.frontend.jit.guards.recompile_reasons import difference
from ingot.frontend.jit.lowering.branches import UnseenAnswer
from ingot.frontend.jit.lowering.recorded_program import ShapeMismatch
from ingot.frontend.jit.python_code.source_lines import module_of
from ingot.frontend.jit.settings.notices import Notices
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.settings.switch import EVERYTHING, is_off
from ingot.frontend.jit.trace.recorder import Broken
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.dispatch.dispatcher import NativeCallable
from ingot.runtime.torch_state import state_of_torch

NEEDS_GRADIENTS = "its arguments need gradients"
"""Why calls are left to PyTorch that would need a backward pass."""
ANOTHER_PATH = "a value of a tensor led to another path"
"""Why a call is recorded that ended at an answer which was never seen."""


class RecordedFunction(NativeCallable):
    """The specialisations of one function, or of one method of one object."""

    @property
    def allows_questions(self) -> bool:
        """Whether recordings go on where Python asks for the value of a tensor."""
        return False

    @property
    def is_proven(self) -> bool:
        """Whether nothing stands in for Python without a proof."""
        return False

    @property
    def takes_objects(self) -> bool:
        """Whether calls may be recorded that are given ordinary objects with state."""
        return False

    is_segment = False
    """Whether the function was written by a follower: it depends on its arguments alone."""

    def __init__(self, function: Callable[..., Any], options: Options, compiler: JitCompiler, name: str):
        self.function = function
        self.otherwise = function
        """What answers calls that are not recorded."""
        self.checks_overlap = True
        """Whether tensors that are written may share memory with others in some calls and not in others."""
        self.reads_attributes = True
        """Whether the function may read attributes that user code has given tensors, such as those of nn.Buffer."""
        self.options = options
        self.compiler = compiler
        self.name = name
        self.recordings = 0
        self.taken_up = 0
        """Recordings of other processes that were found to hold here."""
        self.recompiles: list[str] = []
        """Why recordings after the first were made, the last ones."""
        self.native = NativeCalls(self, function)
        """Records that answer calls without coming here."""
        self.python_calls = 0
        """Calls that no record answered."""
        self.given_up: str | None = None
        self.latest: Specialisation | str | None = None
        """What was recorded for the latest call that came here, or why nothing was."""
        self._unseen = UnseenCalls(function, self.native)
        self._payoff = Payoff()
        self._notices = Notices(name, options.fullgraph)
        self.left: Counter[str] = Counter()
        """How many calls were left to PyTorch because of their arguments, by the reason."""
        self._table = RecordingTable(self.native, self._new_families())
        self._lock = new_lock()
        EVERYTHING.add(self)
        self.outermost = module_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_off():
            return self.function(*args, **kwargs)
        if self.given_up is not None and not self._may_look_again():
            return self.otherwise(*args, **kwargs)
        described = describe(args, kwargs, self.takes_objects)
        if described.refused is not None or (described.needs_gradients and self.is_segment):
            self._leave(described.refused)
            return self._unseen.in_vain(self.function if described.refused is None else self.otherwise)(*args, **kwargs)
        call = KeyedCall((described.key, state_of_torch()), args, kwargs, described)
        found = self._table.find(call.key)
        if found is not None and found.trains and is_observed():
            return self.function(*args, **kwargs)  # for as long as that lasts
        return self._answer_new(call) if found is None else self._answer(call, found)

    def _answer(self, call: KeyedCall, found: Specialisation) -> Any:
        """Answer a call with what was recorded for calls like it, if that holds."""
        changed, calls = found.changed(), self.calls_of(found)
        if changed is None and calls >= found.calls_until_another:
            changed = self._look_again(call, found, calls)
        if changed is None:
            return self._run(call, found)
        with self._lock:
            other = self._table.set_aside(call.key, found)
        if other is not None:
            return self._run(call, other)
        self._payoff.note_gone(calls, found.broken is not None and found.broken.is_for_now)
        return self._record(call, f"{changed} has changed")

    def _answer_new(self, call: KeyedCall) -> Any:
        """Answer a call of a kind of which nothing was recorded."""
        general = self._table.families.find(call.described, call.key[1]) or self._foretell(call)
        if general is not None and not call.described.needs_gradients:
            return self._run_general(call, *general)
        with collecting_later():  # until kernels are compiled: what was read stays
            kept = self._find_kept(call)
            if kept is not None:
                return self._run(call, kept)
        return self._record(call, self._what_differs(call))

    def _what_differs(self, call: KeyedCall) -> str:
        """What tells a call apart from those that were recorded."""
        return difference(call.key, tuple(self._table.latest_keys), self.function)

    def _find_kept(self, call: KeyedCall) -> Specialisation | None:
        """What another process has recorded for calls like this; never looked for here."""
        return None

    def _take_kept(self, call: KeyedCall, made: Specialisation) -> None:
        """Let what another process has recorded answer calls like this one, as if it had been recorded here."""
        with self._lock:
            self._make_room()
            self.taken_up += 1
            self._table.put(call.key, made)
            self._table.put_general(self._generalise(call, made))

    def _look_again(self, call: KeyedCall, found: Specialisation, calls: int) -> str | None:
        """Whether to record a call like one that ran in Python: what kept it from being recorded may have changed."""
        why_not = self._why_not_recorded(call, found)
        if why_not is None:
            found.environment.guards = Outdated()
            return found.environment.guards.changed()
        if found.broken is not None and found.broken.is_for_now:
            found.broken = why_not
            self._hand_over(why_not.reason, why_not.place)
        found.calls_until_another = calls + self._payoff.next_look()
        self.native.pause(found)
        return None

    def _why_not_recorded(self, call: KeyedCall, found: Specialisation) -> Broken | None:
        """Why a recording of a call like that one could not stand in for Python; here it always could."""
        return None

    def _foretell(self, call: KeyedCall) -> tuple[Generalised, Numbers] | None:
        """What holds for a call with other numbers than the recorded ones, if no second recording is needed to tell;
        never told here."""
        return None

    def open_numbers(self, parameters: frozenset[str]) -> None:
        """Say which parameters are numbers that feed arithmetic alone; otherwise the function's text tells."""
        self._table.families.parameters = parameters

    @property
    def specialisations(self) -> Mapping[Hashable, Specialisation]:
        """What was recorded, by the key of a call or by what was generalised."""
        return self._table.specialisations

    @property
    def calls(self) -> int:
        """Calls that were recorded or run as recorded."""
        return self.python_calls + self.native.total

    def calls_of(self, found: Specialisation) -> int:
        """Calls of one kind after it was recorded."""
        return self._table.calls_of(found)

    def forget(self) -> None:
        """Forget everything, as if the function had never been called."""
        with self._lock:
            self.native.forget()
            self._forget_recordings()
            self._table.families = self._new_families()
            self.recompiles.clear()
            self.recordings = self.taken_up = self.python_calls = 0
            self._unseen, self._payoff = UnseenCalls(self.function, self.native), Payoff()
            self.given_up = self.latest = None
            self._notices.forget()
            self.left.clear()

    def _forget_recordings(self) -> None:
        self.compiler.clear()
        self._table.clear()

    def _new_families(self) -> ShapeFamilies:
        options = self.options
        return ShapeFamilies(self.function, self.compiler, options.dynamic, options.is_replayed, self.name)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _run(self, call: KeyedCall, found: Specialisation) -> Any:
        self.python_calls += 1
        found.calls += 1
        self.latest = found
        trace = found.trace
        if found.gradients is not None and found.gradients.refused is None:
            return self._run_with_gradients(call, found, found)
        if trace is None:
            is_eagers = found.prefers_eager or found.gradients is not None
            target = self.function if is_eagers else self.otherwise
            is_native = self.native.add(call, found)
            return (target if is_native else self._unseen.in_vain(target))(*call.args, **call.kwargs)
        if found.knows(call.described):
            return self.otherwise(*call.args, **call.kwargs)
        self._unseen.note_answered(call.described)
        if not found.eager_comparison.is_settled and is_capturing():
            return self.function(*call.args, **call.kwargs)
        if found.eager_comparison.is_settled and (audited := self._audit(call, found, ())) is not None:
            return audited.result
        if found.eager_comparison.is_warm:
            return self._run_program(call, found, trace)
        with collecting_later():  # kernels are compiled when they are first called
            return self._run_program(call, found, trace)

    def _run_with_gradients(self, call: KeyedCall, found: Specialisation, path: Specialisation) -> Any:
        """Answer a call that needs gradients; `path` is the recording that stands for it, among those of `found`."""
        gradients = path.gradients
        assert gradients is not None
        if gradients.is_idle:
            gradients.calls += 1
            return self._unseen.in_vain(self.function)(*call.args, **call.kwargs)
        self._unseen.note_recorded()
        described = call.described
        if gradients.written and path.shares_memory_anew(described.tensors):
            return self.function(*call.args, **call.kwargs)
        if gradients.is_settled and (audited := self._audit(call, found, (), path)) is not None:
            return audited.result
        given = described.shape, described.leaves, described.tensors, described.started
        result = answer(gradients, Call(self.function, *given))
        if found.is_differentiated or (found is path and gradients.refused is not None):
            self.native.add(call, found)
        return result

    def _run_program(self, call: KeyedCall, found: Specialisation, trace: Trace) -> Any:
        program, comparison = found.program, found.eager_comparison
        if program is None:
            try:
                program = found.prepare(self.compiler, self.options.freeze, self.options.is_replayed)
            except IngotError as error:
                return self._abandon(call, found, error)
        began, tensors = time.perf_counter(), call.described.tensors
        if program.mutates_leaves and found.shares_memory_anew(tensors):
            return self.function(*call.args, **call.kwargs)
        start = time.perf_counter()
        watch = None if comparison.is_settled else stopwatch(trace.device)
        if watch is not None and comparison.is_eagers_turn:
            result = self.function(*call.args, **call.kwargs)
            comparison.eager.append(watch.stop())
            return result
        try:
            results = program.function(tensors, trace.environment_tensors, ())
        except IngotError as error:
            if program.has_effects:
                raise
            return self._abandon(call, found, error)
        except Exception:
            if found.repeats_errors:
                return self.function(*call.args, **call.kwargs)
            raise
        result = found.result_of(results, call.described)
        if not comparison.is_warm:
            found.compile_seconds += time.perf_counter() - start
        if watch is not None:
            spent = watch.stop()
            # Steps have hundreds of gradients, and to look whether they share memory takes long.
            comparison.note_program(float(spent) + start - began if found.trains else spent)
            if comparison.is_over and comparison.program:
                log("perf", f"{self.name}: {comparison.times}")
        if comparison.prefers_eager:
            found.trace, found.broken, found.prefers_eager = None, Broken(comparison.text, ""), True
            log("fallbacks", f"{self.name} runs eagerly: {comparison.text}")
        elif comparison.is_over and not (found.is_taken_up and found.calls == 1):  # one call may remain the only one
            self.native.add(call, found)
        return result

    def _run_general(
        self, call: KeyedCall, general: Generalised, numbers: Numbers, tried: Sequence[Generalised] = ()
    ) -> Any:
        """Run what was recorded for other sizes or numbers; where it turns out not to hold, this call is recorded.
        Those that were `tried` have ended at an answer of a tensor which they do not know."""
        found, described = general.specialisation, call.described
        program, trace = found.program, found.trace
        if trace is None:  # measuring has found eager quicker
            self.latest = found
            return self._unseen.in_vain(self.function)(*call.args, **call.kwargs)
        assert program is not None and trace is not None and found.build_result is not None
        if found.knows(described):
            return self.otherwise(*call.args, **call.kwargs)
        if program.mutates_leaves and found.shares_memory_anew(described.tensors):
            return self.function(*call.args, **call.kwargs)
        self.python_calls += 1
        self._unseen.note_answered(described)
        found.calls += 1
        self.latest = found
        if (audited := self._audit(call, found, general.values(numbers))) is not None:
            return audited.result
        try:
            results = program.function(described.tensors, trace.environment_tensors, general.values(numbers))
        except UnseenAnswer:  # nothing has happened yet
            self.python_calls -= 1
            found.calls -= 1
            tried = (*tried, general)
            other = self._table.families.find(described, call.key[1], tried)
            if other is not None:
                return self._run_general(call, *other, tried)
            return self._record(call, ANOTHER_PATH)
        except (IngotError, ShapeMismatch, RuntimeError, ValueError, TypeError) as error:
            if program.has_effects:
                raise
            result = self._record(call, self._what_differs(call))
            log("recompiles", f"{self.name}: what was recorded for several sizes does not hold: {error!r}")
            with self._lock:  # not before the call has shown that the error is not the caller's
                if self._table.families.miss(general):
                    self._table.give_back(general)
            return result
        except Exception:
            if found.repeats_errors:
                return self.function(*call.args, **call.kwargs)
            raise
        if not (general.unified.variables or program.has_guesses or trace.questions):
            with self._lock:
                self._table.put_shortcut(call.key, found)
        self.native.add(call, found, general)
        return found.result_of(results, described)

    def _record(self, call: KeyedCall, reason: str) -> Any:
        if self.otherwise is not self.function:
            latest = None if isinstance(self.latest, str) else self.latest
            self._payoff.of_numbers = numbers_in_a_row(
                self._payoff.of_numbers, self._table.latest_keys, call.key, latest
            )
        if self._hardly_pays(reason):
            return self.otherwise(*call.args, **call.kwargs)
        if is_capturing():
            return self.function(*call.args, **call.kwargs)
        if self.recordings:
            self.recompiles.append(reason)
            del self.recompiles[: -self._table.most]
            log("recompiles", f"{self.name}: recorded again: {reason}")
        self.recordings += 1
        self.python_calls += 1
        self._unseen.note_recorded()
        given = MarkedArguments(self._table.families.marked_positions(call.described), call.args, call.kwargs)
        how = self.reads_attributes, self.allows_questions, self.is_proven
        around = self.outermost, self.options.fullgraph, self._find_environment()
        result, made = record(self.function, given.args, given.kwargs, call.described, *around, *how)
        self._payoff.seconds += made.record_seconds
        made.checks_overlap = self.checks_overlap
        if self.is_segment or self.options.config["enable_profiling"]:
            # Whether following pays is measured for whole calls, and timing kernels makes calls slower.
            made.eager_comparison.rounds = 0
        made.looked_at = frozenset(given.looked_at)
        self.latest = made
        if made.broken is None:
            with collecting_later():
                self._approve(call, made)
        made.ran = None
        if made.broken is None and made.needs_gradients:
            made.differentiate(self.compiler, self.name)
        if made.broken is not None and made.gradients is None:
            made.let_go(self.outermost)
            if made.broken.is_for_now:
                made.calls_until_another = 0
            elif not made.needs_gradients:
                made.calls_until_another = self._payoff.next_look()
            self._hand_over(made.broken.reason, made.broken.place)
        with self._lock:
            taken = self.latest = self._take_path(call, made)
            self._table.put(call.key, taken)
            if made.trace is None or not made.trace.training:
                self._table.put_general(self._generalise(call, made))
        return result

    def _find_environment(self) -> Environment | None:
        """What the function can reach besides its arguments; None has it looked for."""
        return None

    def _generalise(self, call: KeyedCall, made: Specialisation) -> Generalised | None:
        """What holds for more calls than a new recording; here what it has in common with earlier ones."""
        return self._table.families.add(call.key, call.described, call.key[1], made)

    def _take_path(self, call: KeyedCall, made: Specialisation) -> Specialisation:
        """The specialisation for calls like the recorded one: here the recording itself."""
        return made

    def _approve(self, call: KeyedCall, made: Specialisation) -> None:
        """Decide whether a recording may stand in for Python; here it always may."""

    def _audit(
        self, call: KeyedCall, found: Specialisation, numbers: Sequence[int | float], path: Specialisation | None = None
    ) -> Audited | None:
        """Run Python for a call that a recording would answer, and compare the two; never done here."""

    # --- giving up ----------------------------------------------------------------------------------------------------

    def _hardly_pays(self, reason: str) -> bool:
        """Whether not to record another call, because recordings answer too few; there is room for one otherwise."""
        with self._lock:
            answered, kinds, most = self.calls - self.recordings, len(self.specialisations), self._table.most
            why_not = self._payoff.why_not_record(reason, self.recordings, answered, kinds, most)
            if why_not is None:
                self._make_room()
            else:
                self._give_up(*why_not)
            return self.given_up is not None

    def _make_room(self) -> None:
        """See that there is room for another recording."""
        for calls in self._table.make_room():
            self._payoff.note_gone(calls)

    def _give_up(self, reason: str, subject: str) -> None:
        """Record nothing more for a good while, and keep only recordings that answer calls."""
        self.given_up = reason
        self._table.keep_used(PAID)
        self.latest = reason
        self.native.hand_on(unless_off(self.function, self.otherwise), self._payoff.next_rest())
        if subject == "full" or not self._notices.are_there:  # otherwise the reason has been logged
            self._hand_over(reason, None, subject)

    def _may_look_again(self) -> bool:
        """Whether it has been long enough since recording was given up."""
        with self._lock:
            if self.native.to_be_handed_on > 0:
                return False
            self.native.look_again()
            self.given_up = None
            self._payoff.begin_again(self.recordings, self.calls - self.recordings)
            return True

    def _abandon(self, call: KeyedCall, found: Specialisation, error: BaseException) -> Any:
        """Leave calls like this to PyTorch, which also words the error if it is the caller's."""
        result = self.function(*call.args, **call.kwargs)
        reason = f"{type(error).__name__}: {error}"
        self.native.drop(found)
        found.trace, found.broken, found.prefers_eager = None, Broken(reason, ""), True
        if isinstance(error, InternalError) and not self.options.fullgraph:
            log("fallbacks", f"{self.name} runs eagerly: {reason}")  # a warning has told of it
        else:
            self._complain(reason, None)
        return result

    def _leave(self, refused: str | None) -> None:
        """Note a call that is left to PyTorch because of its arguments: they are refused, or else need gradients."""
        reason = self.latest = refused or NEEDS_GRADIENTS
        self.left[reason] += 1
        if refused is not None:
            self._hand_over(refused, None)
        elif self.left[reason] == 1:
            log("fallbacks", f"{self.name} runs eagerly: {reason}")

    def _hand_over(self, reason: str, place: str | None, subject: str | None = None) -> None:
        """Say why calls go to `otherwise`, which here is the original; once per subject, where there is one."""
        self._complain(reason, place, subject)

    def _complain(self, reason: str, place: str | None, subject: str | None = None) -> None:
        """Say once that calls run eagerly, and why; once per subject, where there is one."""
        text = self._notices.news("runs eagerly", reason, place, subject)
        if text is not None:
            if self.is_segment or reason.startswith(RESULT_NEEDS_GRADIENTS):
                log("fallbacks", text)
            else:
                warn(text)
