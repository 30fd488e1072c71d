"""Which calls are being followed, and which code of torch is not told of the mode.

`nn.TransformerEncoder`, its layer and `nn.MultiheadAttention` ask `torch.overrides.has_torch_function` and take another
way where a mode is active, with other results; so may the user's code. They are told of no mode. Python functions of
torch that ask are told of none either, and run as they are: what they are made of is followed. All others are told, and
hand the whole call to the mode.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.frontend.jit.follow.protection.unseen import watch


def flush_all(cause: Any = None) -> None:
    """Run what is pending in all calls, on all threads."""
    for following in list(ACTIVE):
        following.flush(cause)
        if following.is_orphan:  # its thread does not exist in this process
            with contextlib.suppress(ValueError):
                ACTIVE.remove(following)


def _find_orphans() -> None:
    """In a forked child: the calls of other threads end here. What they have pending runs when it is read."""
    for following in ACTIVE:
        following.note_fork()


def prepare() -> None:
    """Do what is done once per process, before guards are written: it changes classes of torch."""
    watch(flush_all)


def begin(following: Following) -> None:
    """A call is followed from now on."""
    following.thread = threading.get_ident()
    ACTIVE.append(following)


def end(following: Following) -> None:
    """A call is not followed any more."""
    ACTIVE.remove(following)


def of_this_thread() -> list[Following]:
    """The calls that this thread follows."""
    return [following for following in list(ACTIVE) if following.thread == threading.get_ident()]


if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(after_in_child=_find_orphans)
