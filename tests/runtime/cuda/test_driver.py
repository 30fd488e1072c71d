"""The driver: found when it is needed, asked about devices, refused where it cannot be used."""

import ctypes
import os
import subprocess
import sys

import pytest

from ingot.base.errors import CudaError
from ingot.base.once import once
from ingot.runtime.cuda import driver as driver_module
from ingot.runtime.cuda.driver import Device, address_of, device, driver, why_unavailable
from tests.runtime.cuda.fake_driver import NO_DEVICE, FakeDriver


def test_importing_ingot_loads_no_driver():
    script = (
        "import ctypes\n"
        "load = ctypes.CDLL.__init__\n"
        "def watched(self, name, *rest, **options):\n"
        "    assert 'libcuda.' not in str(name), name\n"
        "    load(self, name, *rest, **options)\n"
        "ctypes.CDLL.__init__ = watched\n"
        "import ingot, ingot.runtime.cuda.driver, ingot.runtime.cuda.modules\n"
        "assert ingot.runtime.cuda.driver.why_unavailable()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    # The watch works: it is asking for devices, the last line, that comes to the library.
    assert "line 8" in done.stderr and "AssertionError: libcuda.so.1" in done.stderr


def test_without_a_library_nothing_is_available_and_the_error_says_what_to_do(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(driver_module, "_loaded", once(driver_module._loaded.__wrapped__))  # type: ignore[attr-defined]
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert why_unavailable() is not None
    with pytest.raises(CudaError, match=r"no driver for NVIDIA devices.*: no such file; install or update it"):
        driver()


def test_library_that_lacks_a_function_is_too_old(monkeypatch):
    monkeypatch.setattr(driver_module, "_loaded", once(driver_module._loaded.__wrapped__))  # type: ignore[attr-defined]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert why_unavailable() is not None
    with pytest.raises(CudaError, match=r"too old a one: .*cuInit"):
        driver()


@pytest.mark.parametrize("reason", ["no device", "cuInit fails", "counting fails"])
def test_driver_without_devices_is_not_available(install, reason):
    fake = install(FakeDriver(devices=0 if reason == "no device" else 1))
    fake.codes = {"cuInit fails": {"cuInit": NO_DEVICE}, "counting fails": {"cuDeviceGetCount": 999}}.get(reason, {})
    assert why_unavailable() is not None
    fake.codes, fake.devices = {}, 1
    assert why_unavailable() is None


def test_devices_are_described(install):
    install(FakeDriver(devices=2))
    assert device(0) == Device(0, (9, 0))
    assert device(1) == Device(1, (9, 1))
    assert driver().version() == 12080
    with pytest.raises(CudaError, match=r"cuDeviceGet failed with an unknown error \(101\)"):
        device(2)


def test_error_has_the_name_the_words_and_what_to_do(install):
    fake = install(FakeDriver())
    fake.codes = {"cuDevicePrimaryCtxRetain": 1}
    with pytest.raises(
        CudaError, match=r"cuDevicePrimaryCtxRetain failed with CUDA_ERROR_INVALID_VALUE \(1\): the driv"
    ):
        driver().context(0)
    fake.codes = {"cuDevicePrimaryCtxRetain": 700}
    with pytest.raises(CudaError, match="CUDA_LAUNCH_BLOCKING=1"):
        driver().context(0)


def test_context_that_was_current_is_so_again(install):
    fake = install(FakeDriver())
    mine = driver().context(0)
    assert driver().context(0) == mine and len(fake.named("cuDevicePrimaryCtxRetain")) == 1
    fake.contexts.append(77)
    with pytest.raises(KeyError), driver().current(mine):
        assert fake.contexts == [77, mine]
        with driver().current(mine):
            assert fake.contexts == [77, mine], "it is current already"
        raise KeyError
    assert fake.contexts == [77]


def test_forked_child_is_told_that_it_cannot_use_the_driver(install, monkeypatch):
    install(FakeDriver())
    assert why_unavailable() is None
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert why_unavailable() is not None
    with pytest.raises(CudaError, match=r"forked.*spawn"):
        device(0)


def test_functions_that_native_code_calls_may_be_missing(monkeypatch):
    exported = FakeDriver()._exports
    symbols = {driver_module._SYMBOLS.get(name, name): function for name, function in exported.items()}
    library = type("Library", (), {**symbols, "cuGraphAddKernelNode_v2": exported["cuModuleUnload"]})
    monkeypatch.setattr(driver_module, "_loaded", once(driver_module._loaded.__wrapped__))  # type: ignore[attr-defined]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    expected = ctypes.cast(exported["cuModuleUnload"], ctypes.c_void_p).value
    assert address_of("cuGraphAddKernelNode") == expected
    with pytest.raises(CudaError, match="this driver has no cuGraphLaunch; update it"):
        address_of("cuGraphLaunch")


def test_address_of_a_function_calls_it(install):
    fake = install(FakeDriver())
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address_of("cuCtxPushCurrent"))(5) == 0
    assert fake.contexts == [5]
