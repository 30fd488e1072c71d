"""Reading ONNX models: a file, bytes or a model become a graph of nodes with its arrays.

In: a path or a model. Out: an OnnxGraph. Files may come from anyone: weights that a model keeps in other files are read
only from the model's own directory, and every fault is an ImportedModelError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from ingot.base.errors import ImportedModelError, UnsupportedError
from ingot.frontend.onnx.model_values import DTYPES, dtype_of
from ingot.frontend.onnx.operator_table import OnnxNode, find

LOWEST_OPSET = 7
"""Older versions broadcast by attributes of their own."""


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input of a graph: its name, element type, and sizes; a size is a text where it is open, None where unknown."""

    name: str
    element: int
    sizes: tuple[int | str | None, ...] | None

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""
        return dtype_of(self.element)


@dataclass(frozen=True, slots=True, eq=False)
class OnnxGraph:
    """The nodes of a model in order, and what they start from."""

    name: str
    opset: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    arrays: Mapping[str, Any]
    """Weights and constants, by name, as numpy arrays."""


def read_model(source: Any) -> OnnxGraph:
    """The graph of a model: a path, the bytes of a file, or an onnx.ModelProto."""
    onnx = _package()
    folder = None
    try:
        if isinstance(source, onnx.ModelProto):
            model = source
        elif isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        elif isinstance(source, str | os.PathLike):
            folder = Path(source).resolve().parent
            model = onnx.load(os.fspath(source), load_external_data=False)
        else:
            raise ImportedModelError(f"a path, bytes or an onnx.ModelProto is needed, not a {type(source).__name__}")
        _load_external(onnx, model, folder)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        return _graph(onnx, model.graph, _opset(model))
    except (ImportedModelError, MemoryError):
        raise
    except OSError as error:
        raise ImportedModelError(f"the model cannot be read: {error}") from error
    except Exception as error:  # protobuf and onnx have errors of many kinds for damaged files
        raise ImportedModelError(f"this is no ONNX model, or it is damaged: {error}") from error


def _package() -> Any:
    try:
        import onnx
        import onnx.inliner
    except ImportError as error:
        raise UnsupportedError("ONNX models need the package onnx: pip install 'ingot[onnx]'") from error
    return onnx


def _opset(model: Any) -> int:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if opset < LOWEST_OPSET:
        raise ImportedModelError(
            f"the model uses version {opset} of ONNX's operators; {LOWEST_OPSET} or later is needed"
        )
    return opset


def _load_external(onnx: Any, model: Any, folder: Path | None) -> None:
    """Read weights that lie in other files, from the model's directory alone."""
    for tensor in _tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if folder is None:
            raise ImportedModelError(f"{tensor.name} lies in the file {location!r}: give the path of the model")
        place = (folder / location).resolve()
        if not location or not place.is_relative_to(folder) or not place.is_file():
            raise ImportedModelError(f"{tensor.name} lies in {location!r}, which is no file in the model's directory")
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))


def _tensors(graph: Any) -> Iterator[Any]:
    """All arrays of a graph and of the graphs inside it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)


def _graph(onnx: Any, graph: Any, opset: int) -> OnnxGraph:
    if graph.sparse_initializer:
        raise ImportedModelError("sparse weights are not known")
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        attributes = {one.name: _attribute(onnx, one, opset) for one in node.attribute}
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            arrays[node.output[0]] = _constant(attributes)
            continue
        name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        nodes.append(OnnxNode(name, node.name, tuple(node.input), tuple(node.output), attributes))
    inputs = tuple(_input(one) for one in graph.input if one.name not in arrays)
    return OnnxGraph(graph.name, opset, inputs, tuple(one.name for one in graph.output), tuple(nodes), arrays)


def _input(value: Any) -> OnnxInput:
    if not value.type.HasField("tensor_type"):
        raise ImportedModelError(f"the input {value.name!r} is no tensor")
    kind = value.type.tensor_type
    if kind.elem_type not in DTYPES:
        raise ImportedModelError(f"the input {value.name!r} has an element type that ingot does not compute with")
    sizes = None
    if kind.HasField("shape"):
        sizes = tuple(one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in kind.shape.dim)
    return OnnxInput(value.name, kind.elem_type, sizes)


def _attribute(onnx: Any, attribute: Any, opset: int) -> Any:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return _graph(onnx, attribute.g, opset)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list) or attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return [one.decode() if isinstance(one, bytes) else one for one in value]
    return value


def _constant(attributes: Mapping[str, Any]) -> Any:
    """The array of a Constant node."""
    types = {
        "value": None,
        "value_float": numpy.float32,
        "value_floats": numpy.float32,
        "value_int": numpy.int64,
        "value_ints": numpy.int64,
    }
    for name, value in attributes.items():
        if name in types:
            return numpy.asarray(value, types[name])
    raise ImportedModelError(f"constants that are given as {', '.join(attributes)} are not known")


def require_known(graph: OnnxGraph) -> None:
    """Refuse a model with operators that have no record: all of them at once."""
    unknown: dict[str, list[str]] = {}
    for node in _nodes(graph):
        if find(node.operator, graph.opset) is None:
            unknown.setdefault(node.operator, []).append(node.name or node.outputs[0])
    if unknown:
        listed = "; ".join(
            f"{operator} ({', '.join(names[:3])}{' and more' if len(names) > 3 else ''})"
            for operator, names in sorted(unknown.items())
        )
        raise ImportedModelError(f"operators that are not known, with the nodes that use them: {listed}")


def _nodes(graph: OnnxGraph) -> Iterator[OnnxNode]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                yield from _nodes(value)
