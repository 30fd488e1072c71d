"""What a recording attaches to its thread, and takes off again however the call ends.

In: the modes and the monitor of a recording. While attached, torch hands them every operation and every question, and
Python every piece of code. Afterwards everything is as before: torch's stacks of modes, its flags about them,
autocast's cache, Python's profiling hook. `detach` looks at what is there instead of trusting that what was begun was
completed: KeyboardInterrupt may come inside the functions that put modes on their stacks or take them off. It can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.frontend.jit.trace.effects import EffectMonitor

_FLAGS = tuple(name for name in vars(_python_dispatch) if name.startswith("_is_in_"))
"""torch's flags that say whether there are dispatch modes."""
_tell_flag: Callable[[bool], None] | None = getattr(
    _python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None
)
"""The function that tells torch's native part of such a flag."""
_TOLD_FLAG = "_is_in_any_mode_without_ignore_compile_internals"


class Attachment:
    """The modes and hooks of one recording, on one thread."""

    def __init__(self, monitor: EffectMonitor, questions: TorchFunctionMode, operations: TorchDispatchMode):
        self._monitor = monitor
        self._questions, self._operations = questions, operations
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
