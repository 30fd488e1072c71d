"""A model all of whose calls are followed, and the kernels that such a call runs.

In: a use of a model. Out: the call, followed whatever that costs; and a call that runs what it computes with, without
any Python of the model: the segments that its last call ran, and PyTorch's own functions that run at once, or outside
of the model. Together with Python alone (`python_floor`) that is the least that following could take.

What always holds: in what is followed, sizes that are asked for and other names for memory are no kernels, even where
PyTorch makes them; and what a segment computes is not counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

import ingot
from benchmarks.measuring import Call
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.follow.following import Following
from ingot.frontend.jit.follow.following_summary import public_name
from ingot.frontend.jit.follow.rules.live_functions import live
from ingot.frontend.jit.follow.rules.roles import Role, gives_operand, name_of, never_waits, role_of, views_memory
from ingot.frontend.jit.follow.segments import Segment

_native: Any = torch._C
FOLLOWED = "followed"
KERNELS = "kernels"
WARM_CALLS = 8
_AT_ONCE = "runs at once, as PyTorch's: "
"""How `explain()` begins the line of functions that do not wait, as far as they had to be looked at."""


Kernels = list[list[Call]]
"""What is run before a model is called first, and from each of its calls to the next one."""


@dataclass
class Followed:
    """A model whose `forward` is followed at every call."""

    module: Any
    use: Callable[[], Any]
    kernels: Kernels

    def run_kernels(self) -> None:
        for part in self.kernels:
            run_all(part)


def run_all(calls: list[Call]) -> None:
    for call in calls:
        call()


def followed(module: Any, use: Callable[[], Any]) -> Followed:
    """Follow a model; `use` calls it."""
    plain = module.forward
    module.forward = ingot.jit(plain, python="run")
    with mock.patch.object(eager_comparison, "ROUNDS", 0):  # never left to eager for the sake of speed
        for _ in range(WARM_CALLS):
            use()
        parts = zip(_segments(module, use), _calls_at_once(module, plain, use), strict=True)
        return Followed(module, use, [[*segments, *calls] for segments, calls in parts])


@contextmanager
def replaced(module: Any, make: Callable[[Any], Any]) -> Iterator[None]:
    """A model with another `forward`, which is made of its own."""
    forward = module.forward
    try:
        module.forward = wraps(forward)(make(forward))
        yield
    finally:
        module.forward = forward


def _segments(module: Any, use: Call) -> Kernels:
    """The segments that a followed call runs, to be run again."""
    found: Kernels = [[]]
    run = Segment.run

    def noting(segment: Segment, native: Any, given: tuple[Any, ...], begun: list[Segment]) -> None:
        found[-1].append(lambda: native.run(segment.recorded, given, segment.writes.address))
        run(segment, native, given, begun)

    def counting(jitted: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            found.append([])
            return jitted(*args, **kwargs)

        return forward

    patches = mock.patch.object(Segment, "run", noting), mock.patch.object(Following, "begin", _begin_in_python(True))
    with replaced(module, counting), patches[0], patches[1]:
        use()
    with mock.patch.object(Following, "begin", _begin_in_python(False)):
        use()
    return found


def _begin_in_python(is_left: bool) -> Callable[[Following], None]:
    """How a call begins whose flushes are all left to Python, where they can be noted; or that are so no longer."""
    begin = Following.begin

    def begin_so(following: Following) -> None:
        following._call.leave_flushes(is_left)
        begin(following)

    return begin_so


def _own_integers(value: Any) -> Any:
    """Copies integers: `bucket += 8`, run again and again, must not lead a lookup by them out of its table."""
    return value.clone() if isinstance(value, torch.Tensor) and not value.is_floating_point() else value


class _Noting(TorchFunctionMode):
    """Notes calls of torch's functions that compute: those that run at once when they are followed, and all of them
    while nothing is followed. Functions written in Python are looked into, as following does."""

    def __init__(self, names: frozenset[str]):
        """`names` are those of functions that run at once, besides those that always do."""
        super().__init__()
        self._names = names
        self.is_outside = True
        self.calls: Kernels = [[]]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if role_of(func) is Role.PYTHON:
            with self:
                return live(func)(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if self._runs(func, args, result):
            given = tree_map(_own_integers, (args, kwargs or {}))
            self.calls[-1].append(lambda: func(*given[0], **given[1]))
        return result

    def _runs(self, function: Any, args: tuple[Any, ...], result: Any) -> bool:
        """Whether a followed call runs this one at once, and it is not only asked for sizes or other names for memory.
        Outside of what is followed PyTorch makes those as well."""
        if role_of(function) is Role.METADATA or function is torch._C._set_grad_enabled:
            return False
        if self.is_outside:
            return True
        is_whole = role_of(function) is Role.WHOLE or never_waits(name_of(function))
        return (is_whole or public_name(function) in self._names) and _computes(function, args, result)

    @contextmanager
    def inside(self) -> Iterator[None]:
        self.is_outside = False
        self.calls.append([])
        try:
            yield
        finally:
            self.is_outside = True


def _computes(function: Any, args: tuple[Any, ...], result: Any) -> bool:
    """Whether a call of torch's has made or written values."""
    name = name_of(function)
    if not (views_memory(name) or gives_operand(name)):
        return True
    parts = [result] if isinstance(result, torch.Tensor) else result
    return not all(_native._is_alias_of(part, args[0]) for part in parts)


def _calls_at_once(module: Any, plain: Callable[..., Any], use: Call) -> Kernels:
    """PyTorch's functions that a followed call runs by themselves, and those that are called around the model."""
    jitted = module.forward
    lines = [line.partition(_AT_ONCE)[2] for line in jitted.explain().splitlines() if _AT_ONCE in line]
    mode = _Noting(frozenset(name for line in lines for name in line.split(", ")))

    def noting(_: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with mode.inside():
                return plain(*args, **kwargs)

        return forward

    with replaced(module, noting), mode:
        use()
    return mode.calls
