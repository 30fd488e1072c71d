"""ONNX models made by hand, and what others compute for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import onnx
import torch
from onnx import helper, numpy_helper

try:
    import onnxruntime  # pyright: ignore[reportMissingImports]
except ImportError:  # then onnx's own definition of its operators, in numpy, has the word
    onnxruntime = None


def floats(*shape: int, seed: int = 0) -> Any:
    return numpy.random.default_rng([seed, *shape]).standard_normal(shape).astype(numpy.float32)


def value(name: str, array: Any, sizes: Sequence[Any] | None = None) -> Any:
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, element, list(array.shape) if sizes is None else list(sizes))


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
    sizes: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """A model of these nodes; `inputs` are examples, `sizes` says which of their sizes are open."""
    declared = [value(name, array, (sizes or {}).get(name)) for name, array in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "made_by_hand", declared, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, 8 + opset // 17))


def single(
    operator: str, arrays: Sequence[Any], attributes: Mapping[str, Any], opset: int, known: Sequence[int]
) -> tuple[Any, dict[str, Any]]:
    """A model of one node, whose inputs at the positions `known` are constants of the model; None is no input."""
    names = [f"i{number}" if array is not None else "" for number, array in enumerate(arrays)]
    given = {f"i{number}": array for number, array in enumerate(arrays) if array is not None}
    constants = {name: array for name, array in given.items() if int(name[1:]) in known}
    plain = dict(attributes)
    outputs = [f"o{number}" for number in range(plain.pop("outputs", 1))]
    node = helper.make_node(operator, names, outputs, name="it", **plain)
    inputs = {name: array for name, array in given.items() if name not in constants}
    return model_of([node], inputs, outputs, constants, opset), inputs


def reference(model: Any, given: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime computes, or onnx itself where that is not installed."""
    if onnxruntime is None:
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(None, dict(given)))  # pyright: ignore[reportReturnType]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: Any = session.run(None, dict(given))
    return list(found)


def tensors(given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in given.items()}


def compare(found: Any, expected: Sequence[Any], tolerance: float = 1e-4) -> None:
    """Compare what a model gave with what was expected, types and shapes included."""
    results = found if isinstance(found, tuple) else (found,)
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        wanted = torch.from_numpy(numpy.array(other))
        assert one.dtype is wanted.dtype and one.shape == wanted.shape
        torch.testing.assert_close(one, wanted, atol=tolerance, rtol=tolerance, equal_nan=True)
