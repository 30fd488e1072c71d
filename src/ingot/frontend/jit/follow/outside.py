"""Running what is pending as it would have run when it was called, whatever is switched on by now.

In: the state of torch that pending operations were called in. Out: a block without gradients, function modes, dispatch
modes, transforms such as vmap, autocast and torch.jit's tracing, with inference mode and default dtype as they were.
Nothing is changed that need not be: a plain call costs two switches.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterator

_C: Any = torch._C


class Outside:
    """A block that runs with the state that pending operations were called in."""

    def __init__(self, is_inference: bool, default_dtype: torch.dtype):
        self._is_inference = is_inference
        self._default_dtype = default_dtype
        self._left = ExitStack()

    def __enter__(self) -> None:
        left = self._left
        left.callback(torch._C._set_grad_enabled, torch.is_grad_enabled())
        torch._C._set_grad_enabled(False)
        for _ in range(torch._C._len_torch_function_stack()):
            left.callback(torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack())
        if is_anything_around():
            left.enter_context(_nothing_around())
        if self._is_inference != torch.is_inference_mode_enabled():
            left.enter_context(torch.inference_mode(self._is_inference))
        if self._default_dtype is not torch.get_default_dtype():
            left.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(self._default_dtype)

    def __exit__(self, *_: object) -> None:
        self._left.close()


def is_anything_around() -> bool:
    """Whether something is active that sees or changes operations: autocast, a dispatch mode, a transform, tracing."""
    return (
        torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or _C._is_tracing()
        or _C._functorch.peek_interpreter_stack() is not None
    )


@contextmanager
def _nothing_around() -> Iterator[None]:
    with ExitStack() as left:
        if _C._functorch.peek_interpreter_stack() is not None:
            left.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack():
            left.enter_context(_disable_current_modes())
        if _C._is_tracing():
            left.callback(_C._set_tracing_state, _C._get_tracing_state())
            _C._set_tracing_state(None)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                left.enter_context(torch.autocast(device, enabled=False))
        yield
