"""Where native code keeps the executable graphs by which a function of a GPU is launched.

A graph of one kernel is on its way in half the time that a launch takes, if it is made once and given new words before
each launch. One belongs to a function and to a stream: a graph waits for itself, so on two streams one would wait for
the other. Native code makes them as streams turn up (see graph_launching), a few for each function; they stay, as the
functions do.
"""

from __future__ import annotations

import ctypes

from ingot.base.forks import new_lock

# The words of a function's executable graphs: whether one is being made, how many there are, and then each.
MAKING, COUNT, FIRST = range(3)
# An executable graph: its stream, its handle, or 0 if launches on this stream are plain ones, the handle of its node,
# and whether a thread is using it. Until it is made it is in use.
STREAM, HANDLE, NODE, BUSY = range(4)
EXECUTABLE_WORDS = 4
MOST_EXECUTABLES = 4
"""Of a function; on other streams its launches are plain ones."""


class Executables:
    """Those of one function, none of them made."""

    def __init__(self) -> None:
        words = [0, 0] + [0, 0, 0, 1] * MOST_EXECUTABLES
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self._words)

    @property
    def streams(self) -> list[int]:
        """The streams on which launches are graphs."""
        rows = [
            self._words[FIRST + EXECUTABLE_WORDS * number :][:EXECUTABLE_WORDS] for number in range(self._words[COUNT])
        ]
        return [row[STREAM] for row in rows if row[HANDLE]]


_of_functions: dict[int, Executables] = {}
_lock = new_lock()


def executables_of(function: int) -> Executables:
    """Those of a function by its handle, which it has as long as the process lives."""
    with _lock:
        return _of_functions.setdefault(function, Executables())
