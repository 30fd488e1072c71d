"""Which calls are being followed, and what of torch must not notice.

`nn.TransformerEncoder`, its layer and `nn.MultiheadAttention` ask `torch.overrides.has_torch_function` and take another
way where a mode is active, with other results; so may the user's code. They are told of no mode. Python functions of
torch that ask are told of none either, and run as they are: what they are made of is followed. All others are told, and
hand the whole call to the mode.
"""

from __future__ import annotations

import threading

from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.frontend.jit.follow.unseen import watch

_threads: dict[Following, int] = {}
"""Which thread a call is followed on."""


def _flush_all() -> None:
    for following in list(ACTIVE):
        following.flush()


def prepare() -> None:
    """See to what is done once: before guards are written, since it changes classes of torch's."""
    watch(_flush_all)


def begin(following: Following) -> None:
    """A call is followed from now on."""
    _threads[following] = threading.get_ident()
    ACTIVE.append(following)


def end(following: Following) -> None:
    """A call is not followed any more."""
    ACTIVE.remove(following)
    _threads.pop(following, None)


def of_this_thread() -> list[Following]:
    """The calls that this thread follows."""
    return [following for following in list(ACTIVE) if _threads.get(following) == threading.get_ident()]
