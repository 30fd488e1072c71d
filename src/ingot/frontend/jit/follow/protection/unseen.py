"""Ways into torch that neither the function mode nor the trap handles: what is pending runs before they are taken.

- `Tensor._make_subclass` (behind `nn.Parameter`) and `Tensor.as_subclass` run into the trap, but cannot take the tensor
  that the trap leaves.
- `torch.utils.swap_tensors` exchanges what Python's objects stand for.
- TorchScript's functions and methods write their operands without asking the mode. Operands of pending operations are
  not marked, so the trap does not see that either.

`watch(flush)` puts itself before them, once per process and for good; where no call is followed, `flush` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

_watched: list[bool] = []


def watch(flush: Callable[[], None]) -> None:
    """Have a function called before any of these ways is taken."""
    if _watched:
        return
    _watched.append(True)
    torch.Tensor._make_subclass = staticmethod(_after(flush, torch.Tensor._make_subclass))  # type: ignore[assignment]
    torch._C._swap_tensor_impl = _after(flush, torch._C._swap_tensor_impl)
    torch.Tensor.as_subclass = _after(flush, torch.Tensor.as_subclass)  # type: ignore[method-assign]
    for name in ("ScriptFunction", "ScriptMethod"):
        kind: Any = getattr(torch._C, name)
        kind.__call__ = _after(flush, kind.__call__)


def _after(flush: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        flush()
        return original(*args, **kwargs)

    return call
