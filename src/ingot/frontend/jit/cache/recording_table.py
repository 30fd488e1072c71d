"""The recordings of one function, by the calls that they answer.

In: recordings as they are made, and what was generalised from them. Out: the one that answers a call, if there is one.
What always holds: the records in machine code of a recording that is dropped go with it; one whose guards fail may come
back. Whoever changes the table holds the function's lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable

from ingot.frontend.jit.cache.native_calls import NativeCalls
from ingot.frontend.jit.cache.shape_families import Generalised, Recorded, ShapeFamilies
from ingot.frontend.jit.cache.specialisation import Specialisation

MOST_SPECIALISATIONS = 64
"""How many specialisations a function keeps; beyond that the least recently used one goes."""
MOST_ASIDE = 3
"""How many recordings of one kind of call are kept while their guards fail."""


class RecordingTable:
    """What was recorded of a function, and holds or may hold again."""

    def __init__(self, native: NativeCalls, families: ShapeFamilies):
        """`native` has the records in machine code, which go with their recordings."""
        self.most = MOST_SPECIALISATIONS
        self.specialisations: OrderedDict[Hashable, Specialisation] = OrderedDict()
        """By the key of a call, or by what was generalised."""
        self.latest_keys: deque[Hashable] = deque(maxlen=self.most)
        """The keys of the last recordings."""
        self.families = families
        self._native = native
        self._shortcuts: dict[Hashable, Specialisation] = {}
        """Generalised recordings that were found to hold for a key."""
        self._aside: dict[Hashable, deque[Specialisation]] = {}
        """Recordings that held and may hold again, such as those of training while a module evaluates."""

    def find(self, key: Hashable) -> Specialisation | None:
        """What was recorded for calls of a key, or was found to hold for them."""
        return self.specialisations.get(key) or self._shortcuts.get(key)

    def calls_of(self, found: Specialisation) -> int:
        """Calls of one kind after it was recorded."""
        return found.calls + self._native.of(found)

    def put(self, key: Hashable, made: Specialisation) -> None:
        """Take a new recording."""
        self.specialisations[key] = made
        self.latest_keys.append(key)

    def put_shortcut(self, key: Hashable, found: Specialisation) -> None:
        """Note that what was generalised holds for calls of a key, whatever their tensors hold."""
        while len(self._shortcuts) >= self.most:
            self._shortcuts.pop(next(iter(self._shortcuts)))
        self._shortcuts[key] = found

    def put_general(self, general: Generalised | None) -> None:
        """What was generalised takes the place of recordings that have no program yet."""
        if general is None:
            return
        for member in general.members:
            if self._is_unprepared(member) and general.fits(member.shapes, member.numbers):
                self.specialisations.pop(member.key, None)
        for replaced in general.replaces:
            self.specialisations.pop(replaced, None)
        self.specialisations[general] = general.specialisation

    def _is_unprepared(self, member: Recorded) -> bool:
        """Whether a recording has no program yet."""
        held = self.specialisations.get(member.key) or member.specialisation
        return held.is_unprepared(member.specialisation)

    def give_back(self, general: Generalised) -> None:
        """Return to the recordings that something was generalised from, which does not hold."""
        self._shortcuts.clear()
        self.specialisations.pop(general, None)
        if not general.unified.trace.questions:
            for member in general.members:
                self.specialisations.setdefault(member.key, member.specialisation)
        self._native.drop(general.specialisation)

    def set_aside(self, key: Hashable, found: Specialisation) -> Specialisation | None:
        """Keep what does not hold at the moment for when it does again, and take out what does now, if there is any."""
        self._native.drop(found)
        self._shortcuts.pop(key, None)
        if self.specialisations.pop(key, None) is None:
            return None
        while key not in self._aside and len(self._aside) >= self.most:
            self._aside.pop(next(iter(self._aside)))
        aside = self._aside.setdefault(key, deque(maxlen=MOST_ASIDE))
        other = next((one for one in aside if one.changed() is None), None)
        if other is not None:
            aside.remove(other)
            self.specialisations[key] = other
        aside.append(found)
        return other

    def make_room(self) -> list[int]:
        """Drop recordings that no longer hold, or else the one that has not been used for the longest time. How many
        calls each of them has answered."""
        if len(self.specialisations) < self.most:
            return []
        gone = [key for key, one in self.specialisations.items() if one.changed() is not None]
        if not gone:
            idle = (key for key, one in self.specialisations.items() if self.calls_of(one) == one.calls_seen)
            gone = [next(idle, next(iter(self.specialisations)))]
            for one in self.specialisations.values():
                one.calls_seen = self.calls_of(one)
        return list(map(self._drop, gone))

    def keep_used(self, calls: int) -> None:
        """Keep only recordings that have answered so many calls, and generalise no more from earlier ones."""
        for key in [key for key, one in self.specialisations.items() if self.calls_of(one) < calls]:
            self._drop(key)
        self._forget_others()

    def clear(self) -> None:
        """Forget all recordings."""
        self.specialisations.clear()
        self._forget_others()

    def _forget_others(self) -> None:
        self._shortcuts.clear()
        self._aside.clear()
        self.latest_keys.clear()
        self.families.clear()

    def _drop(self, key: Hashable) -> int:
        """Forget a recording and everything that answers calls with it. How many it has answered."""
        gone = self.specialisations.pop(key)
        calls = self.calls_of(gone)
        self._native.drop(gone)
        for short in [short for short, one in self._shortcuts.items() if one is gone]:
            del self._shortcuts[short]
        self.families.drop(gone)
        return calls
