"""When native code hands calls to the original without looking at them, because looking has not paid off.

In: calls that were looked at in vain, and recordings that were dropped before they had answered many calls. Out: how
many calls are handed on unseen. A call that is not looked at costs what the original costs. It might have been worth a
recording, so now and then one is looked at again, more and more rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import compiler
from torch.autograd import forward_ad

from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.cache.native_calls import NativeCalls
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.guards.recompile_reasons import counts_up, differs_in_numbers
from ingot.frontend.jit.trace.questions import writes_leaves

LEFT_BETWEEN = 64
"""After this many calls in a row that are left to Python, none is expected that a recording answers here."""
FEW_IN_VAIN = 4
"""After this many calls in a row that were looked at in vain, some are handed on unseen."""
_FIRST_UNSEEN, _MOST_UNSEEN, _FACTOR = 16, 4096, 4
"""How many calls are handed on unseen: at first, at most, and the factor by which the number grows."""
PAID = 8
"""A recording is worth its making once it has answered this many calls."""
_MOST_UNPAID = 9
_WEIGHT_UNUSED = 3
"""The weight of a recording that never answered a call, beside 1 for one that answered a few."""
MOST_IN_VAIN = 32
"""How many recordings may be made while they have answered fewer calls than there are recordings."""
_FEW_AGAIN = 4
"""The same limit when recording is tried again."""
_MOST_SECONDS = 1.0
"""How many seconds these recordings may take together, if there are more than `_FEW_AGAIN`."""
MOST_OF_NUMBERS = 3
"""After this many recordings in a row that differ from the one before in numbers alone, Python runs at every call and
its numbers are taken as they come."""
_FIRST_REST = 4096
"""Calls that are not recorded once recording has not paid off."""
_FIRST_LOOK, _LATER_LOOK = 1, 256
"""How many calls of a kind run in Python, because no recording may stand in for it, before another one is recorded. The
first call often fills caches, so the second is recorded; later changes are rare."""
_LATEST = 1 << 48
"""The most calls to wait for either: native code counts them in one word."""


@dataclass(slots=True)
class Patience:
    """Calls that are looked at and then left to the original, in a row."""

    target: Callable[..., Any] | None = None
    settings: int = 0
    in_vain: int = 0
    rest: int = _FIRST_UNSEEN

    def note(self, target: Callable[..., Any], settings: int) -> int:
        """Take note of such a call; for how many others like it not to look."""
        if self.target is not target or self.settings != settings:
            self.reset()
            self.target, self.settings = target, settings
        self.in_vain += 1
        if self.in_vain < FEW_IN_VAIN:
            return 0
        rest, self.rest = self.rest, min(_MOST_UNSEEN, _FACTOR * self.rest)
        return rest

    def reset(self) -> None:
        """A call was recorded, or answered by a recording."""
        self.target, self.in_vain, self.rest = None, 0, _FIRST_UNSEEN


class UnseenCalls:
    """The calls of one function that native code hands on without looking at them."""

    def __init__(self, function: Callable[..., Any], native: NativeCalls):
        self._function = function
        self._native = native
        self._patience = Patience()
        self._expected = 0
        """While this is positive no calls are handed on unseen: the next may be one that is answered here, as no
        record can. It counts down with each call that is left to Python."""

    def note_answered(self, described: CallKey) -> None:
        """Take note of a call that a recording answers here, and not a record."""
        self._patience.reset()
        if described.given is not None:
            self._expected = LEFT_BETWEEN

    def note_recorded(self) -> None:
        """Take note of a call that is recorded, or answered with gradients."""
        self._patience.reset()

    def needs_a_look(self) -> bool:
        """Whether a call that no record knows may be one that a recording answers; asked once per call that is left to
        Python."""
        self._expected = max(0, self._expected - 1)
        return self._expected > 0

    def in_vain(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """Note that a call was looked at and is left to a function, which is returned. After a few such calls native
        code hands the next ones to that function at once."""
        if self.needs_a_look():
            return target
        settings = self._native.settings()
        calls = self._patience.note(target, settings)
        if calls and settings >= 0:
            self._native.hand_on(unless_off(self._function, target), calls, settings)
        return target


@dataclass(slots=True)
class Payoff:
    """Whether recordings answer enough calls to be worth their making."""

    unpaid: int = 0
    recorded: int = 0
    answered: int = 0
    """Recordings made and calls answered when the count began."""
    seconds: float = 0.0
    """What recordings have cost since then."""
    allowed: int = MOST_IN_VAIN
    rest: int = _FIRST_REST
    look: int = _FIRST_LOOK
    of_numbers: int = 0
    """Recordings in a row that differ in numbers alone."""

    def note_gone(self, calls: int, is_for_now: bool = False) -> None:
        """A recording does not hold any more, or had to make room; it has answered so many calls. One that could not be
        made for now, such as that of a step in which an optimizer makes its state, counts for less."""
        if calls >= PAID and not is_for_now:
            self.unpaid = 0
        else:
            self.unpaid += 1 if calls or is_for_now else _WEIGHT_UNUSED

    @property
    def is_unstable(self) -> bool:
        """Whether recordings keep being dropped before they have paid off."""
        return self.unpaid >= _MOST_UNPAID

    def is_in_vain(self, recorded: int, answered: int, most: int) -> bool:
        """Whether recordings are made for calls that do not come again."""
        made = recorded - self.recorded
        is_much = made >= min(self.allowed, most) or (made >= _FEW_AGAIN and self.seconds > _MOST_SECONDS)
        return is_much and answered - self.answered < made

    def why_not_record(
        self, reason: str, recorded: int, answered: int, kinds: int, most: int
    ) -> tuple[str, str] | None:
        """Why not to record another call, for which there is a `reason`, and what kind of reason that is; None to
        record it. So many recordings were made, and so many of at most so many kinds are there."""
        if self.is_in_vain(recorded, answered, most):
            return (
                f"it has been recorded for {kinds} kinds of calls, and this is another one "
                f"({reason}); pass numbers that vary as tensors, keep from reading sizes in Python, or use "
                "dynamic=True",
                "full",
            )
        if self.of_numbers >= MOST_OF_NUMBERS:
            return f"a number changes from call to call, the last time because {reason}", "unstable"
        if self.is_unstable:
            return f"its recordings do not hold for long, the last one because {reason}", "unstable"
        return None

    def next_rest(self) -> int:
        """How many calls are not recorded, now that recording has not paid off."""
        rest, self.rest = self.rest, min(_LATEST, self.rest * _FACTOR)
        return rest

    def next_look(self) -> int:
        """After how many calls to record again what nothing may stand in for now: what forbids it may be gone."""
        look, self.look = self.look, min(_LATEST, max(_LATER_LOOK, self.look * _FACTOR))
        return look

    def begin_again(self, recorded: int, answered: int) -> None:
        """Give recording another chance, a smaller one."""
        self.recorded, self.answered, self.seconds, self.allowed = recorded, answered, 0.0, _FEW_AGAIN
        self.unpaid = _MOST_UNPAID - 2


def numbers_in_a_row(so_far: int, recorded: Sequence[Any], key: Any, latest: Specialisation | None) -> int:
    """How many recordings in a row differ in numbers alone, with the one that is to be made for a key; `latest` is the
    one before."""
    if not recorded or not differs_in_numbers(recorded[-1], key):
        return 0
    trace = None if latest is None else latest.trace
    if trace is not None and counts_up(recorded[-1], key) and writes_leaves(trace):
        return MOST_OF_NUMBERS  # the steps of an optimizer: it will be another number at every call
    return so_far + 1


def unless_off(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """What native code hands calls on to: `otherwise`, except while compiled functions are to call their originals.
    Native code has checked all reasons for that but these two."""
    if otherwise is function:
        return function

    def handed_on(*args: Any, **kwargs: Any) -> Any:
        is_compiling = compiler._is_compiling_flag  # type: ignore[attr-defined]
        return (function if is_compiling or forward_ad._current_level >= 0 else otherwise)(*args, **kwargs)

    return handed_on
