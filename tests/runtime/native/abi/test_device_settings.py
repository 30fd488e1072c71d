"""Settings that matter to GPUs alone are part of the word once a GPU is in use, and never before."""

import ctypes

import pytest
import torch

from ingot.runtime.native.abi.settings import Settings, devices_in_use, emit_settings
from ingot.runtime.native.assembler.routines import Foreign, Library
from ingot.runtime.native.dispatch.dispatcher import dispatcher
from ingot.runtime.torch_state import CurrentDevice
from tests.runtime.native.test_processes import in_child


class Word:
    """The word of settings where the current device is what the test says."""

    def __init__(self):
        library, settings = Library("test"), Settings.find()
        assert settings is not None
        state = library.memory("state", 2)
        where = library.routine("where", 0)
        where.give_back(state)
        current = library.routine("current", 1)
        current.store(current.load(state), current.parameters[0])
        current.give_back(current.load(state, 1))
        library.compile()
        address = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))()
        self._state = (ctypes.c_int64 * 2).from_address(address)
        self._library = Library("test")
        functions = {**settings.functions, CurrentDevice.symbol: Foreign(library.address("current"), 32)}
        emit_settings(self._library, Settings(functions))
        self._library.compile()
        self._read = ctypes.PYFUNCTYPE(ctypes.c_int64)(self._library.address("settings"))

    def __call__(self, index=0, code=0):
        self._state[:] = [index, code]
        return self._read()


@pytest.fixture
def count():
    """How many devices there are."""
    return 8


@pytest.fixture
def word(monkeypatch, count):
    devices_in_use.forget()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: count, raising=False)
    devices_in_use.look()
    yield Word()
    devices_in_use.forget()


def test_the_current_device_is_part_of_the_word(word):
    words = [word(index) for index in range(8)]
    assert len(set(words)) == 8 and min(words) >= 0


def test_a_device_that_cannot_be_told_is_watched(word):
    assert word(0, code=1) == -1


@pytest.mark.parametrize("count", [1])
def test_the_only_device_is_always_the_current_one_and_not_asked_for(word):
    assert word(0, code=1) == word(0) == word(5) >= 0
    before, was = word(), torch._C._get_cudnn_enabled()
    torch._C._set_cudnn_enabled(not was)
    try:
        assert word() not in (before, -1)
    finally:
        torch._C._set_cudnn_enabled(was)


def test_dtypes_of_autocast_differ(word):
    was = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        seen = set()
        for dtype in (torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cuda", dtype)
            seen.add(word())
        assert len(seen) == 2
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", was)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_no_gpu(word):
    assert word(5) != word(0)

    def work():
        assert word(5) == word(0) >= 0

    assert in_child(work) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may be in use")
def test_without_a_gpu_in_use_none_is_asked():
    found = dispatcher()
    assert found is not None
    before = found.settings()
    torch.set_autocast_enabled("cuda", True)
    try:
        assert found.settings() == before >= 0
    finally:
        torch.set_autocast_enabled("cuda", False)
