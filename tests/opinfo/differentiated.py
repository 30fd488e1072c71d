"""Calls of operators together with their gradients.

In: a function of the database, as it is or compiled. Out: a function that gives its results, and the gradients of
everything in its arguments that needs them, for gradients of the results that are the same at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.opinfo.observing import tensors_in

CALLS = 4
"""The first is recorded, the second with its backward pass, the third is compiled, and the last runs what was."""


def differentiated(function: Callable[..., Any], process: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function with its gradients; `process` takes of its results those that have well-defined ones."""

    def calling(*args: Any, **kwargs: Any) -> Any:
        inputs = [one for one in dict.fromkeys(tensors_in((args, kwargs))) if one.requires_grad]
        result = function(*args, **kwargs)
        outputs = [one for one in tensors_in(process(result)) if one.requires_grad]
        gradients: Any = [None] * len(inputs)
        if inputs and outputs:
            gradients = torch.autograd.grad(outputs, inputs, [_tangent(one) for one in outputs], allow_unused=True)
        # How a sum of gradients lies in memory depends on the order in which PyTorch adds; `.grad` does not.
        return _plain(result), [None if one is None else one.detach().contiguous().clone() for one in gradients]

    return calling


def _tangent(output: torch.Tensor) -> torch.Tensor:
    """A gradient that is the same for all tensors of a shape, and lies in memory as it does in training."""
    count = torch.arange(1, output.numel() + 1, dtype=torch.float64, device=output.device)
    return torch.sin(count).reshape(output.shape).to(output.dtype)


def _plain(value: Any) -> Any:
    """Results without their history."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return value
