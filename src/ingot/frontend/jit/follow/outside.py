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

_native: Any = torch._C


class Outside:
    """A block that runs with the state that pending operations were called in. What it undoes can be undone twice:
    KeyboardInterrupt may come in the middle."""

    def __init__(self, is_inference: bool, default_dtype: torch.dtype):
        self._is_inference = is_inference
        self._default_dtype = default_dtype
        self._grad, self._dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        count = torch._C._len_torch_function_stack()
        self._modes = [torch._C._get_function_stack_at(place) for place in range(count)]
        self._left: ExitStack | None = None

    def __enter__(self) -> None:
        try:
            self._enter()
        except KeyboardInterrupt:
            self._leave()
            raise

    def _enter(self) -> None:
        torch._C._set_grad_enabled(False)
        for _ in self._modes:
            torch._C._pop_torch_function_stack()
        if is_anything_around() or self._is_inference != torch.is_inference_mode_enabled():
            self._left = ExitStack()
            self._left.enter_context(_nothing_around())
            if self._is_inference != torch.is_inference_mode_enabled():
                self._left.enter_context(torch.inference_mode(self._is_inference))
        if self._default_dtype is not self._dtype:
            torch.set_default_dtype(self._default_dtype)

    def __exit__(self, *_: object) -> None:
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()
            raise

    def _leave(self) -> None:
        if self._default_dtype is not self._dtype:
            torch.set_default_dtype(self._dtype)
        if self._left is not None:
            self._left.close()
        for mode in self._modes[torch._C._len_torch_function_stack() :]:
            torch._C._push_on_torch_function_stack(mode)
        torch._C._set_grad_enabled(self._grad)


def is_anything_around() -> bool:
    """Whether something is active that sees or changes operations: autocast, a dispatch mode, a transform, tracing."""
    return (
        torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_tracing()
        or _native._functorch.peek_interpreter_stack() is not None
    )


@contextmanager
def _nothing_around() -> Iterator[None]:
    with ExitStack() as left:
        if _native._functorch.peek_interpreter_stack() is not None:
            left.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack():
            left.enter_context(_disable_current_modes())
        if torch._C._is_tracing():
            left.callback(_native._set_tracing_state, torch._C._get_tracing_state())
            _native._set_tracing_state(None)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                left.enter_context(torch.autocast(device, enabled=False))
        yield
