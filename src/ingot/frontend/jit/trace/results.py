"""What a recorded call has returned: tensors of its trace and plain values, and how they are nested."""

from __future__ import annotations

from typing import Any

import torch

from ingot.frontend.jit.arguments.given_objects import GivenObjects
from ingot.frontend.jit.arguments.structure import Shape, take_apart
from ingot.frontend.jit.trace.object_changes import GivenObject, Incomparable, ObjectChanges, take_changes
from ingot.frontend.jit.trace.recorder import Recording


def take_results(
    recording: Recording, result: Any, given: GivenObjects | None = None
) -> tuple[Shape, ObjectChanges | None]:
    """Note what the function returned and how it is nested, and what it has left in the objects that it was given, if
    it was given some. All must be tensors of the recording, plain values and these objects."""
    leaves: list[Any] = []
    shape = take_apart(result, leaves)
    noted = [_noted(recording, leaf, given, "returns") for leaf in leaves]
    changes = None
    if given is not None:
        changes, more = _taken_changes(recording, given)
        noted += more
    recording.trace.results = noted
    recording.training.conclude(leaves)
    if given is not None and recording.trace.training is not None:
        recording.stop("it trains, and is given an object with state")
    return shape, changes


def _taken_changes(recording: Recording, given: GivenObjects) -> tuple[ObjectChanges, list[Any]]:
    try:
        return take_changes(given, lambda leaf: _noted(recording, leaf, None, "keeps"))
    except Incomparable as error:
        recording.stop(str(error))
        return ObjectChanges(), []


def _noted(recording: Recording, leaf: Any, given: GivenObjects | None, what: str) -> Any:
    """A part of a result as a trace holds it."""
    position = None if given is None else given.position_of(leaf)
    if position is not None:
        return GivenObject(position)
    if isinstance(leaf, torch.Tensor):
        if vars(leaf):
            recording.stop(f"it {what} a tensor that has attributes of its own")
        register = recording.value_of(leaf)
        if register is None:
            recording.stop(f"it {what} a tensor that was made outside PyTorch's operators")
        return register
    if not isinstance(leaf, (*_PLAIN_RESULTS, GivenObject)):
        recording.stop(f"it {what} a {type(leaf).__name__}, which would be the same object at every call")
    return leaf


_PLAIN_RESULTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice)
