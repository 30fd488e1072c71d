"""What a call leaves behind: its result or its error, its arguments, and which memory they share.

What always holds: arguments are copied with their strides, and tensors that share memory share it in the copy. A call
is over when the devices are done with it, and an error that leaves a device unusable is raised instead of being
observed: every call after it would fail, with ingot and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

SEED = 1234


@dataclass(frozen=True)
class Observation:
    result: Any
    error: Exception | None
    arguments: Any
    """The positional and the keyword arguments as the call left them."""

    def sharing(self) -> list[str]:
        """Per tensor of the result, what it is or shares memory with."""
        before = list(tensors_in(self.arguments))
        found = []
        for number, tensor in enumerate(tensors_in(self.result)):
            found.append(f"result {number} {_relation(tensor, before)}")
            before.append(tensor)
        return found


def observe(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Observation:
    """Call a function on copies of arguments; random numbers start from the same seed each time."""
    copied_args, copied_kwargs = arguments = copied((tuple(args), dict(kwargs)))
    torch.manual_seed(SEED)
    try:
        result, error = function(*copied_args, **copied_kwargs), None
    except Exception as raised:
        result, error = None, raised
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return Observation(result, error, arguments)


def copied(value: Any, storages: dict[int, torch.UntypedStorage] | None = None) -> Any:
    """The same structure with tensors of their own."""
    storages = {} if storages is None else storages
    if isinstance(value, torch.Tensor):
        return _copied_tensor(value, storages)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(element, storages) for element in value))
    if isinstance(value, list | tuple):
        return type(value)(copied(element, storages) for element in value)
    if isinstance(value, dict):
        return {name: copied(element, storages) for name, element in value.items()}
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _copied_tensor(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or type(tensor) is not torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copy.set_(storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride())
    return copy.requires_grad_(tensor.requires_grad)


def _relation(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> str:
    for number, other in enumerate(others):
        if tensor is other:
            return f"is tensor {number}"
    for number, other in enumerate(others):
        if tensor.layout is torch.strided and other.layout is torch.strided and tensor.numel():
            mine, its = tensor.untyped_storage(), other.untyped_storage()
            if mine.data_ptr() == its.data_ptr():
                return f"lies in the memory of tensor {number}, from element {tensor.storage_offset()}"
    return "has memory of its own"
