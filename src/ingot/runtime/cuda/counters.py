"""Counters of blocks of threads, by which the last block of a launch knows that it is the last.

In: a device and a stream. Out: the address of enough of them. They are 0 before every launch and after it, since the
last block resets them. Launches of one stream follow each other, so all of them share its counters. A call that is
captured in a CUDA graph keeps counters of its own for ever: graphs run on any stream, several at a time, and CUDA does
not tell when one is gone. That is 4 bytes, or a few hundred, for each captured call.

Memory for them is the driver's, not torch's: what torch allocates while a graph is being captured belongs to the graph.
"""

from __future__ import annotations

import threading
from ctypes import byref, c_int, c_uint64, c_void_p

from ingot.base.forks import new_lock
from ingot.base.once import OncePerKey
from ingot.loops.gpu.schedule import MOST_COUNTERS
from ingot.runtime.cuda.driver import PER_THREAD_STREAM, driver
from ingot.runtime.native.cuda.device_structs import MOST_STREAMS, StreamsWords, StreamWords

COUNTER_BYTES = 4
_CHUNK = 16 * MOST_COUNTERS * COUNTER_BYTES
_NON_BLOCKING = 1
"""A stream that waits for no other, as the driver numbers it."""


class Counters:
    """The counters of a device. Thread-safe."""

    def __init__(self, device: int):
        self._device = device
        self._lock = new_lock()
        self._next = self._end = 0
        self._streams: dict[tuple[int, int], int] = {}
        self._table = StreamsWords.zeroed()

    @property
    def table(self) -> int:
        """Where native code finds them."""
        return self._table.address

    def for_launch(self, stream: int, count: int) -> int:
        """Where `count` numbers are, for a launch on a stream."""
        if self._is_being_captured(stream):
            with self._lock:
                return self._take(count)
        thread = threading.get_ident() if stream == PER_THREAD_STREAM else 0
        with self._lock:
            if (stream, thread) not in self._streams:
                self._streams[stream, thread] = found = self._take(MOST_COUNTERS)
                if not thread and self._table.count < MOST_STREAMS:
                    self._table.streams[self._table.count].become(StreamWords(handle=stream, counters=found))
                    self._table.count += 1
            return self._streams[stream, thread]

    def _is_being_captured(self, stream: int) -> bool:
        status, found = c_int(), driver()
        with found.current(found.context(self._device)):  # the default stream has the same handle on every device
            found.call("cuStreamIsCapturing", stream, byref(status))
        return status.value != 0

    def _take(self, count: int) -> int:
        if self._next + count * COUNTER_BYTES > self._end:
            self._next = _zeroed_memory(self._device, _CHUNK)
            self._end = self._next + _CHUNK
        found, self._next = self._next, self._next + count * COUNTER_BYTES
        return found


def _zeroed_memory(device: int, nbytes: int) -> int:
    """The address of new memory of a device that is 0, and that stays.

    A stream of its own makes it 0: every other one may be captured just now, or have to wait for one that is.
    """
    found, address, stream = driver(), c_uint64(), c_void_p()
    with found.current(found.context(device)), found.unseen_by_capture():
        found.call("cuMemAlloc", byref(address), nbytes)
        found.call("cuStreamCreate", byref(stream), _NON_BLOCKING)
        found.call("cuMemsetD8Async", address, 0, nbytes, stream)
        found.call("cuStreamSynchronize", stream)
        found.call("cuStreamDestroy", stream)
    return address.value


_of_devices: OncePerKey[int, Counters] = OncePerKey()


def counters_of(device: int) -> Counters:
    """The counters of the device with this number."""
    return _of_devices.get(device, lambda: Counters(device))
