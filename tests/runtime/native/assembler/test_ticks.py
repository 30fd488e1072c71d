"""The clock of native calls goes like the system's, whatever its ticks are."""

import ctypes
import time

import pytest

from ingot.runtime.native.assembler import ticks
from ingot.runtime.native.assembler.routines import Library


@pytest.fixture(params=[True, False], ids=["counter", "system"])
def read(request, monkeypatch):
    """The moment, as a native routine reads it."""
    if request.param and not ticks._has_counter():
        pytest.skip("this processor's counter is not for everyone to read")
    monkeypatch.setattr(ticks, "_has_counter", lambda: request.param)
    monkeypatch.setattr(ticks, "_tick", ticks._tick.__wrapped__)  # pyright: ignore[reportFunctionMemberAccess]
    library = Library("test")
    routine = library.routine("read", 0)
    routine.give_back(ticks.now(routine))
    library.compile()
    return ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("read"))


def test_ticks_are_seconds_of_the_system_clock(read):
    before = time.perf_counter()
    first = read()
    inside = time.perf_counter()
    time.sleep(0.02)
    inside = time.perf_counter() - inside
    last = read()
    outside = time.perf_counter() - before
    assert inside * 0.99 <= ticks.seconds(last - first) <= outside * 1.01
