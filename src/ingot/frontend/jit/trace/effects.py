"""What Python does during a recorded call besides PyTorch's operations, as far as later calls would miss it.

In: a thread that runs a user's function. Out: every piece of the user's code that begins to run, once, and every effect
that no operation stands for: printing, reading clocks, drawing or seeding random numbers, waiting for a GPU, and native
code of other packages, which may read and write tensors unseen. Python's own profiling hook tells of both. Where
another profiler is set already, nothing is seen, and the search of the environment before the call must do.
"""

from __future__ import annotations

import contextvars
import gc
import random
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol

import numpy
import torch

from ingot.frontend.jit.python_code.library_code import is_librarys

_CLOCKS = frozenset(
    [
        "time",
        "time_ns",
        "perf_counter",
        "perf_counter_ns",
        "monotonic",
        "process_time",
        "now",
        "today",
        "utcnow",
        "sleep",
    ]
)
_FILES = frozenset({"print", "write", "open", "input"})
_SUSPECTS = _CLOCKS | _FILES
_STREAMS = frozenset({"_cuda_synchronize", "_cuda_setStream", "_cuda_memoryStats", "_cuda_memorySnapshot"})
"""Functions of torch's own by which a GPU is waited for, told another stream, or asked about its memory."""
_LAUNCHES = frozenset({"_cuda_jiterator_compile_and_launch_kernel"})
"""Functions of torch's own that compute something without an operation."""
_KNOWN_MODULES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "functorch", "ingot"})
"""Modules whose native functions work through operations, or have no effect that a recording would miss."""
_TELLER = "warnings"
"""The module whose printing is no effect: it prints each warning once."""
_TELLS_ONCE = "transformers.utils.logging"
"""A module with functions named `..._once`, whose printing is none either: they keep what they were called with."""


_ASKS_FOR_MODES = torch.overrides.has_torch_function
"""The function by which torch's Python code asks whether a mode is active."""
_PLAIN = (torch.Tensor, torch.nn.Parameter, type(None))
_STREAM_OBJECTS = (torch.Stream, torch.Event, torch.cuda.Stream, torch.cuda.Event)


_MODES = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)
"""The keys by which operations reach dispatch modes, and classes of tensors that are written in Python."""


class KnownCalls(Protocol):
    """Calls that are known as a whole: what runs inside them is not looked at."""

    def is_known(self, code: types.CodeType) -> bool: ...

    def begin_known(self, frame: types.FrameType) -> bool:
        """Whether the call is understood: it concerns plain tensors alone."""
        ...

    def end_known(self) -> None: ...

    def see(self, frame: types.FrameType) -> None:
        """Any other code begins to run, also code that has run before."""
        ...


class EffectMonitor:
    """Watches one thread from `start` to `stop`."""

    def __init__(
        self,
        on_code: Callable[[types.FrameType], None],
        on_context: Callable[[contextvars.ContextVar[Any], bool], None],
        on_effect: Callable[[str], None],
        known: KnownCalls,
    ):
        """`on_code` is called when code begins to run that did not run before, `on_context` when a context variable is
        about to be touched, and whether it is read, `on_effect` with what is done; `known` when a known call begins
        and ends."""
        self._known = known
        self._known_frame: types.FrameType | None = None
        self._excluded: tuple[bool, ...] = ()
        """While a known call runs: whether the keys of dispatch modes were excluded before."""
        self._on_code = on_code
        self._on_context = on_context
        self._on_effect = on_effect
        self._looks_away = False
        self._seen: set[types.CodeType] = set()
        self._is_watching = False
        self._was_interrupted = False
        """Whether the call went on after something like KeyboardInterrupt: it does not do so at every call."""
        self._numbers: Any = None
        self._hidden: Any = None
        """The block in which a module does not find the modes of the recording; None outside."""
        self._collecting: types.FrameType | None = None
        self._collectors: set[Any] = set()

    def start(self) -> None:
        self._numbers = _state_of_numpys_numbers()
        self._collectors = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        if sys.getprofile() is None:
            self._is_watching = True
            sys.setprofile(self._notice)

    def stop(self) -> None:
        """Can be repeated, and stops what was not started completely."""
        if sys.getprofile() == self._notice:
            sys.setprofile(None)
        if self._hidden is not None:
            self._hidden.__exit__(None, None, None)
            self._hidden = None
        self._end_known()

    def conclude(self) -> None:
        """Report what shows when the call has ended by itself, just before `stop`."""
        has_missed = self._looks_away or (self._is_watching and sys.getprofile() != self._notice)
        has_missed = has_missed or self._was_interrupted
        with self.paused():
            if has_missed:
                self._on_effect("it was interrupted, or profiled, while it was recorded")
            if _state_of_numpys_numbers() != self._numbers:
                self._on_effect("it draws numpy's random numbers")

    @property
    def ran(self) -> frozenset[types.CodeType] | None:
        """All code that has begun to run; None where that is not known."""
        return frozenset(self._seen) if self._is_watching else None

    def paused(self) -> _Paused:
        """A block that is not watched: the recording itself, or an operation with everything inside it. Most of what
        Python does while a call is recorded is the recording."""
        return _Paused(self)

    def _notice(self, frame: types.FrameType, event: str, called: Any) -> None:
        if self._looks_away:
            return
        if self._collecting is not None:  # the garbage collector has run finalisers in between
            if event == "return" and frame is self._collecting:
                self._collecting = None
        elif self._known_frame is not None:
            if event == "return" and frame is self._known_frame:
                self._end_known()
                self._known.end_known()
        elif event == "call":
            self._begin(frame)
        elif called is _ASKS_FOR_MODES:
            self._answer_as_outside(frame, event)
        elif event == "c_call" and isinstance(getattr(called, "__self__", None), contextvars.ContextVar):
            self._on_context(called.__self__, called.__name__ == "get")
        elif event == "c_call":
            effect = _effect(frame, called)
            if effect is not None:
                self._on_effect(effect)

    def _begin(self, frame: types.FrameType) -> None:
        """Code begins to run."""
        if frame.f_code in self._collectors:
            self._collecting = frame
            return
        if self._known.is_known(frame.f_code):
            self._begin_known(frame)
            return
        self._known.see(frame)
        if frame.f_code not in self._seen:
            self._seen.add(frame.f_code)
            self._on_code(frame)

    def _begin_known(self, frame: types.FrameType) -> None:
        """A call that is known as a whole begins. It runs without dispatch modes: under one, PyTorch counts no writes
        of operations on lists of tensors, and how often such a call writes matters."""
        self._known_frame = frame
        if self._known.begin_known(frame):
            self._excluded = tuple(map(torch._C._dispatch_tls_is_dispatch_key_excluded, _MODES))
            for key in _MODES:
                torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)

    def _end_known(self) -> None:
        """Can be repeated."""
        if self._known_frame is not None:
            for key, was_excluded in zip(_MODES, self._excluded, strict=False):
                torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)
            self._known_frame, self._excluded = None, ()

    def _answer_as_outside(self, frame: types.FrameType, event: str) -> None:
        """Keep the modes of a recording from modules of PyTorch's that do otherwise where there are any: layers of
        transformers would give other values where their input is padded, and another type under autocast."""
        if self._hidden is not None:
            self._hidden.__exit__(None, None, None)
            self._hidden = None
        elif event == "c_call" and _is_a_module(frame) and _asks_of_plain_tensors(frame):
            self._hidden = torch._C.DisableTorchFunction()
            self._hidden.__enter__()


