"""Ways into torch that neither the function mode nor the trap handles: what is pending runs before they are taken.

- `Tensor._make_subclass` (behind `nn.Parameter`) and `Tensor.as_subclass` run into the trap, but cannot take the tensor
  that the trap leaves.
- `torch.utils.swap_tensors` exchanges what Python's objects stand for.
- `Tensor.set_` gives a tensor other memory, methods of storages write memory or move it, and TorchScript's functions
  and methods write their operands, all without asking the mode. Operands of pending operations are not marked, so the
  trap does not see that either.

`watch(flush)` puts itself before them, once per process and for good; where no call is followed, `flush` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

_watched: list[bool] = []
_STORAGE_WRITES = (
    *("__setitem__", "fill_", "copy_", "resize_", "byteswap", "_byteswap", "_set_from_file", "_set_cdata"),
    *("_swap_data_ptr_", "_resize_with_addr_", "share_memory_"),
)
"""Methods of storages that write their memory, or get other memory."""


def watch(flush: Callable[[], None]) -> None:
    """Have a function called before any of these ways is taken."""
    if _watched:
        return
    _watched.append(True)
    torch.Tensor._make_subclass = staticmethod(_after(flush, torch.Tensor._make_subclass))  # type: ignore[assignment]
    torch._C._swap_tensor_impl = _after(flush, torch._C._swap_tensor_impl)
    kinds: list[tuple[Any, Sequence[str]]] = [
        (torch.Tensor, ("as_subclass", "set_")),
        (torch.UntypedStorage, [name for name in _STORAGE_WRITES if hasattr(torch.UntypedStorage, name)]),
        *((getattr(torch._C, name), ("__call__",)) for name in ("ScriptFunction", "ScriptMethod")),
    ]
    for kind, names in kinds:
        for name in names:
            setattr(kind, name, _after(flush, getattr(kind, name)))


def _after(flush: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        flush()
        return original(*args, **kwargs)

    return call
