"""Which value of a trace a tensor is, while a call is recorded, and which memory it lies in.

In: the tensors of a call, in the order in which they are met. Out: a value of the trace for each, with its type, sizes
and the number of its memory. What always holds: tensors have the same number where writing into one changes the other.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from ingot.frontend.jit.arguments.supported_tensors import refused_result, refused_tensor
from ingot.frontend.jit.trace.trace import Made, Origin, TensorMeta, Trace, TraceValue, all_of
from ingot.runtime.overlaps import NumberedMemory, addresses_of


class _Stopped(Protocol):
    def stop(self, reason: str) -> None: ...


class Registers:
    """The values of one trace, by the tensors that they are in the call."""

    def __init__(self, trace: Trace, recording: _Stopped):
        """The recording is stopped where a tensor is of a kind that traces do not have."""
        self._trace = trace
        self._recording: _Stopped = weakref.proxy(recording)  # which holds this object
        self._values: dict[int, tuple[weakref.ref[Any], TraceValue]] = {}
        self._leaf_storages: dict[int, int] = {}
        self._memory = NumberedMemory()
        self._storages = 0
        self._kept: list[Any] = []

    def find(self, tensor: torch.Tensor) -> TraceValue | None:
        """The value that a tensor is; None for one that is not known."""
        entry = self._values.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def by_memory(self, values: Any) -> dict[int, TraceValue]:
        """The known tensors among nested values, by the memory that they lie in."""
        found = [(tensor, self.find(tensor)) for tensor in all_of(torch.Tensor, values)]
        return {_storage(tensor): register for tensor, register in found if register is not None}

    def has_memory_of(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor from before the call that is known lies in the memory of this one."""
        return _storage(tensor) in self._leaf_storages

    def add_results(self, result: Any, operands: Mapping[int, TraceValue]) -> Any:
        """What an operation has given, with values in the place of tensors; `operands` by their memory."""
        if isinstance(result, torch.Tensor):
            return self.find(result) or self.add_made(result, operands)
        if isinstance(result, list | tuple):
            return type(result)(self.add_results(element, operands) for element in result)
        return result

    def add_made(self, tensor: torch.Tensor, operands: Mapping[int, TraceValue]) -> TraceValue:
        """A tensor that the next operation of the trace makes, in memory of its own or in that of an operand."""
        refused = refused_result(tensor)
        if refused:
            self._recording.stop(refused)
            return self._add_refused(tensor, Made(len(self._trace.events)))
        base = operands.get(_storage(tensor))
        storage = self._new_storage() if base is None else self._trace.note(base).storage
        return self.add(tensor, Made(len(self._trace.events)), storage)

    def add_leaf(self, tensor: torch.Tensor, origin: Origin) -> TraceValue:
        """A tensor that was there before the call."""
        refused = refused_tensor(tensor)
        if refused:
            self._recording.stop(refused)
            return self._add_refused(tensor, origin)
        self._kept.append(tensor)  # so that no other storage takes its place
        storage = self._leaf_storages.get(_storage(tensor))
        if storage is None:
            storage = self._leaf_storages[_storage(tensor)] = self._number(tensor)
        return self.add(tensor, origin, storage)

    def add(self, tensor: torch.Tensor, origin: Origin, storage: int) -> TraceValue:
        """A tensor in memory of a known number, which may be a value of the trace already: from now on it is this."""
        note = TensorMeta(origin, tensor.dtype, tuple(tensor.shape), tensor.stride(), storage, device=tensor.device)
        return self._add(tensor, note)

    def _add_refused(self, tensor: torch.Tensor, origin: Origin) -> TraceValue:
        """A tensor that ends the recording: some of these have no sizes, others no strides."""
        return self._add(tensor, TensorMeta(origin, tensor.dtype, (), (), -1, device=tensor.device))

    def _add(self, tensor: torch.Tensor, note: TensorMeta) -> TraceValue:
        register = TraceValue(len(self._trace.tensors))
        self._trace.tensors.append(note)
        self._values[id(tensor)] = (weakref.ref(tensor), register)
        return register

    def _number(self, tensor: torch.Tensor) -> int:
        """The number of memory that was there before the call; other storages that overlap it get the same."""
        number, joined = self._memory.number(addresses_of(tensor), self._new_storage())
        if joined:
            for index, note in enumerate(self._trace.tensors):
                if note.storage in joined:
                    self._trace.tensors[index] = dataclasses.replace(note, storage=number)
            self._leaf_storages |= {one: number for one, old in self._leaf_storages.items() if old in joined}
        return number

    def _new_storage(self) -> int:
        self._storages += 1
        return self._storages - 1


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)
