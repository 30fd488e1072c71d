"""What a recorded call has returned: tensors of its trace and plain values, and how they are nested."""

from __future__ import annotations

from typing import Any

import torch

from ingot.frontend.jit.arguments.structure import Shape, take_apart
from ingot.frontend.jit.trace.recorder import Recording


def take_results(recording: Recording, result: Any) -> Shape:
    """Note what the function returned, and how it is nested; results must be tensors of the recording and plain
    values."""
    leaves: list[Any] = []
    shape = take_apart(result, leaves)
    noted: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if vars(leaf):
                recording.stop("it returns a tensor that has attributes of its own")
            register = recording.value_of(leaf)
            if register is None:
                recording.stop("it returns a tensor that was made outside PyTorch's operators")
            noted.append(register)
        elif isinstance(leaf, _PLAIN_RESULTS):
            noted.append(leaf)
        else:
            recording.stop(f"it returns a {type(leaf).__name__}, which would be the same object at every call")
    recording.trace.results = noted
    recording.training.conclude(leaves)
    return shape


_PLAIN_RESULTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice)
