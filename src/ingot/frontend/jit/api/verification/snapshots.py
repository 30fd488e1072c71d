"""Copies of what a call can change: tensors among its arguments, the state of its module, generators of random numbers.

In: leaves of arguments, a module. Out: copies that share memory among themselves as the originals do, and a snapshot
that puts everything back. A tensor that cannot be copied faithfully is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class NotVerifiable(Exception):
    """A call that may give something else when it is run twice, without being wrong."""


def copies_of(leaves: Sequence[Any]) -> list[Any]:
    """The leaves with tensors copied; those that share memory share it again."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    addresses = [_storage(tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values()]
    shared = {address for address in addresses if addresses.count(address) > 1}
    for tensor in tensors:
        if id(tensor) not in made:
            made[id(tensor)] = _copy(tensor, storages, _storage(tensor) in shared)
    return [made[id(leaf)] if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _storage(tensor: torch.Tensor) -> int:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or tensor.layout is not torch.strided:
        raise NotVerifiable(f"an argument is a {type(tensor).__name__} of layout {tensor.layout}")
    if tensor.device.type == "meta":
        raise NotVerifiable("an argument has no memory")
    return tensor.untyped_storage().data_ptr()


def _copy(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage], is_shared: bool) -> torch.Tensor:
    if tensor.requires_grad:
        if is_shared:
            raise NotVerifiable("arguments that need gradients share memory")
        if not tensor.is_leaf:
            return tensor.detach().clone().requires_grad_().view_as(tensor)  # no leaf either: it may be written
    address = tensor.untyped_storage().data_ptr()
    if address not in storages:
        storages[address] = tensor.untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        copy.set_(storages[address], tensor.storage_offset(), tensor.size(), tensor.stride())
    return copy.requires_grad_() if tensor.requires_grad else copy


class Snapshot:
    """The state of a module and of all generators, as they are now."""

    def __init__(self, module: torch.nn.Module | None, leaves: Sequence[Any]):
        self._tensors = state_of(module)
        self._values = [tensor.detach().clone() for tensor in self._tensors.values()]
        self._generators = [torch.default_generator, *(leaf for leaf in leaves if isinstance(leaf, torch.Generator))]
        if torch.cuda.is_initialized():
            self._generators += torch.cuda.default_generators
        self._states = [generator.get_state() for generator in self._generators]

    def restore(self) -> None:
        """Put everything back; tensors that did not change are left alone."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)
        with torch.no_grad():
            for tensor, value in zip(self._tensors.values(), self._values, strict=True):
                if not torch.equal(tensor, value):  # NaN counts as changed, which is harmless
                    tensor.data.copy_(value)


def state_of(module: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    return {} if module is None else {**dict(module.named_parameters()), **dict(module.named_buffers())}
