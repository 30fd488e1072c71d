"""The tensors that a bundle takes along: what to call them, and what they held before anything was called.

In: a function, then its recordings. Out: the tensors of their environments by name: a module's own names, or those of
variables. Recordings of one function share tensors, and names.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.errors import CaptureError
from ingot.frontend.bundles.loaded_program import LoadedProgram
from ingot.frontend.bundles.weights import Kind
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.guards.environment import environment_of
from ingot.frontend.jit.trace.trace import EnvironmentTensor, Trace, values_in, written_arguments


@dataclass(slots=True)
class TensorsBefore:
    """What tensors held before anything was called, apart from parameters."""

    held: dict[int, tuple[torch.Tensor, torch.Tensor]]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> TensorsBefore:
        around = environment_of(function, ()).tensors.values()
        plain = [one for one in around if not isinstance(one, torch.nn.Parameter) and one.layout is torch.strided]
        return cls({id(one): (one, copy.deepcopy(one.detach())) for one in plain})

    def restore(self) -> None:
        """Write back what a call has changed; the statistics of norms change without a new version."""
        with torch.no_grad():
            for tensor, value in self.held.values():
                if not torch.equal(tensor, value):
                    tensor.copy_(value)

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        entry = self.held.get(id(tensor))
        return None if entry is None else entry[1]


@dataclass(slots=True)
class SavedTensors:
    """Names for the tensors of environments: a module's own, or those of variables."""

    module: torch.nn.Module | None
    before: TensorsBefore
    tensors: dict[str, tuple[Kind, torch.Tensor]] = field(default_factory=dict)
    """The tensors that were named, with what is stored of them."""
    _known: dict[int, str] = field(default_factory=dict)
    _own: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.module is not None:
            for named in (self.module.named_parameters, self.module.named_buffers):
                for name, tensor in named(remove_duplicate=False):
                    self._own.setdefault(id(tensor), name)

    def of(self, trace: Trace, made: Specialisation) -> dict[int, str]:
        """The names of a recording's environment tensors, by position."""
        self._refuse_writes(trace, made.environment.names)
        return {
            position: self._name(tensor, made.environment.names)
            for position, tensor in enumerate(trace.environment_tensors)
        }

    def _name(self, tensor: torch.Tensor, variables: Mapping[int, str]) -> str:
        if id(tensor) in self._known:
            return self._known[id(tensor)]
        own = self._own.get(id(tensor)) or variables.get(id(tensor))
        kind: Kind = "constant" if own is None else "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
        name = self._unused(re.sub(r"[^\w.]+", "_", own or "constant").strip("._") or "tensor")
        self._known[id(tensor)] = name
        self.tensors[name] = kind, tensor.detach()
        return name

    def _unused(self, wanted: str) -> str:
        """A name that no tensor has, no part of another's name, and no attribute of what is loaded."""
        parts = [part or "_" for part in wanted.split(".")]
        if hasattr(LoadedProgram, parts[0]) or parts[0] in ("name", "recordings", "training"):
            parts[0] += "_"
        candidate, number = ".".join(parts), 0
        while any(
            f"{one}.".startswith(f"{candidate}.") or f"{candidate}.".startswith(f"{one}.") for one in self.tensors
        ):
            number += 1
            candidate = f"{'.'.join(parts)}_{number}"
        return candidate

    def _refuse_writes(self, trace: Trace, variables: Mapping[int, str]) -> None:
        """Refuse writes into tensors whose value before the call is not known."""
        written = {
            trace.note(value).storage
            for event in trace.events
            for value in values_in(written_arguments(event.target, event.arguments, event.keywords))
        }
        for note in trace.tensors:
            if isinstance(note.origin, EnvironmentTensor) and note.storage in written:
                tensor = trace.environment_tensors[note.origin.position]
                name = self._own.get(id(tensor)) or variables.get(id(tensor))
                if name is not None and self.before.value_of(tensor) is None:
                    raise CaptureError(f"{name} cannot be saved as it was: the function writes into it at every call")
