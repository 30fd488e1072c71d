"""Tensors of one device are told from those of another, with tensors without memory that claim to be on a device."""

import ctypes

import pytest
import torch

from ingot.runtime.native.abi import devices
from ingot.runtime.native.abi.devices import device_kind
from ingot.runtime.native.abi.object_layout import dispatch_keys
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.records import Placed, TensorGuard


class ClaimedDevice(torch.Tensor):
    """A tensor without elements that claims to be on a device."""

    __torch_dispatch__ = None  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def on(device, dtype=torch.float32):
        return torch.Tensor._make_wrapper_subclass(ClaimedDevice, (0, 3), dtype=dtype, device=device)


@pytest.fixture
def keys_of_claimed_devices(monkeypatch):
    """The keys that native code takes for those of ordinary CUDA tensors."""
    keys = dispatch_keys(ClaimedDevice.on("cuda:0"))
    monkeypatch.setattr(devices, "_plain_keys", lambda device: (keys, keys))
    device_kind.cache_clear()
    yield
    device_kind.cache_clear()


def matches(guard, tensor):
    found = launcher()
    assert found is not None
    compare = ctypes.PYFUNCTYPE(ctypes.c_int64, *(ctypes.c_void_p,) * 3)(found.tensor_matches.address)
    held, slot = Placed(), (ctypes.c_int64 * 1)()
    return compare(held.place_all([held.guard(guard)]), tensor._cdata, ctypes.addressof(slot)) == 1


@pytest.mark.usefixtures("keys_of_claimed_devices")
@pytest.mark.parametrize("index", [0, 1, 6])
def test_a_guard_knows_the_number_of_its_device(index):
    guard = TensorGuard.like(ClaimedDevice.on(f"cuda:{index}"))
    assert guard.is_known and guard.device == torch.device("cuda", index)
    assert [number for number in range(8) if matches(guard, ClaimedDevice.on(f"cuda:{number}"))] == [index]
    assert not matches(guard, ClaimedDevice.on("cpu"))
    assert not matches(guard, torch.empty(0, 3))
    assert not matches(guard, ClaimedDevice.on(f"cuda:{index}", torch.float64))


@pytest.mark.usefixtures("keys_of_claimed_devices")
def test_a_guard_of_the_cpu_fits_no_tensor_of_another_device():
    guard = TensorGuard.like(torch.empty(0, 3))
    assert matches(guard, torch.empty(0, 3))
    assert not matches(guard, ClaimedDevice.on("cuda:0"))


def test_tensors_of_other_devices_are_not_known():
    assert not TensorGuard.like(torch.empty(0, 3, device="meta")).is_known


def test_there_are_no_guards_for_devices_where_their_place_is_not_found(monkeypatch, keys_of_claimed_devices):
    monkeypatch.setattr(devices, "_device_shift", lambda: None)
    assert not TensorGuard.like(ClaimedDevice.on("cuda:0")).is_known
    assert TensorGuard.like(torch.empty(0, 3)).is_known


def test_the_place_is_not_found_where_samples_disagree(monkeypatch):
    find = devices._device_shift.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    assert find() == devices._device_shift()
    monkeypatch.setattr(devices, "_somewhere", lambda device: torch.empty(3))
    assert find() is None
