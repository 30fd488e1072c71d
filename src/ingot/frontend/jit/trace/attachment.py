"""What a recording attaches to its thread, and takes off again however the call ends.

In: a recording, and its monitor. While attached, torch hands the recording every operation and every question, by two
modes, and Python tells the monitor of every piece of code. Afterwards everything is as before: torch's stacks of modes,
its flags about them, autocast's cache, Python's profiling hook. `detach` looks at what is there instead of trusting
that what was begun was completed: KeyboardInterrupt may come inside the functions that put modes on their stacks or
take them off. It can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ingot.frontend.jit.arguments.variable_numbers import marks_in
from ingot.frontend.jit.trace.effects import EffectMonitor
from ingot.frontend.jit.trace.index_bounds import INDEXING
from ingot.frontend.jit.trace.refusals import cannot_be_watched
from ingot.frontend.jit.trace.training_calls import BACKWARD, GRAD

if TYPE_CHECKING:
    from ingot.frontend.jit.trace.recorder import Recording

_FLAGS = tuple(name for name in vars(_python_dispatch) if name.startswith("_is_in_"))
"""torch's flags that say whether there are dispatch modes."""
_tell_flag: Callable[[bool], None] | None = getattr(
    _python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None
)
"""The function that tells torch's native part of such a flag."""
_TOLD_FLAG = "_is_in_any_mode_without_ignore_compile_internals"
_PUT_OFF = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative, torch._C.DispatchKey.ZeroTensor)


class _OperationMode(TorchDispatchMode):
    """Hands every operation to a recording."""

    def __init__(self, recording: Recording, monitor: EffectMonitor):
        super().__init__()
        self._recording = recording
        self._monitor = monitor

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False keeps torch from importing its tracing compiler for the sake of this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self._monitor.paused(), torch._C.DisableTorchFunction(), as_outside_of_modes():
            return self._recording.operate(func, args, kwargs or {})


class _IntrospectionMode(TorchFunctionMode):
    """Hands every function of torch that Python calls to a recording."""

    def __init__(self, recording: Recording, monitor: EffectMonitor):
        super().__init__()
        self._recording = recording
        self._monitor = monitor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recording, kwargs = self._recording, kwargs or {}
        if recording.training.is_within:
            return func(*args, **kwargs)
        with self._monitor.paused():
            recording.on_query(func, args, kwargs)
            if func in INDEXING:
                recording.on_index(args[0], args[1])
            handed = marks_in(args, kwargs)
            why_not = cannot_be_watched(func, kwargs)
        if why_not:
            recording.stop(why_not)
            with _disable_current_modes():
                return func(*args, **kwargs)
        before = recording.handed, recording.asked_by
        recording.handed, recording.asked_by = handed, getattr(func, "__name__", "")
        try:
            if func is BACKWARD:
                recording.training.begin_backward(args, kwargs)
            elif func is GRAD:
                recording.training.begin_grad(args, kwargs)
            return func(*args, **kwargs)
        finally:
            recording.handed, recording.asked_by = before
            if func is BACKWARD or func is GRAD:
                recording.training.end_backward()


def as_outside_of_modes() -> Any:
    """A block in which PyTorch conjugates and negates what it has put off, as everywhere else. Within a mode it does
    not, and operations that make such tensors for themselves, as linalg.pinv does, would be wrong."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _PUT_OFF:
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


class Attachment:
    """The modes and hooks of one recording, on one thread."""

    def __init__(self, recording: Recording, monitor: EffectMonitor):
        self._monitor = monitor
        self._questions = _IntrospectionMode(recording, monitor)
        self._operations = _OperationMode(recording, monitor)
        self._flags = {name: getattr(_python_dispatch, name) for name in _FLAGS}
        self._caches_casts = torch.is_autocast_cache_enabled()

    def attach(self) -> None:
        # Autocast keeps weights it has cast for later; a recording must see them being cast.
        torch.set_autocast_cache_enabled(False)
        self._questions.__enter__()
        self._operations.__enter__()
        self._monitor.start()

    def detach(self) -> None:
        self._monitor.stop()
        _take_off(
            self._operations,
            torch._C._len_torch_dispatch_stack,
            lambda: torch._C._pop_torch_dispatch_stack(None),
            torch._C._push_on_torch_dispatch_stack,
        )
        for name, value in self._flags.items():
            setattr(_python_dispatch, name, value)
        if _tell_flag is not None and _TOLD_FLAG in self._flags:
            _tell_flag(self._flags[_TOLD_FLAG])
        _take_off(
            self._questions,
            torch._C._len_torch_function_stack,
            torch._C._pop_torch_function_stack,
            torch._C._push_on_torch_function_stack,
        )
        torch.set_autocast_cache_enabled(self._caches_casts)


def mode_counts() -> tuple[int, int]:
    """How many modes of torch there are on this thread, of functions and of dispatch."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def _take_off(mode: Any, height: Callable[[], int], pop: Callable[[], Any], push: Callable[[Any], None]) -> None:
    """Take a mode off its stack, if it is there. Modes that other code has left on top of it stay."""
    above: list[Any] = []
    while height():
        found = pop()
        if found is mode:
            break
        above.append(found)
    for other in reversed(above):
        push(other)
