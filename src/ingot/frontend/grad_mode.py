"""Calling a function without gradients, such that an interrupt leaves the grad mode as it was.

`torch.no_grad` is a block in Python: KeyboardInterrupt may come before the first line of its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def without_gradients(function: Callable[..., Result], *args: Any) -> Result:
    """What a function gives when no gradients are recorded."""
    is_enabled = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)
        return function(*args)
    finally:
        torch._C._set_grad_enabled(is_enabled)  # the first call here, and native: nothing comes before it
