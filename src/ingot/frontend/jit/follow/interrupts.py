"""Leaving a followed call by KeyboardInterrupt, which may come anywhere, inside the code that ends the call included.

In: how many function modes there were when the call began. Out: no mode of the call is left on a stack, torch's flags
about modes are right, the trap catches again, and the call is not followed any more. Can be repeated.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils import _python_dispatch

from ingot.frontend.jit.follow import visibility
from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.frontend.jit.follow.observing import Operators

_FLAGS = tuple(name for name in vars(_python_dispatch) if name.startswith("_is_in_"))
_tell_flag: Any = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)


def clean_up(height: int, key: Any) -> None:
    """Take off what an interrupted call has left; `key` is the trap's dispatch key."""
    while torch._C._len_torch_function_stack() > height:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() and isinstance(_top(), Operators):
        torch._C._pop_torch_dispatch_stack(None)
    if not torch._C._len_torch_dispatch_stack():
        for name in _FLAGS:
            setattr(_python_dispatch, name, False)
        if _tell_flag is not None:
            _tell_flag(False)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    on_stack = {torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())}
    for following in visibility.of_this_thread():
        if following not in on_stack:
            _end(following)


def _top() -> Any:
    return torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)


def _end(following: Following) -> None:
    following.flush()
    with contextlib.suppress(ValueError):
        ACTIVE.remove(following)
