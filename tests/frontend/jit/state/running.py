"""Programs run over time, eagerly and compiled, and what could be seen of them compared call by call.

In: a builder of programs and a mode of `ingot.jit`. Out: nothing, or an AssertionError that names the call. What is
compared: results (floats within PyTorch's tolerances, all else exactly), types of exceptions, arguments after the call,
which tensors are one object or share memory, printed text, warnings, the log and what the program lets see; and, when
all calls are done, every result again, which no later call may have changed unless eager's changes too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch

import ingot
from tests.frontend.jit.state.worlds import Builder, Compile, Program, ProgramWarning, World

MODES = ("auto", "run")
CALLS_BEFORE = 14
CALLS_AFTER = 4


def jitted(mode: str) -> Compile:
    """`ingot.jit` in this mode."""
    options: dict[str, Any] = {"python": mode}
    return lambda function: ingot.jit(function, **options)


@dataclass(frozen=True)
class TensorSeen:
    """A tensor at one moment; `first` and `memory` say which tensor seen before is the same, or shares its memory."""

    value: torch.Tensor
    kind: str
    first: int
    memory: tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """What a value was at one moment: its parts, and a text of what is exact."""

    exact: str
    tensors: tuple[TensorSeen, ...]


class _Looking:
    def __init__(self) -> None:
        self.tensors: list[TensorSeen] = []
        self._objects: dict[int, int] = {}
        self._storages: dict[int, tuple[int, int]] = {}

    def text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, numpy.ndarray):
            return f"array {value.dtype} {value.tolist()!r}"
        if isinstance(value, BaseException):
            return f"raised {type(value).__name__}"
        if isinstance(value, Mapping):
            return f"{type(value).__name__}{{{self._all(part for item in value.items() for part in item)}}}"
        if isinstance(value, list | tuple):
            return f"{type(value).__name__}[{self._all(value)}]"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
            return f"{type(value).__name__}({self._all(fields)})"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | numpy.generic):
            return f"{type(value).__name__} {value!r}"
        return f"some {type(value).__qualname__}"

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join([self.text(value) for value in values])

    def _tensor(self, tensor: torch.Tensor) -> str:
        index = len(self.tensors)
        kind = f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)} {tensor.requires_grad}"
        first = self._objects.setdefault(id(tensor), index)
        memory = (-1, 0)
        if tensor.layout is torch.strided and tensor.numel() and not tensor.is_meta:
            begin = tensor.data_ptr()
            other, start = self._storages.setdefault(tensor.untyped_storage().data_ptr(), (index, begin))
            memory = (other, begin - start)
        self.tensors.append(TensorSeen(_copy(tensor), kind, first, memory))
        return f"tensor {index}"


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_meta:
        return torch.zeros((), device="cpu")
    return tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach().clone()


def look(value: Any) -> Seen:
    """What a value is now. Subclasses of tensors are not asked: they would note it."""
    looking = _Looking()
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        return Seen(looking.text(value), tuple(looking.tensors))


@dataclass
class Moment:
    """What could be seen of one call."""

    outcome: Seen
    around: Seen


@dataclass
class History:
    moments: list[Moment]
    in_the_end: Seen
    """All results again, after the last call: which of them share memory, too."""


def run(build: Builder, compile_function: Compile, *, changes: bool = True) -> History:
    """All calls of a program in a fresh world; without its change, what it does then is left out."""
    out = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ProgramWarning)
        with World(compile_function) as world:
            program = build(world)
            world.compiled = compile_function(program.function)
            moments, results = [], []
            for call in range(CALLS_BEFORE + CALLS_AFTER):
                if call == CALLS_BEFORE and changes:
                    program.change()
                result, moment = _call(program, world, call, lambda: (out.getvalue(), [str(w.message) for w in caught]))
                moments.append(moment)
                results.append(result)
            return History(moments, look(results))


def _call(program: Program, world: World, call: int, heard: Callable[[], Any]) -> tuple[Any, Moment]:
    args, keywords = program.arguments(call), program.keywords(call)
    try:
        result = program.call(lambda: world.compiled(*args, **keywords))
        outcome = program.view(result)
    except Exception as error:
        result = outcome = error.with_traceback(None)
    moment = Moment(look((outcome, args, keywords)), look((world.log, program.observe(), *heard())))
    if not isinstance(result, Exception):
        program.after(result)
    return outcome, moment


def compare(build: Builder, compile_function: Compile) -> None:
    """Fail at the first call after which something differs from an eager run."""
    same_histories(run(build, compile_function), run(build, lambda function: function))


def same_histories(found: History, expected: History) -> None:
    for call, (one, other) in enumerate(zip(found.moments, expected.moments, strict=True)):
        when = f"call {call}" + (" (after the change)" if call >= CALLS_BEFORE else "")
        _same(one.outcome, other.outcome, f"{when}: result and arguments")
        _same(one.around, other.around, f"{when}: what can be seen around it")
    _same(found.in_the_end, expected.in_the_end, "all results, after the last call")


def _same(found: Seen, expected: Seen, what: str) -> None:
    assert found.exact == expected.exact, f"{what}: {found.exact} instead of {expected.exact}"
    for one, other in zip(found.tensors, expected.tensors, strict=True):
        same = (one.kind, one.first, one.memory) == (other.kind, other.first, other.memory)
        assert same, f"{what}: {one} instead of {other}"
        if not torch.equal(one.value, other.value):
            torch.testing.assert_close(one.value, other.value, equal_nan=True, msg=lambda text: f"{what}: {text}")
