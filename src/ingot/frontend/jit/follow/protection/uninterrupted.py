"""Calling a function to its end before any signal is answered.

In: a function. Out: its result; signals that came meanwhile are answered when it is over, so that KeyboardInterrupt is
raised after it instead of in its middle. Python answers signals on its main thread alone: elsewhere there is
nothing to hold.

For what runs seldom and takes longer than this does, about 20 us: handlers in Python are replaced by one that notes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

_held: dict[signal.Signals, Any] = {}
"""The handlers that were replaced. They are the process's, and one thread can replace them."""


def uninterrupted(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; handlers of signals, which may raise anything, run afterwards."""
    if _held or threading.get_ident() != threading.main_thread().ident:
        return function(*args)
    came: list[int] = []
    try:
        try:
            _hold(lambda number, _: came.append(number))
            return function(*args)
        finally:
            _release()
    finally:
        _release()  # a signal that came before it was held, or while handlers were put back
        for number in came:
            signal.raise_signal(number)


def _hold(note: Callable[[int, Any], None]) -> None:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            _held[signal.Signals(number)] = handler
            try:
                signal.signal(number, note)
            except ValueError:  # Python runs in a program whose main thread is another one
                _held.clear()
                return


def _release() -> None:
    for number, handler in list(_held.items()):
        signal.signal(number, handler)
        _held.pop(number, None)


if hasattr(os, "register_at_fork"):  # a child that was forked meanwhile by another thread
    os.register_at_fork(after_in_child=_release)
