"""The table of ONNX operators: one record per operator and meaning.

In: functions that say what an operator means in PyTorch, with the version of ONNX's operator set from which on they
do. Out: for a node, the record that holds for the model's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.model_values import HostValue, Value, tensor_of

Results = Any
"""What an operator gives: a value, or a tuple of them."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of a graph."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def place(self) -> str:
        """What to call the node in messages."""
        return f"{self.operator} {self.name!r}" if self.name else f"{self.operator} that gives {self.outputs[0]!r}"


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node with its inputs, as its operator's record sees it."""

    node: OnnxNode
    values: Sequence[Value | None]
    opset: int
    device: torch.device

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return self.node.attributes.get(name, default)

    def has(self, position: int) -> bool:
        """Whether an input is given."""
        return position < len(self.values) and self.values[position] is not None

    def tensor(self, position: int) -> torch.Tensor:
        """An input as a tensor."""
        value = self.values[position] if position < len(self.values) else None
        if value is None:
            raise ImportedModelError(f"input {position} is missing")
        if isinstance(value, torch.Tensor):
            return value
        return value.tensor if value.tensor is not None else tensor_of(value.array, self.device)

    def tensors(self) -> list[torch.Tensor]:
        """All inputs as tensors."""
        return [self.tensor(position) for position in range(len(self.values))]

    def optional(self, position: int) -> torch.Tensor | None:
        """An input as a tensor, if it is given."""
        return self.tensor(position) if self.has(position) else None

    def operand(self, position: int, other: torch.Tensor) -> Any:
        """An input for arithmetic beside a tensor: a number, where it is a known one of the same type."""
        value = self.values[position]
        if isinstance(value, HostValue) and value.array.size == 1 and value.array.ndim <= other.dim():
            is_alike = str(value.array.dtype) == str(other.dtype).removeprefix("torch.")
            if is_alike and other.dtype is not torch.bool:
                return value.array.item()
        return self.tensor(position)

    def known(self, position: int) -> list[Any]:
        """The elements of an input of one dimension or none. Those of a tensor are read, and Python waits for them."""
        value = self.values[position] if position < len(self.values) else None
        if value is None:
            raise ImportedModelError(f"input {position} is missing")
        found = value.array.tolist() if isinstance(value, HostValue) else value.tolist()
        return found if isinstance(found, list) else [found]

    def number(self, position: int, default: Any = None) -> Any:
        """The only element of an input, or what stands for it where it is not given."""
        if not self.has(position):
            return default
        (found,) = self.known(position)
        return found

    def axes(self, position: int, attribute: str = "axes") -> list[int] | None:
        """Axes that older versions have as an attribute and newer ones as an input; None if they are left out."""
        if self.has(position):
            return [int(axis) for axis in self.known(position)]
        found = self.attribute(attribute)
        return None if found is None else list(found)


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """What an operator means, from one version of the operator set on."""

    name: str
    since: int
    run: Callable[[NodeCall], Results]
    on_arrays: Callable[..., Any] | None = None
    """The same of numpy arrays and the call, for operators that compute shapes."""


_TABLE: dict[str, list[OnnxOperator]] = {}


def define(name: str, run: Callable[[NodeCall], Results], since: int = 1, on_arrays: Any = None) -> None:
    """Add a record to the table."""
    records = _TABLE.setdefault(name, [])
    records.append(OnnxOperator(name, since, run, on_arrays))
    records.sort(key=lambda record: -record.since)


def defines(*names: str, since: int = 1, on_arrays: Any = None) -> Callable[[Any], Any]:
    """A decorator that adds a function to the table, under each of these names."""

    def add(run: Callable[[NodeCall], Results]) -> Callable[[NodeCall], Results]:
        for name in names:
            define(name, run, since, on_arrays)
        return run

    return add


def find(name: str, opset: int) -> OnnxOperator | None:
    """The record of an operator that holds for a version of the operator set; None if there is none."""
    return next((record for record in _TABLE.get(name, ()) if record.since <= opset), None)


def known_operators() -> dict[str, list[int]]:
    """All operators, with the versions from which on their records hold."""
    return {name: sorted(record.since for record in records) for name, records in sorted(_TABLE.items())}
