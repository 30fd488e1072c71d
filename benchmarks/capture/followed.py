"""A model all of whose calls are followed, and the kernels that such a call runs.

In: a use of a model. Out: the call, followed whatever that costs; and a call that runs what it computes with, without
any Python of the model: the segments that its last call ran, and PyTorch's own functions that run at once, or outside
of the model. Together with Python alone (`python_floor`) that is the least that following could take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

import ingot
from benchmarks.measuring import Call
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.follow.segments import Segment
from ingot.frontend.jit.follow.summary import public_name

FOLLOWED = "followed"
KERNELS = "kernels"
WARM_CALLS = 8
_AT_ONCE = "runs at once, as PyTorch's: "
"""How `explain()` begins the line of functions that do not wait."""


@dataclass
class Followed:
    """A model whose `forward` is followed at every call."""

    module: Any
    use: Callable[[], Any]
    kernels: list[Call] = field(default_factory=list)

    def run_kernels(self) -> None:
        for kernel in self.kernels:
            kernel()


def followed(module: Any, use: Callable[[], Any]) -> Followed:
    """Follow a model; `use` calls it."""
    plain = module.forward
    module.forward = ingot.jit(plain, python="run")
    with mock.patch.object(eager_comparison, "ROUNDS", 0):  # never left to eager for the sake of speed
        for _ in range(WARM_CALLS):
            use()
        kernels = [*_segments(use), *_calls_at_once(module, plain, use)]
    return Followed(module, use, kernels)


def _segments(use: Call) -> list[Call]:
    """The segments that a followed call runs, to be run again."""
    found: list[Call] = []
    run = Segment.run

    def noting(segment: Segment, native: Any, given: tuple[Any, ...], begun: list[Segment]) -> None:
        found.append(lambda: native.run(segment.recorded, given, segment.writes.address))
        run(segment, native, given, begun)

    with mock.patch.object(Segment, "run", noting):
        use()
    return found


def _own_integers(value: Any) -> Any:
    """Copies integers: `bucket += 8`, run again and again, must not lead a lookup by them out of its table."""
    return value.clone() if isinstance(value, torch.Tensor) and not value.is_floating_point() else value


class _Noting(TorchFunctionMode):
    """Notes calls of torch's functions: those with certain names, and all of them while it is told to."""

    def __init__(self, names: frozenset[str]):
        super().__init__()
        self._names = names
        self.is_outside = True
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.is_outside or public_name(func) in self._names:
            given = tree_map(_own_integers, (args, kwargs or {}))
            self.calls.append(lambda: func(*given[0], **given[1]))
        return func(*args, **(kwargs or {}))

    @contextmanager
    def inside(self) -> Iterator[None]:
        self.is_outside = False
        try:
            yield
        finally:
            self.is_outside = True


def _calls_at_once(module: Any, plain: Callable[..., Any], use: Call) -> list[Call]:
    """PyTorch's functions that a followed call runs by themselves, and those that are called around the model."""
    jitted = module.forward
    lines = [line.partition(_AT_ONCE)[2] for line in jitted.explain().splitlines() if _AT_ONCE in line]
    mode = _Noting(frozenset(name for line in lines for name in line.split(", ")))

    def forward(*args: Any, **kwargs: Any) -> Any:
        with mode.inside():
            return plain(*args, **kwargs)

    try:
        module.forward = forward
        with mode:
            use()
    finally:
        module.forward = jitted
    return mode.calls
