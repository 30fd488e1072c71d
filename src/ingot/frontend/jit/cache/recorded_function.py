"""A function whose recordings stand in for its Python: finds the specialisation for a call, or makes one.

In: a function and options. Out: an object that is called like the function and gives what the function gives, as
long as its Python does nothing that the recording does not tell. Segments have no Python of their own;
for other functions `api/function.py` decides.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ingot.base.collecting import collecting_later
from ingot.base.errors import CaptureError, IngotError, InternalError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.base.warning import warn
from ingot.frontend.jit.arguments.call_key import CallKey, describe
from ingot.frontend.jit.arguments.variable_numbers import MarkedArguments
from ingot.frontend.jit.autotune.timing import is_capturing, stopwatch
from ingot.frontend.jit.cache.auditing import Audited
from ingot.frontend.jit.cache.native_calls import NativeCalls
from ingot.frontend.jit.cache.settling import MOST_OF_NUMBERS, PAID, Patience, Payoff, numbers_in_a_row, unless_off
from ingot.frontend.jit.cache.shape_families import Generalised, Numbers, Recorded, ShapeFamilies
from ingot.frontend.jit.cache.specialisation import RESULT_NEEDS_GRADIENTS, Specialisation, record
from ingot.frontend.jit.gradients.answering import Call, answer
from ingot.frontend.jit.gradients.autograd_functions import is_observed
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.guards.guards import Outdated
from ingot.frontend.jit.guards.recompile_reasons import difference
from ingot.frontend.jit.lowering.branches import UnseenAnswer
from ingot.frontend.jit.lowering.recorded_program import ShapeMismatch
from ingot.frontend.jit.python_code.source_lines import module_of
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.settings.switch import EVERYTHING, is_off
from ingot.frontend.jit.trace.recorder import Broken
from ingot.frontend.jit.trace.trace import Trace
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.dispatch.dispatcher import NativeCallable
from ingot.runtime.torch_state import state_of_torch

MOST_SPECIALISATIONS = 64
"""How many specialisations a function keeps; beyond that the least recently used one goes."""
NEEDS_GRADIENTS = "its arguments need gradients"
"""Why calls are left to PyTorch that would need a backward pass."""
ANOTHER_PATH = "a value of a tensor led to another path"
"""Why a call is recorded that ended at an answer which was never seen."""
LEFT_BETWEEN = 64
"""After this many calls in a row that are left to Python, none is expected that a recording answers here."""
MOST_ASIDE = 3
"""How many recordings of one kind of call are kept while their guards fail."""


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

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        compiler: JitCompiler,
        name: str,
        is_segment: bool = False,
    ):
        """A segment is written by a follower: it depends on its arguments alone, and writes results into new memory."""
        self.function = function
        self.otherwise = function
        """What answers calls that are not recorded."""
        self.is_segment = is_segment
        self.checks_overlap = True
        """Whether tensors that are written may share memory with others in some calls and not in others."""
        self.reads_attributes = not is_segment
        """Whether the function may read attributes that user code has given tensors, such as those of nn.Buffer."""
        self.options = options
        self.compiler = compiler
        self.name = name
        self.specialisations: OrderedDict[Hashable, Specialisation] = OrderedDict()
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
        self._patience = Patience()
        self._payoff = Payoff()
        self._unseen_by_records = 0
        """While this is positive no calls are handed on unseen: the next may be one that is answered here, as no
        record can. It counts down with each call that is left to Python."""
        self._of_numbers = 0
        """Recordings in a row that differ in numbers alone."""
        self._warned: set[str] = set()
        self.left: Counter[str] = Counter()
        """How many calls were left to PyTorch because of their arguments, by the reason."""
        self._families = ShapeFamilies(function, compiler, options.dynamic, options.is_replayed, name)
        self._shortcuts: dict[Hashable, Specialisation] = {}
        """Generalised recordings that were found to hold for a key."""
        self._aside: dict[Hashable, deque[Specialisation]] = {}
        """Recordings that held and may hold again, such as those of training while a module evaluates."""
        self._recorded: deque[Hashable] = deque(maxlen=MOST_SPECIALISATIONS)
        """The keys of the last recordings."""
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
            return self._in_vain(self.function if described.refused is None else self.otherwise)(*args, **kwargs)
        key = (described.key, state_of_torch())
        found = self.specialisations.get(key) or self._shortcuts.get(key)
        if found is not None and found.trains and is_observed():
            return self.function(*args, **kwargs)  # for as long as that lasts
        if found is not None:
            changed, calls = found.changed(), self.calls_of(found)
            if changed is None and calls >= found.calls_until_another:
                changed = self._look_again(found, calls, args, kwargs, described)
            if changed is None:
                return self._run(key, found, args, kwargs, described)
            other = self._set_aside(key, found)
            if other is not None:
                return self._run(key, other, args, kwargs, described)
            self._payoff.note_gone(calls, found.broken is not None and found.broken.is_for_now)
            return self._record(key, args, kwargs, described, f"{changed} has changed")
        general = self._families.find(described, key[1]) or self._foretell(described, key[1])
        if general is not None and not described.needs_gradients:
            return self._run_general(key, *general, args, kwargs, described)
        with collecting_later():  # until kernels are compiled: what was read stays
            kept = self._find_kept(key, described)
            if kept is not None:
                return self._run(key, kept, args, kwargs, described)
        return self._record(key, args, kwargs, described, difference(key, tuple(self._recorded), self.function))

    def _find_kept(self, key: tuple[Hashable, Hashable], described: CallKey) -> Specialisation | None:
        """What another process has recorded for calls like this; never looked for here."""
        return None

    def _take_kept(self, key: tuple[Hashable, Hashable], described: CallKey, made: Specialisation) -> None:
        """Let what another process has recorded answer calls of a key, as if it had been recorded here."""
        with self._lock:
            self._make_room()
            self.taken_up += 1
            self.specialisations[key] = made
            self._recorded.append(key)
            self._take_general(self._generalise(key, described, made))

    def _look_again(
        self, found: Specialisation, calls: int, args: Sequence[Any], kwargs: Mapping[str, Any], described: CallKey
    ) -> str | None:
        """Whether to record a call like one that ran in Python: what kept it from being recorded may have changed."""
        why_not = self._why_not_recorded(found, args, kwargs, described)
        if why_not is None:
            found.environment.guards = Outdated()
            return found.environment.guards.changed()
        if found.broken is not None and found.broken.is_for_now:
            found.broken = why_not
            self._hand_over(why_not.reason, why_not.place)
        found.calls_until_another = calls + self._payoff.next_look()
        self.native.pause(found)
        return None

    def _why_not_recorded(
        self, found: Specialisation, args: Sequence[Any], kwargs: Mapping[str, Any], described: CallKey
    ) -> Broken | None:
        """Why a recording of a call like that one could not stand in for Python; here it always could."""
        return None

    def _foretell(self, described: CallKey, state: Hashable) -> tuple[Generalised, Numbers] | None:
        """What holds for a call with other numbers than the recorded ones, if no second recording is needed to tell."""
        if not self.is_segment:
            return None
        with self._lock:
            found = self._families.foretell(described, state)
            if found is not None:
                self._make_room()
                self._take_general(found[0])
            return found

    def open_numbers(self, parameters: frozenset[str]) -> None:
        """Say which parameters are numbers that feed arithmetic alone; otherwise the function's text tells."""
        self._families.parameters = parameters

    @property
    def calls(self) -> int:
        """Calls that were recorded or run as recorded."""
        return self.python_calls + self.native.total

    def calls_of(self, found: Specialisation) -> int:
        """Calls of one kind after it was recorded."""
        return found.calls + self.native.of(found)

    def forget(self) -> None:
        """Forget everything, as if the function had never been called."""
        with self._lock:
            self.native.forget()
            self._forget_recordings()
            self._families = ShapeFamilies(
                self.function, self.compiler, self.options.dynamic, self.options.is_replayed, self.name
            )
            self.recompiles.clear()
            self.recordings = self.taken_up = self.python_calls = self._unseen_by_records = 0
            self._patience, self._payoff = Patience(), Payoff()
            self.given_up = self.latest = None
            self._warned.clear()
            self.left.clear()

    def _forget_recordings(self) -> None:
        self.compiler.clear()
        self.specialisations.clear()
        self._shortcuts.clear()
        self._aside.clear()
        self._recorded.clear()
        self._families.clear()

    def _set_aside(self, key: Hashable, found: Specialisation) -> Specialisation | None:
        """Keep what does not hold at the moment for when it does again, and take out what does now, if there is any."""
        with self._lock:
            self.native.drop(found)
            self._shortcuts.pop(key, None)
            if self.specialisations.pop(key, None) is None:
                return None
            while key not in self._aside and len(self._aside) >= MOST_SPECIALISATIONS:
                self._aside.pop(next(iter(self._aside)))
            aside = self._aside.setdefault(key, deque(maxlen=MOST_ASIDE))
            other = next((one for one in aside if one.changed() is None), None)
            if other is not None:
                aside.remove(other)
                self.specialisations[key] = other
            aside.append(found)
            return other

    # --- calls --------------------------------------------------------------------------------------------------------

    def _run(
        self,
        key: Hashable,
        found: Specialisation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
    ) -> Any:
        self.python_calls += 1
        found.calls += 1
        self.latest = found
        trace = found.trace
        if found.gradients is not None and found.gradients.refused is None:
            return self._run_with_gradients(key, found, found, args, kwargs, described)
        if trace is None:
            is_eagers = found.prefers_eager or found.gradients is not None
            target = self.function if is_eagers else self.otherwise
            is_native = self.native.add(key, found, described, args, kwargs)
            return (target if is_native else self._in_vain(target))(*args, **kwargs)
        if found.knows(described):
            return self.otherwise(*args, **kwargs)
        self._note_answered(described)
        if not found.eager_comparison.is_settled and is_capturing():
            return self.function(*args, **kwargs)
        if (
            found.eager_comparison.is_settled
            and (audited := self._audit(found, (), args, kwargs, described)) is not None
        ):
            return audited.result
        if found.eager_comparison.is_warm:
            return self._run_program(key, found, trace, args, kwargs, described)
        with collecting_later():  # kernels are compiled when they are first called
            return self._run_program(key, found, trace, args, kwargs, described)

    def _run_with_gradients(
        self,
        key: Hashable,
        found: Specialisation,
        path: Specialisation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
    ) -> Any:
        """Answer a call that needs gradients; `path` is the recording that stands for it, among those of `found`."""
        gradients = path.gradients
        assert gradients is not None
        if gradients.is_idle:
            gradients.calls += 1
            return self._in_vain(self.function)(*args, **kwargs)
        self._patience.reset()
        if gradients.written and path.shares_memory_anew(described.tensors):
            return self.function(*args, **kwargs)
        if gradients.is_settled and (audited := self._audit(found, (), args, kwargs, described, path)) is not None:
            return audited.result
        given = described.shape, described.leaves, described.tensors, described.started
        result = answer(gradients, Call(self.function, *given))
        if found.is_differentiated or (found is path and gradients.refused is not None):
            self.native.add(key, found, described, args, kwargs)
        return result

    def _run_program(
        self,
        key: Hashable,
        found: Specialisation,
        trace: Trace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
    ) -> Any:
        program, comparison = found.program, found.eager_comparison
        if program is None:
            try:
                program = found.prepare(self.compiler, self.options.freeze, self.options.is_replayed)
            except IngotError as error:
                return self._abandon(found, error, args, kwargs)
        began = time.perf_counter()
        if program.mutates_leaves and found.shares_memory_anew(described.tensors):
            return self.function(*args, **kwargs)
        start = time.perf_counter()
        watch = None if comparison.is_settled else stopwatch(trace.device)
        if watch is not None and comparison.is_eagers_turn:
            result = self.function(*args, **kwargs)
            comparison.eager.append(watch.stop())
            return result
        try:
            results = program.function(described.tensors, trace.environment_tensors, ())
        except IngotError as error:
            if program.has_effects:
                raise
            return self._abandon(found, error, args, kwargs)
        except Exception:
            if found.repeats_errors:
                return self.function(*args, **kwargs)
            raise
        result = found.result_of(results, described)
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
            self.native.add(key, found, described, args, kwargs)
        return result

    def _run_general(
        self,
        key: tuple[Hashable, Hashable],
        general: Generalised,
        numbers: Numbers,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
        tried: Sequence[Generalised] = (),
    ) -> Any:
        """Run what was recorded for other sizes or numbers; where it turns out not to hold, this call is recorded.
        Those that were `tried` have ended at an answer of a tensor which they do not know."""
        found = general.specialisation
        program, trace = found.program, found.trace
        if trace is None:  # measuring has found eager quicker
            self.latest = found
            return self._in_vain(self.function)(*args, **kwargs)
        assert program is not None and trace is not None and found.build_result is not None
        if found.knows(described):
            return self.otherwise(*args, **kwargs)
        if program.mutates_leaves and found.shares_memory_anew(described.tensors):
            return self.function(*args, **kwargs)
        self.python_calls += 1
        self._note_answered(described)
        found.calls += 1
        self.latest = found
        if (audited := self._audit(found, general.values(numbers), args, kwargs, described)) is not None:
            return audited.result
        try:
            results = program.function(described.tensors, trace.environment_tensors, general.values(numbers))
        except UnseenAnswer:  # nothing has happened yet
            self.python_calls -= 1
            found.calls -= 1
            tried = (*tried, general)
            other = self._families.find(described, key[1], tried)
            if other is not None:
                return self._run_general(key, *other, args, kwargs, described, tried)
            return self._record(key, args, kwargs, described, ANOTHER_PATH)
        except (IngotError, ShapeMismatch, RuntimeError, ValueError, TypeError) as error:
            if program.has_effects:
                raise
            result = self._record(key, args, kwargs, described, difference(key, tuple(self._recorded), self.function))
            log("recompiles", f"{self.name}: what was recorded for several sizes does not hold: {error!r}")
            with self._lock:  # not before the call has shown that the error is not the caller's
                if self._families.miss(general):
                    self._give_back(general)
                    self.native.drop(found)
            return result
        except Exception:
            if found.repeats_errors:
                return self.function(*args, **kwargs)
            raise
        if not (general.unified.variables or program.has_guesses or trace.questions):
            with self._lock:
                while len(self._shortcuts) >= MOST_SPECIALISATIONS:
                    self._shortcuts.pop(next(iter(self._shortcuts)))
                self._shortcuts[key] = found
        self.native.add(key, found, described, args, kwargs, general)
        return found.result_of(results, described)

    def _record(
        self,
        key: tuple[Hashable, Hashable],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
        reason: str,
    ) -> Any:
        if self.otherwise is not self.function:
            latest = None if isinstance(self.latest, str) else self.latest
            self._of_numbers = numbers_in_a_row(self._of_numbers, self._recorded, key, latest)
        if self._hardly_pays(reason):
            return self.otherwise(*args, **kwargs)
        if is_capturing():
            return self.function(*args, **kwargs)
        if self.recordings:
            self.recompiles.append(reason)
            del self.recompiles[:-MOST_SPECIALISATIONS]
            log("recompiles", f"{self.name}: recorded again: {reason}")
        self.recordings += 1
        self.python_calls += 1
        self._patience.reset()
        given = MarkedArguments(self._families.marked_positions(described), args, kwargs)
        how = self.reads_attributes, self.allows_questions, self.is_proven
        around = self.outermost, self.options.fullgraph, self._find_environment()
        result, made = record(self.function, given.args, given.kwargs, described, *around, *how)
        self._payoff.seconds += made.record_seconds
        made.checks_overlap = self.checks_overlap
        if self.is_segment or self.options.config["enable_profiling"]:
            # Whether following pays is measured for whole calls, and timing kernels makes calls slower.
            made.eager_comparison.rounds = 0
        made.looked_at = frozenset(given.looked_at)
        self.latest = made
        if made.broken is None:
            with collecting_later():
                self._approve(made, args, kwargs, described)
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
            self.latest = self.specialisations[key] = self._take_path(key, made)
            self._recorded.append(key)
            if made.trace is None or not made.trace.training:
                self._take_general(self._generalise(key, described, made))
        return result

    def _find_environment(self) -> Environment | None:
        """What the function can reach besides its arguments; None has it looked for."""
        return Environment() if self.is_segment else None

    def _generalise(
        self, key: tuple[Hashable, Hashable], described: CallKey, made: Specialisation
    ) -> Generalised | None:
        """What holds for more calls than a new recording; here what it has in common with earlier ones."""
        return self._families.add(key, described, key[1], made)

    def _take_path(self, key: Hashable, made: Specialisation) -> Specialisation:
        """The specialisation for calls like the recorded one: here the recording itself."""
        return made

    def _approve(
        self, made: Specialisation, args: Sequence[Any], kwargs: Mapping[str, Any], described: CallKey
    ) -> None:
        """Decide whether a recording may stand in for Python; here it always may."""

    def _audit(
        self,
        found: Specialisation,
        numbers: Sequence[int | float],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        described: CallKey,
        path: Specialisation | None = None,
    ) -> Audited | None:
        """Run Python for a call that a recording would answer, and compare the two; never done here."""

    def _take_general(self, general: Generalised | None) -> None:
        """What was generalised takes the place of recordings that have no program yet."""
        if general is None:
            return
        for member in general.members:
            if self._is_unused(member) and general.fits(member.shapes, member.numbers):
                self.specialisations.pop(member.key, None)
        for replaced in general.replaces:
            self.specialisations.pop(replaced, None)
        self.specialisations[general] = general.specialisation

    def _is_unused(self, member: Recorded) -> bool:
        """Whether a recording has no program yet."""
        return member.specialisation.program is None

    def _give_back(self, general: Generalised) -> None:
        """Return to the recordings that something was generalised from."""
        self._shortcuts.clear()
        self.specialisations.pop(general, None)
        if not general.unified.trace.questions:
            for member in general.members:
                self.specialisations.setdefault(member.key, member.specialisation)

    # --- calls that are handed on unseen ------------------------------------------------------------------------------

    def _note_answered(self, described: CallKey) -> None:
        """Take note of a call that a recording answers here, and not a record."""
        self._patience.reset()
        if described.given is not None:
            self._unseen_by_records = LEFT_BETWEEN

    def _needs_a_look(self) -> bool:
        """Whether a call that no record knows may be one that a recording answers; asked once per call that is left to
        Python."""
        self._unseen_by_records = max(0, self._unseen_by_records - 1)
        return self._unseen_by_records > 0

    def _in_vain(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """Note that a call was looked at and is left to a function, which is returned. After a few such calls native
        code hands the next ones to that function at once."""
        if self._needs_a_look():
            return target
        settings = self.native.settings()
        calls = self._patience.note(target, settings)
        if calls and settings >= 0:
            self.native.hand_on(unless_off(self.function, target), calls, settings)
        return target

    def _hardly_pays(self, reason: str) -> bool:
        """Whether not to record another call, because recordings answer too few; there is room for one otherwise."""
        with self._lock:
            answered = self.calls - self.recordings
            if self._payoff.is_in_vain(self.recordings, answered, MOST_SPECIALISATIONS):
                self._give_up(
                    f"it has been recorded for {len(self.specialisations)} kinds of calls, and this is another one "
                    f"({reason}); pass numbers that vary as tensors, keep from reading sizes in Python, or use "
                    "dynamic=True",
                    "full",
                )
            elif self._of_numbers >= MOST_OF_NUMBERS:
                self._give_up(f"a number changes from call to call, the last time because {reason}", "unstable")
            elif self._payoff.is_unstable:
                self._give_up(f"its recordings do not hold for long, the last one because {reason}", "unstable")
            else:
                self._make_room()
            return self.given_up is not None

    def _make_room(self) -> None:
        """Drop recordings that no longer hold, or else the one that has not been used for the longest time."""
        if len(self.specialisations) < MOST_SPECIALISATIONS:
            return
        gone = [key for key, one in self.specialisations.items() if one.changed() is not None]
        if not gone:
            idle = (key for key, one in self.specialisations.items() if self.calls_of(one) == one.calls_seen)
            gone = [next(idle, next(iter(self.specialisations)))]
            for one in self.specialisations.values():
                one.calls_seen = self.calls_of(one)
        for key in gone:
            self._payoff.note_gone(self.calls_of(self.specialisations[key]))
            self._drop(key)

    def _give_up(self, reason: str, subject: str) -> None:
        """Record nothing more for a good while, and keep only recordings that answer calls."""
        self.given_up = reason
        for key in [key for key, one in self.specialisations.items() if self.calls_of(one) < PAID]:
            self._drop(key)
        self._shortcuts.clear()
        self._aside.clear()
        self._recorded.clear()
        self._families.clear()
        self.latest = reason
        self.native.hand_on(unless_off(self.function, self.otherwise), self._payoff.next_rest())
        if subject == "full" or not self._warned:  # otherwise the reason has been logged
            self._hand_over(reason, None, subject)

    def _drop(self, key: Hashable) -> None:
        """Forget a recording and everything that answers calls with it."""
        gone = self.specialisations.pop(key)
        self.native.drop(gone)
        for short in [short for short, one in self._shortcuts.items() if one is gone]:
            del self._shortcuts[short]
        self._families.drop(gone)

    def _may_look_again(self) -> bool:
        """Whether it has been long enough since recording was given up."""
        with self._lock:
            if self.native.to_be_handed_on > 0:
                return False
            self.native.look_again()
            self.given_up = None
            self._payoff.begin_again(self.recordings, self.calls - self.recordings)
            return True

    def _abandon(
        self, found: Specialisation, error: BaseException, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Leave calls like this to PyTorch, which also words the error if it is the caller's."""
        result = self.function(*args, **kwargs)
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
        text = self._news("runs eagerly", reason, place, subject)
        if text is not None:
            if self.is_segment or reason.startswith(RESULT_NEEDS_GRADIENTS):
                log("fallbacks", text)
            else:
                warn(text)

    def _news(self, what: str, reason: str, place: str | None, subject: str | None) -> str | None:
        """What to log of calls that are not recorded, unless it was logged before; an error with fullgraph=True."""
        reason = f"{reason} ({place})" if place else reason
        if self.options.fullgraph:
            raise CaptureError(f"{self.name} cannot be recorded whole: {reason}")
        text = f"{self.name} {what}: {reason}"
        if (subject or text) in self._warned:
            return None
        self._warned.add(subject or text)
        return text
