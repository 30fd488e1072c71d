"""A compiled function: recordings where Python may be skipped, following where it may not.

In: a function and options. Out: an object that is called like the function and gives what the function gives. Each call
takes the quickest way that is right:

    skip     a recording stands in for Python as well (cache/recorded_function.py)
    follow   Python runs, compiled segments stand in for its arithmetic (follow/)
    eager    the function itself
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.base.collecting import collecting_later
from ingot.base.errors import CaptureError
from ingot.base.logs import log
from ingot.base.warning import warn
from ingot.frontend.jit.api.approval import FILLS, are_around, readings, unproven_change, what_a_proof_lacks
from ingot.frontend.jit.arguments.call_key import KeyedCall
from ingot.frontend.jit.autotune.timing import is_capturing
from ingot.frontend.jit.cache.auditing import Audited, audit
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.cache.branching_function import BranchingFunction
from ingot.frontend.jit.cache.settling import unless_off
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.follow.follower import Follower
from ingot.frontend.jit.gradients.whole_steps import GradientGuard
from ingot.frontend.jit.guards.proven import ProvenGuards
from ingot.frontend.jit.kept import recordings as kept
from ingot.frontend.jit.proof import Proof, Refusal, prove
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.settings.switch import is_off
from ingot.frontend.jit.trace.comparing import Difference
from ingot.frontend.jit.trace.questions import decided, told_apart
from ingot.frontend.jit.trace.recorder import Broken
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.disk_cache.process import process_store
from ingot.runtime.torch_state import state_of_torch

Tier = Literal["new", "skipping", "following", "eager"]
_FOR_GOOD = 1 << 62
"""A number of calls that is never reached."""
_AROUND = "a tensor that it is given is also found around it, and the recording does not tell them apart"
_FOR_NOW = (FILLS, _AROUND)
"""What the next call like the recorded one may not do."""
_NO_TRAP = "this version of PyTorch does not allow it: the self-check of the trap failed"


@dataclass(frozen=True, slots=True)
class Demotion:
    """The result of an audit that found a difference."""

    text: str
    calls: int
    """How many calls recordings had answered before."""


class CompiledFunction(BranchingFunction):
    """A function of the user's, compiled by calling it."""

    def __init__(self, function: Callable[..., Any], options: Options, compiler: JitCompiler, name: str):
        super().__init__(function, options, compiler, name)
        self.follower = Follower(function, options, compiler, name, self._hand_on)
        self.otherwise = self.native.otherwise = self.follower
        self.native.forbids_attributes = True
        self.why_followed = self._asked_for()
        """Why Python runs where calls are followed, and the user's line, "" if none is known."""
        self.demotion: Demotion | None = None
        """Why no recording stands in for Python any more, once an audit has found a difference."""
        self.needs_proof = True
        """Whether a recording has to be proven to say all that Python does; graphs of torch.compile have no Python."""
        self._why_original = _why_original(function)
        """Why every call goes to the original, if it does."""
        if self._why_original is not None and options.fullgraph:
            raise CaptureError(f"{name} cannot be compiled with fullgraph=True: {self._why_original}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._why_original is not None:
            self.left[self._why_original] += 1
            return self.function(*args, **kwargs)
        if self.options.python != "run" and self.demotion is None:
            return super().__call__(*args, **kwargs)
        if is_off():
            return self.function(*args, **kwargs)
        if self.demotion is not None and self.options.fullgraph:
            raise CaptureError(self.demotion.text)
        self.native.hand_on(unless_off(self.function, self.follower), _FOR_GOOD)
        return self.follower(*args, **kwargs)

    def _hand_on(self, calls: int) -> None:
        """Give the next calls that no recording answers to the function, as they are."""
        if self.options.python != "run" and self.demotion is None:
            if self._unseen.needs_a_look():
                return
            calls = max(calls, self.native.to_be_handed_on)
        self.native.hand_on(self.function, calls)

    def forget(self) -> None:
        super().forget()
        self.follower.forget()
        self.why_followed = self._asked_for()
        self.demotion = None

    def _asked_for(self) -> tuple[str, str] | None:
        return ('python="run" was asked for', "") if self.options.python == "run" else None

    @property
    def is_proven(self) -> bool:
        return self.needs_proof and self.options.python != "skip"

    @property
    def tier(self) -> Tier:
        """How calls like the latest new one run: Python is skipped, is followed, or runs as it always did."""
        latest = self.latest
        if self._why_original is not None:
            return "eager" if self.left else "new"
        pays = self.follower.verdict.text is None
        followed = "following" if pays and self.follower.is_possible else "eager"
        if self.options.python == "run":
            return followed if self.follower.calls else "new"
        if latest is None:
            return "new"
        if isinstance(latest, str) or self.given_up is not None:
            return followed
        if latest.standing_in is not None:
            return "skipping"
        return "eager" if latest.prefers_eager or latest.needs_gradients else followed

    @property
    def is_followed(self) -> bool:
        """Whether calls that have no recording are followed."""
        return self._why_original is None and self.follower.is_possible

    @property
    def why_eager(self) -> str | None:
        """Why calls like the latest new one run as they always did, if they do."""
        if self.tier != "eager":
            return None
        latest = self.latest
        if self._why_original is not None:
            return self._why_original
        if isinstance(latest, Specialisation) and (latest.prefers_eager or latest.needs_gradients):
            broken = latest.why_broken
            if broken is not None:
                return broken.reason
        return self.follower.verdict.text or _NO_TRAP

    @property
    def all_recordings(self) -> int:
        """How often something was recorded: calls of the function, and of segments of calls that were followed."""
        return self.recordings + sum(segment.recorded.recordings for segment in self.follower.summary().segments)

    @property
    def takes_objects(self) -> bool:
        return self.needs_proof

    def _why_not_recorded(self, call: KeyedCall, found: Specialisation) -> Broken | None:
        if (self.options.python == "skip" and call.described.given is None) or not self.needs_proof:
            return None
        proof = prove(self.function, tuple(call.args), dict(call.kwargs), (), call.described.given)
        is_for_now = found.broken is not None and found.broken.is_for_now
        if isinstance(proof, Proof) or (proof.lacks_answers and is_for_now and self.allows_questions):
            return None
        return Broken(proof.reason, proof.place)

    def _approve(self, call: KeyedCall, made: Specialisation) -> None:
        """Let a recording stand in for Python where that is proven, or promised with python="skip"."""
        described = call.described
        questions = () if made.trace is None else made.trace.questions
        if self.needs_proof:
            made.audits = Audits()
        is_promised = (self.options.python == "skip" and described.given is None) or not self.needs_proof
        trains = made.trace is not None and made.trace.training is not None
        """Whether optimizers are involved, whose state no promise is about."""
        if not self.needs_proof and not questions and not trains:
            return
        proof = prove(self.function, tuple(call.args), dict(call.kwargs), questions, described.given)
        if isinstance(proof, Proof) and made.trace is not None:
            made.trace.questions = decided(questions, proof.decisions)
            refused = told_apart(made.trace, readings(proof))
            proof = proof if refused is None else Refusal(*refused)
        if questions:
            self.refused_paths = 0 if isinstance(proof, Proof) else self.refused_paths + 1
        if isinstance(proof, Proof):
            reason = what_a_proof_lacks(proof, made) or unproven_change(proof.changes, made)
            if reason is None and are_around(proof, described):
                reason = _AROUND
            if reason is None:
                if made.trace is not None and made.trace.training is not None:
                    gradients = GradientGuard.of(made.trace, made.trace.training)
                    proof.guards.append(gradients)
                    proof.keys.append(gradients.key)
                made.environment.guards = ProvenGuards(proof=proof)
                made.repeat([call for call in proof.kept_calls if call.cache.is_limited])
                made.allow_open_sizes(proof.sizes)
                return
            if is_promised and not trains and reason is not _AROUND:
                return
            proof = Refusal(reason, "")
        elif is_promised and not questions and not trains:
            if not any(id(tensor) in made.environment.tensors for tensor in described.tensors):
                return
            proof = Refusal(_AROUND, "")
        made.trace, made.broken = None, Broken(proof.reason, proof.place, is_for_now=proof.reason in _FOR_NOW)

    def _find_kept(self, call: KeyedCall) -> Specialisation | None:
        if not self._keeps_recordings:
            return None
        made = kept.find(self.function, self.name, self.options, call.described, call.key[1])
        if made is not None:
            self._take_kept(call, made)
        return made

    @property
    def _keeps_recordings(self) -> bool:
        """Whether recordings outlive the process: those that are proven, where anything does."""
        is_wanted = self.needs_proof and self.options.config["enable_caching"] and not is_capturing()
        return is_wanted and process_store() is not None

    def _audit(
        self, call: KeyedCall, found: Specialisation, numbers: Sequence[int | float], path: Specialisation | None = None
    ) -> Audited | None:
        audits, number = found.audits, self.calls_of(found)
        if audits is None or number < audits.due:
            return None
        is_audited = audits.begin(number, is_possible=not is_capturing())
        self.native.pause(found)
        if not is_audited:
            return None
        audited = audit(self.function, call, found, numbers, path or found)
        if audited.difference is not None:
            self._demote(audited.difference)
        elif not found.is_kept and self._keeps_recordings:
            found.is_kept = True
            with collecting_later():
                kept.keep(self.function, self.name, self.options, call.described, state_of_torch(), found)
        return audited

    def _demote(self, difference: Difference) -> None:
        """Let Python run at every call from now on: a proof or a promise that was wrong once is not trusted again."""
        with self._lock:
            if self.demotion is not None:
                return
            kinds = [kind for kind in self.specialisations.values() if kind.trace is not None]
            text = _audit_text(self.name, difference, self.options.python)
            self.demotion = Demotion(text, sum(map(self.calls_of, kinds)))
            self.latest = text
            self.why_followed = f"an audit found that {difference.text}", difference.place
            self.native.close()
            self._forget_recordings()
        if self.options.fullgraph:
            raise CaptureError(text)
        warn(text)

    def _hand_over(self, reason: str, place: str | None, subject: str | None = None) -> None:
        if not self.follower.is_possible:
            self._complain(reason, place, subject)
            return
        self.why_followed = reason, place or ""
        text = self._notices.news("is followed", reason, place, subject)
        if text is not None:
            log("fallbacks", text)


def _audit_text(name: str, difference: Difference, python: str) -> str:
    """What to say when Python has done something else than what was recorded."""
    where = f" ({difference.place})" if difference.place else ""
    if python == "skip":
        cause = (
            'python="skip" promises that Python depends on the arguments and the state of modules alone, and that does '
            'not hold; use python="auto", or python="run" to keep Python from being skipped at all'
        )
    else:
        cause = 'ingot should have seen that coming: please report it. python="run" keeps Python from being skipped'
    return (
        f"{name} does not do what was recorded of it, an audit has found: {difference.text}{where}. Calls before this "
        f"one may have given what was recorded; from now on Python runs at every call. {cause}"
    )


def require_callable(function: Any) -> None:
    """Refuse what cannot be compiled by calling it."""
    if not callable(function):
        raise CaptureError(f"ingot.jit takes a function, a method, a module or a module class, not {function!r}")


def _why_original(function: Any) -> str | None:
    """Why a function is called as it is: its body runs when the call is over, piece by piece."""
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    for one in (function, called):
        for test, what in (
            (inspect.isgeneratorfunction, "a generator, whose body runs between its values: jit what it calls"),
            (inspect.iscoroutinefunction, "a coroutine, whose body runs when it is awaited: jit what it calls"),
            (inspect.isasyncgenfunction, "an asynchronous generator, whose body runs later: jit what it calls"),
        ):
            if test(one):
                return f"it is {what}"
    return None