def _asks_of_plain_tensors(frame: types.FrameType) -> bool:
    """Whether a module of PyTorch's asks about tensors that have no functions of their own: the answer is about modes
    alone then."""
    asked = frame.f_locals.get("tensor_args")
    return asked is not None and all(type(one) in _PLAIN for one in asked)


def _is_a_module(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").startswith("torch.nn.modules.")


class _Paused:
    """A class, because a block made by `contextmanager` takes as long as an operation."""

    __slots__ = ("_before", "_witness")

    def __init__(self, witness: EffectMonitor):
        self._witness = witness

    def __enter__(self) -> None:
        self._before, self._witness._looks_away = self._witness._looks_away, True
        if self._witness._is_watching and not self._before:
            sys.setprofile(None)  # removing the hook takes less time than ignoring what it tells

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._witness._was_interrupted = True
        if self._witness._is_watching and not self._before and sys.getprofile() is None:
            sys.setprofile(self._witness._notice)
        self._witness._looks_away = self._before


def _home(called: Any, owner: Any) -> str:
    """The module that a built-in function, or the type of a built-in method, is from."""
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    named = getattr(called, "__module__", None)
    if named is not None or owner is None:
        return named or "builtins"
    kind = owner if isinstance(owner, type) else type(owner)
    definer = next((base for base in kind.__mro__ if _is_native(base.__dict__.get(called.__name__))), kind)
    return definer.__module__


def _is_native(method: Any) -> bool:
    """Whether a class's attribute can be a built-in method: what a subclass overrides in Python was called by super."""
    return method is not None and not isinstance(method, types.FunctionType)


def _effect(frame: types.FrameType, called: Any) -> str | None:
    """The effect of a call of a built-in function that later calls would miss; None if it has none."""
    owner = getattr(called, "__self__", None)
    if isinstance(owner, random.Random):
        return "it draws Python's random numbers"
    if isinstance(owner, torch.Generator):
        return "it seeds or reads a random generator"
    name = getattr(called, "__name__", "")
    if name in _STREAMS or isinstance(owner, _STREAM_OBJECTS):
        return "it waits for a GPU, or deals with its streams, events or memory"
    home = _home(called, owner)
    if name in _LAUNCHES or home.partition(".")[0] not in _KNOWN_MODULES:
        return f"it calls native code that is no operation of PyTorch's ({home}.{name})"
    if name not in _SUSPECTS:
        return None
    caller = frame.f_globals.get("__name__")
    if caller == _TELLER or (name != "write" and is_librarys(caller)):
        return None
    module = getattr(called, "__module__", None) or type(owner).__module__
    if name in _CLOCKS and (module == "time" or getattr(owner, "__module__", None) == "datetime"):
        return f"it reads the clock ({name})"
    if name in _FILES and module in ("builtins", "io", "_io") and not _is_told_once(frame):
        return f"it prints, or reads or writes files ({name})"
    return None


def _is_told_once(frame: types.FrameType | None) -> bool:
    """Whether a function has called this code that runs once with the same arguments, and tells a user something."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _TELLS_ONCE and frame.f_code.co_name.endswith("_once"):
            return True
        frame = frame.f_back
    return False


def _state_of_numpys_numbers() -> Any:
    """Where numpy's own generator stands; its functions are not seen by the hook."""
    state = numpy.random.get_state(legacy=False)
    return state["state"]["pos"], state["state"]["key"].tobytes(), state["has_gauss"]
