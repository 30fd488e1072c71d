"""Hiding the function mode from modules that look for one.

`nn.TransformerEncoder`, its layer and `nn.MultiheadAttention` ask `torch.overrides.has_torch_function` and take another
way where a mode is active, with other results. While calls are followed, the question is answered as if they were not.
Everything else in torch asks under a name of its own, and is answered as always.
"""

from __future__ import annotations

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


def _flush_all() -> None:
    for following in list(ACTIVE):
        following.flush()


def prepare() -> None:
    """See to what is done once: before guards are written, since it changes classes of torch's."""
    watch(_flush_all)


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
