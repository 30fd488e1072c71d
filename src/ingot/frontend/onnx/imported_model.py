"""An imported model: a module whose forward runs the nodes of an ONNX graph with PyTorch's operations.

In: a graph, and tensors at every call. Out: the graph's outputs. Arrays of the model are parameters of the module.
Values that are computed from shapes stay numpy arrays; nodes whose inputs are all known arrays are computed there,
too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ingot.base.errors import ImportedModelError, IngotError, InputError
from ingot.frontend.onnx import operators  # noqa: F401  (fills the table)
from ingot.frontend.onnx.model_file import OnnxGraph, OnnxInput, require_known
from ingot.frontend.onnx.model_values import MOST_KNOWN, HostValue, Value, declared_sizes, stored_tensor, tensor_of
from ingot.frontend.onnx.operator_table import NodeCall, OnnxNode, find


class ImportedModel(torch.nn.Module):
    """The nodes of a graph, run one after the other."""

    def __init__(self, graph: OnnxGraph):
        super().__init__()
        require_known(graph)
        self.graph = graph
        self.eval()
        self._weights = torch.nn.ParameterDict()
        self._keys: dict[int, str] = {}
        """Names of parameters, by the identity of the array."""
        for each in _graphs(graph):
            for name, array in each.arrays.items():
                self._add_weight(name, array)

    def _add_weight(self, name: str, array: Any) -> None:
        key = base = re.sub(r"\W", "_", name) or "weight"
        number = 0
        while key in self._weights or hasattr(torch.nn.ParameterDict, key):
            number += 1
            key = f"{base}_{number}"
        self._weights[key] = torch.nn.Parameter(stored_tensor(array), requires_grad=False)
        self._keys[id(array)] = key

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [one.name for one in self.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs, in order."""
        return list(self.graph.outputs)

    def forward(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Any:
        """The graph's outputs: one tensor, or a tuple of them. Inputs are passed in order or by name."""
        values: dict[str, Value | None] = {}
        for declared, tensor in zip(self.graph.inputs, self._bound(tensors, named), strict=True):
            values[declared.name] = _checked(declared, tensor)
        device = next((one.device for one in values.values() if isinstance(one, torch.Tensor)), torch.device("cpu"))
        made = [_as_tensor(value, device) for value in self._run(self.graph, values, device)]
        return made[0] if len(made) == 1 else tuple(made)

    def _bound(self, tensors: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        names = self.input_names
        given = {**dict(zip(names, tensors, strict=False)), **named}
        doubled = [name for name in named if name in names[: len(tensors)]]
        if len(tensors) > len(names) or doubled or set(given) != set(names):
            raise InputError(
                f"the model takes {', '.join(names)}; given are {len(tensors)} in order and {sorted(named)}"
            )
        return [given[name] for name in names]

    def _run(self, graph: OnnxGraph, values: dict[str, Value | None], device: torch.device) -> list[Value]:
        for name, array in graph.arrays.items():
            tensor = self._weights[self._keys[id(array)]]
            values[name] = HostValue(array, tensor) if array.size <= MOST_KNOWN else tensor
        last = _last_uses(graph)
        for number, node in enumerate(graph.nodes):
            results = self._run_node(graph, node, values, device)
            for name, result in zip(node.outputs, results, strict=False):
                values[name] = result
            for name in last.get(number, ()):
                values.pop(name, None)
        return [_present(values, name) for name in graph.outputs]

    def _run_node(
        self, graph: OnnxGraph, node: OnnxNode, values: Mapping[str, Value | None], device: torch.device
    ) -> Sequence[Any]:
        record = find(node.operator, graph.opset)
        assert record is not None
        given = [_present(values, name) if name else None for name in node.inputs]
        call = NodeCall(node, given, graph.opset, device)
        try:
            result = NotImplemented
            arrays = [value.array for value in given if isinstance(value, HostValue)]
            if record.on_arrays is not None and len(arrays) == len(given) and arrays:
                result = record.on_arrays(call, *arrays)
                result = result if result is NotImplemented else HostValue(result)
            if result is NotImplemented:
                result = record.run(call)
        except ImportedModelError as error:
            raise error.within(node.place) from error
        except (IngotError, MemoryError):
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AssertionError, ZeroDivisionError) as error:
            raise ImportedModelError(f"{node.place} cannot be computed: {error}") from error
        if isinstance(result, OnnxGraph):
            return self._run(result, dict(values), device)
        return result if isinstance(result, tuple | list) else (result,)


def _graphs(graph: OnnxGraph) -> list[OnnxGraph]:
    """A graph and those inside it."""
    inner = [value for node in graph.nodes for value in node.attributes.values() if isinstance(value, OnnxGraph)]
    return [graph, *(found for one in inner for found in _graphs(one))]


def _last_uses(graph: OnnxGraph) -> dict[int, list[str]]:
    """By node, the values that no later node needs; what graphs inside use is kept."""
    last = {name: number for number, node in enumerate(graph.nodes) for name in (*node.inputs, *node.outputs)}
    kept = set(graph.outputs)
    for inner in _graphs(graph)[1:]:
        kept.update(name for node in inner.nodes for name in node.inputs)
        kept.update(inner.outputs)
    found: dict[int, list[str]] = {}
    for name, number in last.items():
        if name and name not in kept and name not in graph.arrays:
            found.setdefault(number, []).append(name)
    return found


def _present(values: Mapping[str, Value | None], name: str) -> Value:
    found = values.get(name)
    if found is None:
        raise ImportedModelError(f"{name!r} is used, but nothing gives it")
    return found


def _as_tensor(value: Value, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return tensor_of(value.array, device) if value.tensor is None else value.tensor


def _checked(declared: OnnxInput, tensor: Any) -> torch.Tensor:
    """An input, if it is what the model declares."""
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"the input {declared.name!r} must be a tensor, not a {type(tensor).__name__}")
    dtype, sizes = declared.dtype, declared.sizes
    fits = sizes is None or (
        len(sizes) == tensor.dim()
        and all(
            not isinstance(one, int) or one == size for one, size in zip(sizes, declared_sizes(tensor), strict=True)
        )
    )
    if tensor.dtype is not dtype or not fits:
        told = "" if sizes is None else f"[{', '.join('?' if one is None else str(one) for one in sizes)}]"
        given = f"{tensor.dtype}{list(tensor.shape)}"
        raise InputError(f"the input {declared.name!r} must be {dtype}{told}, not {given}")
    return tensor
