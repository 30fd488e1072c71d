"""Whether what a recorded call has left in the objects that it was given is what the proof says.

In: the changes that were found when the call was over, and those of a proof. Out: why the recording may not stand in
for Python, or None. What always holds: nothing was changed that the proof does not say, and every value that it says is
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.frontend.jit.arguments.structure import put_together
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, is_plain, is_same
from ingot.frontend.jit.proof.semantics.given_state import AnyTensor, Given, PlainValue
from ingot.frontend.jit.trace.object_changes import GivenObject
from ingot.frontend.jit.trace.trace import TraceValue

_UNPROVEN = "it changes an object that it was given in another way than the proof says"


def unproven_change(said: Mapping[tuple[int, Any], Any], made: Specialisation) -> str | None:
    """Why the changes that a recorded call has made are not all proven."""
    if made.changes is None or made.trace is None:
        return None
    leaves = iter(made.trace.results[len(made.trace.results) - made.changes.leaves :])
    for change in made.changes.changes:
        found = ABSENT if change.shape is None else put_together(change.shape, leaves)
        if isinstance(found, list):
            found = tuple(found)
        if not _agree(said.get((change.position, change.place), _NOTHING), found):
            return _UNPROVEN
    return None


class _NOTHING:
    """Stands for places of which the proof says that nothing changes."""


def _agree(said: Any, found: Any) -> bool:
    """Whether a value in a recording is what the proof says is there."""
    if said is AnyTensor:
        return isinstance(found, TraceValue)
    if said is PlainValue:
        return is_plain(found)
    if isinstance(said, Given):
        return isinstance(found, GivenObject) and found.position == said.position
    if type(said) is tuple and type(found) is tuple:
        return len(said) == len(found) and all(map(_agree, said, found))
    return is_same(found, said)
