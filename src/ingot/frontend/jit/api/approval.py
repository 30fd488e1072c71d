"""Whether a proof of a function lets a recording of it stand in for Python.

In: a proof, a recorded call, and the changes that were found in objects when it was over. Out: why the recording may
not stand in for Python, or None. What always holds where it may: the call has changed nothing that the proof does not
say, and every value that the proof says is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.structure import is_taken_apart, mutable_containers, put_together, take_apart
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.proof import Proof
from ingot.frontend.jit.proof.domain.abstract_values import ReadNumber
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, expected_in, is_plain, is_same
from ingot.frontend.jit.proof.semantics.given_state import AnyTensor, Given, PlainValue
from ingot.frontend.jit.trace.object_changes import GivenObject
from ingot.frontend.jit.trace.trace import TraceValue

FILLS = "it has filled the cache of a function that keeps its results"
_UNPROVEN = "it changes an object that it was given in another way than the proof says"


def are_around(proof: Proof, described: CallKey) -> bool:
    """Whether tensors that were passed, or dataclasses and the like, are also found around the function: then a
    recording does not tell which of the two is meant. What dataclasses among the arguments hold is not around it."""
    passed = {id(tensor) for tensor in described.tensors}
    told = [one.value for one in proof.arguments if is_taken_apart(one.value)]
    containers = [part for one in told for part in mutable_containers(one)]
    own = {id(one) for one in containers} | {id(getattr(one, "__dict__", None)) for one in containers}
    passed |= {id(one) for one in containers}
    return not passed.isdisjoint(expected_in(proof.guards, own - {id(None)}))


def what_a_proof_lacks(proof: Proof, made: Specialisation) -> str | None:
    """Why a proven recording may still not stand in for Python; None if it may."""
    trace, ran = made.trace, made.ran
    if proof.returned:
        return "it returns an object that exists before the call"
    recorded = [] if trace is None or trace.training is None else trace.training.schedules
    if list(map(id, proof.schedules)) != list(map(id, recorded)):
        return "it calls steps of schedules that were not seen while it was recorded"
    if trace is not None and trace.assumes_constants and not proof.calls_script:
        return "a tensor is used that was made outside PyTorch's operators"
    if proof.calls_script and made.needs_gradients:
        return "it calls TorchScript functions, and its result needs gradients"
    if proof.kept_calls and ran is None:
        return "it calls functions that keep their results, and was profiled while it was recorded"
    if ran is not None and any(call.cache.function.__code__ in ran for call in proof.kept_calls):
        return FILLS
    return None


def readings(proof: Proof) -> list[tuple[int, str]]:
    """Results that are numbers which were read, by their places, and as expressions of answers."""
    leaves: list[Any] = []
    take_apart(proof.outline, leaves)
    return [(place, leaf.text) for place, leaf in enumerate(leaves) if isinstance(leaf, ReadNumber)]


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
