"""Hiding the function mode from modules that look for one.

`nn.TransformerEncoder`, its layer and `nn.MultiheadAttention` ask `torch.overrides.has_torch_function` and take another
way where a mode is active, with other results. While calls are followed, the question is answered as if they were not.
Everything else in torch asks under a name of its own, and is answered as always.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import overrides

from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.frontend.jit.follow.unseen import watch

_ask = overrides.has_torch_function


def _ask_unseen(relevant_args: Iterable[Any]) -> bool:
    count = torch._C._len_torch_function_stack()
    if count != 1 or not isinstance(torch._C._get_function_stack_at(0), Following):
        return _ask(relevant_args)
    mode = torch._C._pop_torch_function_stack()
    try:
        return _ask(relevant_args)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def flush_all(cause: Any = None) -> None:
    """Run what is pending in all calls, whatever thread they are followed on."""
    for following in list(ACTIVE):
        following.flush(cause)
        if following.is_orphan:  # its thread will not end it
            with contextlib.suppress(ValueError):
                ACTIVE.remove(following)
            restore()


def _find_orphans() -> None:
    """In a forked child: the calls of other threads end here. What they have pending is run when somebody reads it."""
    for following in ACTIVE:
        following.note_fork()


def prepare() -> None:
    """See to what is done once: before guards are written, since it changes classes of torch's."""
    watch(flush_all)


def begin(following: Following) -> None:
    """A call is followed from now on."""
    following.thread = threading.get_ident()
    ACTIVE.append(following)
    if overrides.has_torch_function is _ask:  # nobody else has put something there
        overrides.has_torch_function = _ask_unseen


def end(following: Following) -> None:
    """A call is not followed any more."""
    ACTIVE.remove(following)
    restore()


def restore() -> None:
    """Answer the question as always where no call is followed."""
    if not ACTIVE and overrides.has_torch_function is _ask_unseen:
        overrides.has_torch_function = _ask


def of_this_thread() -> list[Following]:
    """The calls that this thread follows."""
    return [following for following in list(ACTIVE) if following.thread == threading.get_ident()]


if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(after_in_child=_find_orphans)
