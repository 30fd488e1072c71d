"""Who runs a model: eager PyTorch, torch.compile and ingot.jit, the compilers with and without CUDA graphs.

In: a model, a device and a type. Out: a row of times. What always holds: results of every compiler have been compared
with eager's before anything is measured, by what a wider type gives; ingot.jit's end the run where they differ,
torch.compile's are told of.
"""

from __future__ import annotations

import copy
import gc
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.contestants import JIT_CALLS, WrongResult
from benchmarks.cuda.clocks import synchronize
from benchmarks.cuda.contests import TOLERANCES, WIDER
from benchmarks.cuda.models.networks import Network
from benchmarks.measuring import Call, Clock, Contestant, Effort, race, seconds
from benchmarks.results import COMPILE, EAGER, JIT, Row
from ingot import jit
from ingot.runtime.cuda.kernels import gpu_kernels
from ingot.runtime.cuda.modules import modules

REPLAYED = "reduce-overhead"
COMPILE_REPLAYED, JIT_REPLAYED = f"{COMPILE}, {REPLAYED}", f"{JIT}, {REPLAYED}"
CONTESTANTS = (EAGER, COMPILE, COMPILE_REPLAYED, JIT, JIT_REPLAYED)
OVER_EAGERS = 2.0
"""How many times as far from the wider type's results as eager's results may be."""
_JIT_CALLS = JIT_CALLS + 6
"""After these calls nothing is new to ingot.jit: recorded, compiled, tried, captured."""
_COMPILE_CALLS = 4


@dataclass
class ModelContest:
    """A model made ready."""

    calls: dict[str, Call]
    second_result: dict[str, float] = field(default_factory=dict)
    """Seconds until the second result, by contestant."""
    nbytes: int = 0
    """Of the weights and the inputs."""
    reason: str = ""
    """Why ingot.jit runs eagerly, where it does."""


class Reference:
    """What eager gives for a model, and what it gives in a wider type."""

    def __init__(self, name: str, module: nn.Module, inputs: tuple[torch.Tensor, ...]):
        self._name = name
        self.expected = module(*inputs)
        wider = WIDER[self.expected.dtype]
        wide = [one.to(wider) if one.dtype.is_floating_point else one for one in inputs]
        self._precise = copy.deepcopy(module).to(wider)(*wide)
        self._furthest = float((self.expected - self._precise).abs().max())

    def require_close(self, found: torch.Tensor) -> None:
        """Raise WrongResult unless a result is about as close to the wider type's as eager's is, and lies like it."""
        if (found.dtype, found.shape, found.stride()) != (
            self.expected.dtype,
            self.expected.shape,
            self.expected.stride(),
        ):
            raise WrongResult(f"{self._name}: {found.dtype} {list(found.shape)}, strides {found.stride()}")
        distance = (found - self._precise).abs()
        allowed = OVER_EAGERS * self._furthest + TOLERANCES[found.dtype] * self._precise.abs()
        if not bool((distance <= allowed).all()):
            text = f"up to {float(distance.max()):.3g} from the wider type's, eager's {self._furthest:.3g}"
            raise WrongResult(f"{self._name}: {text}")


def model_row(
    network: Network, device: torch.device, dtype: torch.dtype, effort: Effort, with_compile: bool, is_small: bool
) -> Row:
    """A model run by everyone, in turns."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contest = prepare(network, device, dtype, with_compile, is_small)
        timings = race({name: Contestant(call) for name, call in contest.calls.items()}, effort, clock_of(device))
    spent = {name: timing.median for name, timing in timings.items()}
    return Row(network.name, spent, 0, contest.nbytes, second_result=contest.second_result, reason=contest.reason)


def prepare(
    network: Network, device: torch.device, dtype: torch.dtype, with_compile: bool, is_small: bool
) -> ModelContest:
    """Compile and check a model. Raises WrongResult if ingot.jit and eager differ."""
    forget(device)
    module, inputs = network.make(device, dtype, is_small)
    reference = Reference(network.name, module, inputs)
    tensors = (*module.parameters(), *module.buffers(), *inputs)
    contest = ModelContest({EAGER: partial(module, *inputs)}, nbytes=sum(one.nbytes for one in tensors))
    for name, call in compiled_by(module, inputs, with_compile).items():
        spent = _seconds_to_second_result(call, device)
        if name in (COMPILE, JIT):  # with CUDA graphs they come second, and find some of what was compiled
            contest.second_result[name] = spent
        contest.calls[name] = call
        _warm_up(name, call, reference)
    contest.calls = {name: contest.calls[name] for name in CONTESTANTS if name in contest.calls}
    function: Any = contest.calls[JIT].func  # type: ignore[attr-defined]
    contest.reason = _why_eager(function)
    return contest


def compiled_by(module: nn.Module, inputs: tuple[torch.Tensor, ...], with_compile: bool) -> dict[str, Call]:
    """Calls of a model by compilers, in the order in which they are to compile it."""
    calls: dict[str, Call] = {
        JIT: partial(jit(module), *inputs),
        JIT_REPLAYED: partial(jit(module, mode=REPLAYED), *inputs),
    }
    if with_compile:
        calls[COMPILE] = partial(torch.compile(module), *inputs)
        calls[COMPILE_REPLAYED] = _in_steps(torch.compile(module, mode=REPLAYED), inputs)
    return calls


def _in_steps(compiled: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Call:
    """A call that says that what earlier ones gave may be overwritten, as such functions want to be told."""

    def call() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return call


def _warm_up(name: str, call: Call, reference: Reference) -> None:
    is_ours = name in (JIT, JIT_REPLAYED)
    for number in range(_JIT_CALLS if is_ours else _COMPILE_CALLS):
        result: Any = call()
        if is_ours and number in (0, _JIT_CALLS - 1):
            reference.require_close(result)
    if not is_ours:
        try:
            reference.require_close(call())  # type: ignore[arg-type]
        except WrongResult as difference:
            print(f"{name}: {difference}", file=sys.stderr, flush=True)


def _seconds_to_second_result(call: Call, device: torch.device) -> float:
    def both() -> None:
        call()
        call()
        synchronize(device)

    gc.collect()  # garbage of other contestants must not be collected while this one is timed
    synchronize(device)
    return seconds(both)


def _why_eager(function: Any) -> str:
    """Why a compiled model runs eagerly; nothing where it does not."""
    return function.explain().splitlines()[0] if function.tier == "eager" else ""


def forget(device: torch.device) -> None:
    """Have nobody remember what an earlier model was compiled to, and give its memory back."""
    gpu_kernels._compiled.made.clear()
    modules._loaded.made.clear()
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def clock_of(device: torch.device) -> Clock:
    """What calls in a row take until the device has done them: its own time or the host's, whichever is longer."""
    return _by_events if device.type == "cuda" else seconds


def _by_events(call: Call, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats
