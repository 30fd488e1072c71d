"""Replaying a stored trace: its operations run one after the other, and calls of them are compiled as any function's.

In: a stored trace and the tensors of the bundle. Out: a function of tensors that does what was recorded, operation by
operation, through PyTorch; and a compiled function of it. The first call records the replay itself, so that everything
that kernels rely on (types, sizes, strides, shared memory) is seen in this process and never taken from the file. Sizes
that the file leaves open stay open: one program serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import BundleError, ExecutionError, IngotError
from ingot.base.logs import log
from ingot.base.sizes import SizeExpression
from ingot.frontend.bundles.stored_trace import StoredOperation, StoredTrace, opened
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.arguments.call_key import KeyedCall
from ingot.frontend.jit.cache.generalisation import CannotGeneralise, Unified
from ingot.frontend.jit.cache.shape_families import Generalised
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.trace.trace import TraceValue, values_in
from ingot.runtime.compiler import JitCompiler


class Replay:
    """The operations of a stored trace: called with the tensors that are passed, it gives those among its results."""

    def __init__(self, trace: StoredTrace, weights: Mapping[str, torch.Tensor]):
        self.trace = trace
        self.weights = [(leaf.value.index, _weight(leaf.name, weights)) for leaf in trace.weights]
        self._arguments = [leaf.value.index for leaf in trace.arguments]
        self._returned = [value.index for value in values_in(list(trace.results))]
        self._dead = _last_uses(trace, kept={*self._arguments, *self._returned, *(index for index, _ in self.weights)})
        self._checked: set[tuple[int, ...]] = set()
        """Open sizes for which results were compared with what the file says."""
        self._check_weights()

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        bound = {name: tensors[position].shape[axis] for name, (position, axis) in self.trace.symbols.items()}
        key = tuple(bound.values())
        is_new = key not in self._checked
        values: dict[int, Any] = dict(self.weights)
        values.update(zip(self._arguments, tensors, strict=True))
        for number, operation in enumerate(self.trace.operations):
            arguments = _filled(operation.arguments, values, bound)
            keywords = _filled(operation.keywords, values, bound)
            _assign(operation.results, operation.target(*arguments, **keywords), values)
            if is_new:
                _check(operation, values, bound)
            for index in self._dead.get(number, ()):
                values.pop(index, None)
        self._checked.add(key)
        return [values[index] for index in self._returned]

    def _check_weights(self) -> None:
        for (_, tensor), leaf in zip(self.weights, self.trace.weights, strict=True):
            told = leaf.type
            if tensor.dtype is not told.dtype or tuple(tensor.shape) != told.sizes or tensor.device != told.device:
                raise BundleError(f"{leaf.name!r} is another tensor than the trace says: {tensor.dtype} {tensor.shape}")


def _weight(name: str, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name not in weights:
        raise BundleError(f"a trace uses the tensor {name[:80]!r}, which the manifest does not list")
    return weights[name]


def _last_uses(trace: StoredTrace, kept: set[int]) -> dict[int, list[int]]:
    """By operation, the values that nothing needs after it."""
    last: dict[int, int] = {}
    for number, operation in enumerate(trace.operations):
        for value in values_in((operation.arguments, operation.keywords, operation.results)):
            last[value.index] = number
    found: dict[int, list[int]] = {}
    for index, number in last.items():
        if index not in kept:
            found.setdefault(number, []).append(index)
    return found


def _filled(value: Any, values: Mapping[int, Any], bound: Mapping[str, int]) -> Any:
    if isinstance(value, TraceValue):
        return values[value.index]
    if isinstance(value, SizeExpression):
        return sizes.evaluate(value, bound)
    if isinstance(value, list):
        return [_filled(one, values, bound) for one in value]
    if isinstance(value, tuple):
        return tuple([_filled(one, values, bound) for one in value])
    if isinstance(value, dict):
        return {name: _filled(one, values, bound) for name, one in value.items()}
    return value


def _assign(names: Any, results: Any, values: dict[int, Any]) -> None:
    """Give an operation's results their numbers."""
    if isinstance(names, TraceValue):
        values[names.index] = results
    elif isinstance(names, list | tuple):
        if not isinstance(results, list | tuple) or len(results) != len(names):
            raise BundleError(f"an operation gives another number of results than the bundle says: {len(names)}")
        for name, result in zip(names, results, strict=True):
            _assign(name, result, values)


def _check(operation: StoredOperation, values: Mapping[int, Any], bound: Mapping[str, int]) -> None:
    """Compare results with what the file says they are: another version of PyTorch might do something else."""
    for value, told in zip(values_in(operation.results), operation.types, strict=True):
        made, expected = values[value.index], [sizes.evaluate(size, bound) for size in told.sizes]
        if not isinstance(made, torch.Tensor):
            raise BundleError(f"{operation.target} gives a {type(made).__name__} for {value!r}, not a tensor")
        if bound and made.dtype is told.dtype and made.dim() == len(expected):
            continue  # open sizes of results are foretold, and checked where a program relies on them
        if made.dtype is not told.dtype or list(made.shape) != expected:
            raise BundleError(
                f"{operation.target} gives {made.dtype} {list(made.shape)} for {value!r}, where {told.dtype} "
                f"{expected} was recorded; the bundle is damaged, or PyTorch {torch.__version__} or its settings "
                "compute otherwise"
            )


class ReplayedFunction(CompiledFunction):
    """A replay, compiled by calling it: recorded, rewritten and lowered as any function is. There is no Python to
    prove anything of."""

    def __init__(self, replay: Replay, options: Options, name: str):
        super().__init__(guarded(replay), options, JitCompiler(options.config), name)
        self.otherwise = self.native.otherwise = self.function
        self.reads_attributes = self.needs_proof = self.native.forbids_attributes = False
        self._replay = replay
        self._names = {leaf.value.index: leaf.name for leaf in replay.trace.weights}

    def _find_environment(self) -> Environment:
        found = Environment()
        for index, tensor in self._replay.weights:
            found.tensors[id(tensor)] = found.seen[id(tensor)] = tensor
            found.names[id(tensor)] = self._names[index]
        return found

    def _generalise(self, call: KeyedCall, made: Specialisation) -> Generalised | None:
        trace = self._replay.trace
        if not trace.symbols:
            return super()._generalise(call, made)
        found = None if made.trace is None else opened(made.trace, trace)
        if found is None:
            return None
        try:
            unified = Unified(found, (), trace.divisors, trace.ranges)
            return self._table.families.adopt(call.key, call.described, call.key[1], made, unified)
        except CannotGeneralise as error:
            log("recompiles", f"{self.name}: every set of sizes is compiled by itself: {error}")
            return None


def guarded(replay: Replay) -> Callable[..., Sequence[torch.Tensor]]:
    """A replay whose faults are ingot's: what PyTorch refuses may be the fault of the file or of the arguments."""

    def replayed(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        try:
            return replay(*tensors)
        except (IngotError, MemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
            raise ExecutionError(f"PyTorch refused an operation of the bundle: {error}") from error

    return replayed
