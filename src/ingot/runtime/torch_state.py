"""The switches of torch that a recording depends on: one row of `STATE` for each.

In: torch. Out: `state_of_torch`, what all rows hold now, and `changes`, what differs between two states, in words. The
native check is generated from the same rows (native/abi/settings.py), so a new switch is a new row here and nothing
else. `WATCHERS` are the switches under which no recording answers, because something sees or changes every operation.

What always holds: two states are equal if and only if native code reads them as the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from sys import intern
from types import ModuleType
from typing import Any

import torch
from torch.autograd import forward_ad

from ingot.runtime.native.assembler.addresses import TorchSymbol

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009


# --- how native code reads a switch -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """What a function without arguments returns."""

    symbol: TorchSymbol
    bits: int
    """How many bits tell all its results apart."""

    @property
    def symbols(self) -> tuple[TorchSymbol, ...]:
        return (self.symbol,)


class ContextFlag:
    """What a method of torch's global context returns: true or false."""

    context = TorchSymbol("torch_cpu", "_ZN2at13globalContextEv", 64)
    bits = 1

    def __init__(self, method: str):
        self.symbol = TorchSymbol("torch_cpu", f"_ZNK2at7Context{len(method)}{method}Ev", 8)
        self.symbols = (self.context, self.symbol)


