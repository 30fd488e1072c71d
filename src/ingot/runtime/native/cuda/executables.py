"""Where native code keeps the executable graphs by which a function of a GPU is launched.

A graph of one kernel is on its way in half the time that a launch takes, if it is made once and given new words before
each launch. One belongs to a function and to a stream: a graph waits for itself, so on two streams one would wait for
the other. Native code makes them as streams turn up (see graph_launching), a few for each function; they stay, as the
functions do.
"""

from __future__ import annotations

from ingot.base.forks import new_lock
from ingot.runtime.native.cuda.device_structs import ExecutablesWords


class Executables:
    """The executable graphs of one function; none of them is made yet."""

    def __init__(self) -> None:
        self._words = ExecutablesWords.zeroed()
        for each in self._words.each:
            each.busy = 1
        self.address = self._words.address

    @property
    def streams(self) -> list[int]:
        """The streams on which launches are graphs."""
        return [each.stream for each in self._words.each[: self._words.count] if each.handle]


_of_functions: dict[int, Executables] = {}
_lock = new_lock()


def executables_of(function: int) -> Executables:
    """The executable graphs of a function, by its handle, which is valid as long as the process lives."""
    with _lock:
        return _of_functions.setdefault(function, Executables())
