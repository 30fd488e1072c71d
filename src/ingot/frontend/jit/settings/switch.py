"""Whether compiled functions call their originals: the user has disabled ingot, or another tool is watching the
call."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ingot.base.environment_variables import environment
from ingot.frontend.jit.python_code.replaced_methods import replaced_method
from ingot.runtime.native.abi.settings import suspended
from ingot.runtime.torch_state import is_watched

EVERYTHING: weakref.WeakSet[Any] = weakref.WeakSet()
"""All compiled functions there are."""
_thread = threading.local()


@contextmanager
def disable() -> Iterator[None]:
    """Inside this context every compiled function calls its original; also usable as a decorator."""
    before = getattr(_thread, "is_disabled", False)
    _thread.is_disabled = True
    try:
        with suspended():
            yield
    finally:
        _thread.is_disabled = before


def reset() -> None:
    """Forget all recordings and what was planned from them, as if no compiled function had ever been called.

    Kernels stay: a function that needs the same again gets them.
    """
    for compiled in list(EVERYTHING):
        compiled.forget()


def is_off() -> bool:
    """Whether a call goes to the original: ingot is disabled, something sees or changes every operation, or methods of
    tensors are not PyTorch's."""
    return (
        torch.compiler.is_compiling()  # asked first: compilers that read this function take the answer for a constant
        or getattr(_thread, "is_disabled", False)
        or environment().is_disabled
        or is_watched()
        or replaced_method() is not None
    )