@dataclass(frozen=True, slots=True)
class AutocastDtype:
    """What autocast casts to on a kind of device, if it does."""

    device: int
    """The number of the kind among torch's."""
    is_enabled = TorchSymbol("torch_cpu", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", 8)
    dtype = TorchSymbol("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", 8)
    bits = 9
    symbols = (is_enabled, dtype)


class CurrentDevice:
    """The number of the current GPU, asked for where there are several: it takes longer than all other rows."""

    symbol = TorchSymbol("torch_cpu", "aoti_torch_get_current_device_index", 32)
    """Returns an error code; takes where to put the number."""
    bits = 8
    symbols = (symbol,)


NativeRead = FunctionResult | ContextFlag | AutocastDtype | CurrentDevice


# --- the rows ---------------------------------------------------------------------------------------------------------


class ReadScope(Enum):
    """When a row is read."""

    ALWAYS = "always"
    GPU = "once a GPU is in use; before that nothing may wake it"


@dataclass(frozen=True, slots=True, eq=False)
class StateRow:
    name: str
    """As a reason for a recording says it: "grad mode was True, is False"."""
    read: Callable[[], Hashable]
    native: NativeRead
    scope: ReadScope = ReadScope.ALWAYS


def _autocast_dtype(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


_CPU, _CUDA = 0, 1
"""The numbers of the CPU and of CUDA among torch's kinds of devices."""

GRAD_MODE = StateRow(
    "grad mode",
    torch.is_grad_enabled,
    FunctionResult(TorchSymbol("c10", "_ZN3c108GradMode10is_enabledEv", 8), bits=1),
)
DEFAULT_DTYPE = StateRow(
    "the default dtype",
    torch.get_default_dtype,
    FunctionResult(TorchSymbol("c10", "_ZN3c1017get_default_dtypeEv", 16), bits=16),
)
INFERENCE_MODE = StateRow(
    "inference mode",
    torch.is_inference_mode_enabled,
    FunctionResult(TorchSymbol("c10", "_ZN3c1013InferenceMode10is_enabledEv", 8), bits=1),
)

STATE: tuple[StateRow, ...] = (
    GRAD_MODE,
    INFERENCE_MODE,
    DEFAULT_DTYPE,
    StateRow("autocast's dtype", partial(_autocast_dtype, "cpu"), AutocastDtype(_CPU)),
    StateRow(
        "deterministic algorithms",
        torch._C._get_deterministic_algorithms,
        ContextFlag("deterministicAlgorithms"),
    ),
    StateRow("flash attention", torch._C._get_flash_sdp_enabled, ContextFlag("userEnabledFlashSDP")),
    StateRow("attention by products", torch._C._get_math_sdp_enabled, ContextFlag("userEnabledMathSDP")),
    StateRow("oneDNN", torch._C._get_mkldnn_enabled, ContextFlag("userEnabledMkldnn")),
    StateRow("the current GPU", torch.cuda.current_device, CurrentDevice(), ReadScope.GPU),
    StateRow("autocast's dtype on GPUs", partial(_autocast_dtype, "cuda"), AutocastDtype(_CUDA), ReadScope.GPU),
    StateRow("cuDNN", torch._C._get_cudnn_enabled, ContextFlag("userEnabledCuDNN"), ReadScope.GPU),
    StateRow(
        "cuDNN's determinism", torch._C._get_cudnn_deterministic, ContextFlag("deterministicCuDNN"), ReadScope.GPU
    ),
    StateRow(
        "memory-efficient attention",
        torch._C._get_mem_efficient_sdp_enabled,
        ContextFlag("userEnabledMemEfficientSDP"),
        ReadScope.GPU,
    ),
    StateRow("cuDNN's attention", torch._C._get_cudnn_sdp_enabled, ContextFlag("userEnabledCuDNNSDP"), ReadScope.GPU),
)
"""What decides which operations torch does for a call, besides its arguments. How precisely operators compute is read
by torch at every call, and asks for no other recording."""

State = tuple[Hashable, ...]
"""What the rows hold, in their order; None for a row that is not read."""


def is_gpu_in_use() -> bool:
    """Whether this process has begun to use a GPU: not in a forked child of one that has."""
    return torch.cuda.is_initialized()


def state_of_torch() -> State:
    """What decides the operations of a call besides its arguments."""
    has_gpu = is_gpu_in_use()
    return tuple([row.read() if has_gpu or row.scope is ReadScope.ALWAYS else None for row in STATE])


def value_in(state: State, row: StateRow) -> Any:
    """What a row held in a state."""
    return state[STATE.index(row)]


def changes(before: State, now: State) -> Iterator[str]:
    """What differs between two states, in words."""
    if before == now:
        return
    if _has_gpu(before) != _has_gpu(now):
        yield "a GPU is in use" if _has_gpu(now) else "no GPU is in use any more"
    for row, old, new in zip(STATE, before, now, strict=True):
        is_read = row.scope is ReadScope.ALWAYS or (_has_gpu(before) and _has_gpu(now))
        if is_read and old != new:
            yield f"{row.name} was {old}, is {new}"


def _has_gpu(state: State) -> bool:
    """Whether the rows of GPUs were read; of these the current one always has a value."""
    return any(row.scope is ReadScope.GPU and value is not None for row, value in zip(STATE, state, strict=True))


# --- watchers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IsSet:
    """Whether a function of some numbers returns anything but 0."""

    symbol: TorchSymbol
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldsPointer:
    """Whether the pointer that a function returns leads to anything but 0."""

    symbol: TorchSymbol


@dataclass(frozen=True, slots=True)
class HasElements:
    """Whether the C++ vector that a function returns has elements: its first words are its begin and its end."""

    symbol: TorchSymbol


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """Whether a name in a Python module holds anything but one object."""

    module: ModuleType
    name: str
    idle: Any
    """A small int or a bool, of which there is one object."""

    @property
    def table(self) -> dict[str, Any]:
        return vars(self.module)


@dataclass(frozen=True, slots=True, eq=False)
class Watcher:
    """Something that sees or changes operations while it is active."""

    name: str
    is_active: Callable[[], Any]
    """Gives something true while it is active."""
    native: IsSet | HoldsPointer | HasElements | ModuleEntry


FUNCTION_MODE = Watcher(
    "a function mode",
    torch._C._len_torch_function_stack,
    IsSet(TorchSymbol("torch_cpu", "_ZN2at4impl27torch_function_mode_enabledEv", 8)),
)
DISPATCH_MODE = Watcher(
    "a dispatch mode",
    torch._C._len_torch_dispatch_stack,
    IsSet(TorchSymbol("c10", "_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb", 8), (0,)),
)
TRANSFORM = Watcher(
    "a transform of torch.func",
    _functorch.peek_interpreter_stack,
    HasElements(TorchSymbol("torch_cpu", "_ZN2at9functorch20getDynamicLayerStackEv", 64)),
)
TRACING = Watcher(
    "torch.jit.trace",
    torch._C._get_tracing_state,
    HoldsPointer(TorchSymbol("torch_cpu", "_ZN5torch3jit6tracer15getTracingStateEv", 64)),
)
FORWARD_GRADIENTS = Watcher(
    "forward gradients",
    lambda: forward_ad._current_level >= 0,
    ModuleEntry(forward_ad, intern("_current_level"), -1),
)
COMPILING = Watcher(
    "torch.compile or torch.export",
    torch.compiler.is_compiling,
    ModuleEntry(torch.compiler, intern("_is_compiling_flag"), False),
)

MODES = (FUNCTION_MODE, DISPATCH_MODE)
"""Watchers that see the operations of a fusion."""
WATCHERS: tuple[Watcher, ...] = (COMPILING, DISPATCH_MODE, FUNCTION_MODE, TRANSFORM, TRACING, FORWARD_GRADIENTS)
"""Under any of these a call runs as PyTorch runs it."""


def is_watched() -> bool:
    """Whether a watcher sees or changes the operations of this thread."""
    return any(watcher.is_active() for watcher in WATCHERS)
