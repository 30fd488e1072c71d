"""Leaving a followed call by KeyboardInterrupt, which may come anywhere, inside the code that ends the call included.

In: how many function modes there were when the call began. Out: no mode of the call is left on a stack, torch's flags
about modes are right, the trap catches again, and the call is not followed any more. Can be repeated.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch import overrides
from torch.utils import _python_dispatch

from ingot.frontend.jit.follow import visibility
from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.frontend.jit.follow.steps.observing import OperatorObserver

_FLAGS = tuple(name for name in vars(_python_dispatch) if name.startswith("_is_in_"))
_tell_flag: Any = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)

_BLOCK: Any = inspect.unwrap(overrides._pop_mode_temporarily).__code__
_BLOCK_ENDS = tuple(getattr(contextlib._GeneratorContextManager, name).__code__ for name in ("__enter__", "__exit__"))
"""Where blocks that are written as generators begin and end."""


def clean_up(error: KeyboardInterrupt, height: int, key: Any) -> None:
    """Take off what an interrupted call has left; `key` is the trap's dispatch key."""
    _end_blocks_of_torch(error)
    while torch._C._len_torch_function_stack() > height:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() and isinstance(_top(), OperatorObserver):
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


def _end_blocks_of_torch(error: KeyboardInterrupt) -> None:
    """End the blocks in which torch takes a mode off for a moment. One that was interrupted while it began or ended
    puts the mode back when nothing refers to it any more, the traceback included."""
    traceback = error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        if frame.f_code in _BLOCK_ENDS:
            block: Any = getattr(frame.f_locals.get("self"), "gen", None)
            if getattr(block, "gi_code", None) is _BLOCK:
                block.close()


def _top() -> Any:
    return torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)


def _end(following: Following) -> None:
    following.flush()
    with contextlib.suppress(ValueError):
        ACTIVE.remove(following)
