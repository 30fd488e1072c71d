"""The trap: a mark on a tensor that makes PyTorch's dispatcher ask ingot before anything reads or writes it.

In: a tensor whose memory is not written yet. Out: the same tensor; every operation that reaches the dispatcher with it,
on any thread, from TorchScript or C++, first calls the function given to `arm`. The mark is one otherwise unused
dispatch key in the tensor's key set, so type, identity, views and weak references stay as they are.

A self-check proves that the key is free, lies where the layout says, is inherited by views and is caught. Where the
check fails there is no trap, and nothing is followed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from ingot.base.once import once
from ingot.runtime.native.abi.object_layout import dispatch_keys, tensor_layout

_NAME = "TESTING_ONLY_GenericWrapper"
"""A key that PyTorch keeps for its own tests and registers nothing for."""

Reader = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called with an operator and its arguments, some of which are marked; gives the operator's result."""


class Trap:
    """The mark, set and cleared. There is one: `trap()`."""

    def __init__(self, key: Any, bit: int, keys_word: int):
        self.key = key
        self.bit = bit
        self._offset = keys_word * 8
        self._reader: Reader = _plain
        self._library = torch.library.Library("_", "IMPL")
        self._library.fallback(lambda operator, *args, **kwargs: self._reader(operator, args, kwargs), _NAME)

    def arm(self, reader: Reader) -> None:
        """Say what is called when a marked tensor reaches the dispatcher."""
        self._reader = reader

    def set(self, tensor: torch.Tensor) -> None:
        word = ctypes.c_uint64.from_address(tensor._cdata + self._offset)
        word.value |= self.bit

    def clear(self, tensor: torch.Tensor) -> None:
        word = ctypes.c_uint64.from_address(tensor._cdata + self._offset)
        word.value &= ~self.bit

    def is_set(self, tensor: torch.Tensor) -> bool:
        return bool(ctypes.c_uint64.from_address(tensor._cdata + self._offset).value & self.bit)

    def excluded(self) -> Any:
        """A block in which this thread passes marked tensors unseen: for views, which look at no memory. It is torch's,
        in native code: no interrupt comes while it begins or ends."""
        return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(self.key))


def _plain(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return operator(*args, **kwargs)


@once
def trap() -> Trap | None:
    """The trap of this process; None where the self-check fails."""
    layout = tensor_layout()
    if layout is None:
        return None
    try:
        key: Any = torch._C._parse_dispatch_key(_NAME)
        bit = torch._C.DispatchKeySet(key).raw_repr()
    except (RuntimeError, TypeError, AttributeError):
        return None
    if not isinstance(bit, int) or dispatch_keys(torch.empty(1)) & bit:
        return None
    try:
        made = Trap(key, bit, layout.keys_word)
    except RuntimeError:  # something else is registered for the key
        return None
    return made if _works(made) else None


def _works(made: Trap) -> bool:
    """Whether readers are caught, views inherit the mark, an excluded thread passes, and clearing it ends all that."""
    seen: list[Any] = []
    sample = torch.arange(6.0).reshape(2, 3)
    keys = dispatch_keys(sample)

    def reader(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(operator)
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                made.clear(tensor)
        return operator(*args, **kwargs)

    made.arm(reader)
    try:
        made.set(sample)
        is_marked = dispatch_keys(sample) == keys | made.bit
        with made.excluded():
            view = sample.view(3, 2)
        is_inherited = not seen and made.is_set(view)
        is_caught = float(torch.add(view, 1).sum()) == 21.0 and len(seen) == 1
        made.clear(sample)
        return is_marked and is_inherited and is_caught and dispatch_keys(sample) == keys and len(seen) == 1
    except (RuntimeError, TypeError):
        return False
    finally:
        made.arm(_plain)
