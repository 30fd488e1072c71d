"""Running pending operations in the state of torch that they were called in, whatever modes are active by now.

In: the state of torch that pending operations were called in. Out: a block without gradients, function modes, dispatch
modes, transforms such as vmap, autocast and torch.jit's tracing, with inference mode and default dtype as they were.
Nothing is changed that need not be: a plain call costs two switches.

What always holds: every change is undone, also where KeyboardInterrupt comes while something is changed or undone. A
change is noted before it is made, undoing looks at what is there, and it can be repeated. Python looks for interrupts
between two calls of native functions, never inside one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat, starmap
from typing import Any

import torch
from torch.utils import _python_dispatch

from ingot.runtime.torch_state import DISPATCH_MODE, TRACING, TRANSFORM

_native: Any = torch._C


class Outside:
    """Calls a function in the state that pending operations were called in. Not a block: Python may be interrupted
    before the first line of a block's `__exit__`."""

    def __init__(self, is_inference: bool, default_dtype: torch.dtype):
        self._is_inference = is_inference
        self._default_dtype = default_dtype
        self._grad, self._dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        count = torch._C._len_torch_function_stack()
        self._modes = [torch._C._get_function_stack_at(place) for place in range(count)]
        self._undo: list[Callable[[], Any]] = []
        """What is rarely needed, in the order of the changes."""

    def call(self, function: Callable[..., None], *given: Any) -> None:
        try:
            self._enter()
            function(*given)
        finally:
            try:
                self._leave()
            except KeyboardInterrupt:
                self._leave()
                raise

    def _enter(self) -> None:
        torch._C._set_grad_enabled(False)
        for _ in self._modes:
            torch._C._pop_torch_function_stack()
        if is_anything_around():
            self._clear_away()
        if self._is_inference != torch.is_inference_mode_enabled():
            guards: list[Any] = []
            self._undo.append(partial(_leave_inference_mode, guards))
            # As one native call: a guard takes effect when it is made, and is in the list then.
            guards.extend(map(_native._InferenceMode, (self._is_inference,)))
        if self._default_dtype is not self._dtype:
            torch.set_default_dtype(self._default_dtype)

    def _clear_away(self) -> None:
        """Switch off what sees or changes operations."""
        if TRANSFORM.is_active():
            layers: list[Any] = []
            self._undo.append(partial(_put_back_layers, layers))
            # As one native call: a layer that was taken off is in the list.
            layers.extend(starmap(_native._functorch.pop_dynamic_layer_stack, repeat((), _layer_count())))
        count = torch._C._len_torch_dispatch_stack()
        if count:
            modes = [torch._C._get_dispatch_stack_at(place) for place in range(count)]
            self._undo.append(partial(_put_back_modes, modes))
            for _ in modes:
                _python_dispatch._pop_mode()
        if TRACING.is_active():
            self._undo.append(partial(_native._set_tracing_state, torch._C._get_tracing_state()))
            _native._set_tracing_state(None)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self._undo.append(partial(torch.set_autocast_enabled, device, True))
                torch.set_autocast_enabled(device, False)

    def _leave(self) -> None:
        if self._default_dtype is not self._dtype:
            torch.set_default_dtype(self._dtype)
        for undo in reversed(self._undo):
            undo()
        if torch.is_grad_enabled() != self._grad:
            torch._C._set_grad_enabled(self._grad)
        for mode in self._modes[torch._C._len_torch_function_stack() :]:
            torch._C._push_on_torch_function_stack(mode)


def is_anything_around() -> bool:
    """Whether something is active that sees or changes operations: autocast, a dispatch mode, a transform, tracing."""
    return bool(
        torch._C._is_any_autocast_enabled() or DISPATCH_MODE.is_active() or TRACING.is_active() or TRANSFORM.is_active()
    )


def _layer_count() -> int:
    return len(_native._functorch.get_interpreter_stack() or ())


def _leave_inference_mode(guards: list[Any]) -> None:
    for guard in guards:
        guard.__exit__(None, None, None)


def _put_back_layers(layers: list[Any]) -> None:
    """Put transforms back that were taken off from the innermost on, where they are not there."""
    missing = layers[: max(len(layers) - _layer_count(), 0)]
    for layer in reversed(missing):
        _native._functorch.push_dynamic_layer_stack(layer)


def _put_back_modes(modes: list[Any]) -> None:
    """Put dispatch modes back that are not on their stack. Some have places of their own there, so the stack is not in
    the order of pushing where only a part of it is left."""
    for _ in range(torch._C._len_torch_dispatch_stack()):
        _python_dispatch._pop_mode()
    for mode in modes:
        _python_dispatch._push_mode(mode)
