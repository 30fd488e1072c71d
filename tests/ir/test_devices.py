"""Devices: tensors of one call belong on one, and those without dimensions may stay on the CPU."""

import pytest
import torch

from ingot.base.errors import InputError
from ingot.ir.binding import _common_device


class Elsewhere:
    """Stands for a tensor on a device this machine may not have."""

    def __init__(self, rank: int, device: str):
        self.rank, self.device = rank, torch.device(device)

    def dim(self) -> int:
        return self.rank


@pytest.fixture
def tensors(monkeypatch):
    monkeypatch.setattr("ingot.ir.binding.torch.Tensor", Elsewhere)
    return Elsewhere


def test_the_tensors_decide(tensors):
    assert _common_device([tensors(1, "cuda:1"), 3.0, tensors(2, "cuda:1")], "cpu") == torch.device("cuda:1")
    assert _common_device([tensors(0, "cpu"), tensors(1, "cuda:0")], None) == torch.device("cuda:0")
    assert _common_device([2.0], "cuda:0") == torch.device("cuda:0")
    assert _common_device([], None) == torch.device("cpu")


def test_tensors_that_act_as_numbers_do_not_decide(tensors):
    assert _common_device([tensors(0, "cpu"), 2.0], "cuda:1") == torch.device("cuda:1")
    assert _common_device([tensors(0, "cpu")], None) == torch.device("cpu")


def test_a_device_without_a_number_is_the_current_one(tensors, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert _common_device([], "cuda") == torch.device("cuda:3")


@pytest.mark.parametrize(
    "places", [[(1, "cuda:0"), (1, "cpu")], [(1, "cuda:0"), (1, "cuda:1")], [(0, "cuda:0"), (1, "cuda:1")]]
)
def test_tensors_on_different_devices_are_refused(tensors, places):
    with pytest.raises(InputError, match="move them to one device"):
        _common_device([tensors(*place) for place in places], None)
