"""Matching the arguments of a call with a graph's inputs, before anything runs.

In: a graph and the arguments. Out: the value of every size symbol and the device to run on. An argument that does not
fit is an InputError that names the input, and nothing has been touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import InputError
from ingot.base.numbers import integer_range
from ingot.base.types import ScalarType, TensorType
from ingot.ir.graph import Graph
from ingot.ir.torch_types import from_torch


@dataclass(frozen=True, slots=True)
class Binding:
    sizes: dict[str, int]
    device: torch.device


def bind(graph: Graph, inputs: Sequence[Any], device: torch.device | str | None = None) -> Binding:
    """Check the arguments and work out sizes and device; `device` matters only where no tensor decides it: where there
    are none, or only such that act as numbers."""
    if len(inputs) != len(graph.inputs):
        declared = ", ".join(str(node.type) for node in graph.inputs) or "none"
        raise InputError(f"expected {len(graph.inputs)} inputs ({declared}), got {len(inputs)}")
    bound: dict[str, int] = {}
    tensors: list[tuple[int, TensorType, torch.Tensor]] = []
    for position, (node, value) in enumerate(zip(graph.inputs, inputs, strict=True)):
        if isinstance(node.type, TensorType):
            _check_tensor(position, node.type, value)
            _bind_symbols(node.type, value, bound)
            tensors.append((position, node.type, value))
        else:
            assert isinstance(node.type, ScalarType)
            _check_scalar(position, node.type.dtype, value)
            if node.type.dtype.is_integer:
                bound[f"n{position}"] = int(value)
    for tensor in tensors:
        _check_sizes(*tensor, bound)
    for assumption in graph.assumptions:
        left, right = sizes.evaluate(assumption.left, bound), sizes.evaluate(assumption.right, bound)
        if left != right:
            raise InputError(
                f"{assumption.operator} needs {assumption.left} and {assumption.right} to be equal, but the inputs "
                f"make them {left} and {right}: {_origins(graph, assumption.left, assumption.right)}"
            )
    for size in graph.sizes_from_numbers:
        if (value := sizes.evaluate(size, bound)) < 0:
            raise InputError(f"the inputs make the size {size} {value}, which is negative: {_origins(graph, size)}")
    for output in graph.outputs:
        if output.alias_input is not None:
            _check_writable(output.alias_input, inputs[output.alias_input])
    return Binding(bound, _common_device(inputs, device))


def _check_tensor(position: int, declared: TensorType, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"input {position} must be a tensor {declared}, not {type(value).__name__}")
    if value.layout is not torch.strided:
        raise InputError(f"input {position} is {value.layout}; only strided tensors are taken, call .to_dense()")
    if value.is_meta:
        raise InputError(f"input {position} is a meta tensor and has no values")
    if from_torch(value.dtype) is not declared.dtype:
        raise InputError(f"input {position} must have the dtype {declared.dtype.text}, not {value.dtype}")
    if value.dim() != declared.rank:
        raise InputError(f"input {position} must have {declared.rank} dimensions ({declared}), not {value.dim()}")


def _check_writable(position: int, value: torch.Tensor) -> None:
    if any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True)):
        raise InputError(
            f"input {position} is overwritten, but several of its elements share one place in memory; pass a clone"
        )


def _bind_symbols(declared: TensorType, value: torch.Tensor, bound: dict[str, int]) -> None:
    """A symbol is the size of the first axis that is declared to be this symbol and nothing else."""
    for size, actual in zip(declared.shape, value.shape, strict=True):
        if sizes.is_symbol(size):
            bound.setdefault(str(size), actual)


def _check_sizes(position: int, declared: TensorType, value: torch.Tensor, bound: dict[str, int]) -> None:
    for axis, (size, actual) in enumerate(zip(declared.shape, value.shape, strict=True)):
        expected = sizes.evaluate(size, bound)
        if expected != actual:
            raise InputError(f"input {position} must have size {expected} along axis {axis} ({declared}), not {actual}")


def _check_scalar(position: int, dtype: DataType, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        raise InputError(
            f"input {position} is declared as a number ({dtype.text}); pass tensor.item() or declare a tensor"
        )
    real = bool if dtype is DataType.Bool else int if dtype.is_integer else (int, float)
    if not isinstance(value, (int, float, complex) if dtype.is_complex else real):
        raise InputError(f"input {position} must be a number of type {dtype.text}, not {value!r}")
    if dtype.is_integer:
        lowest, highest = integer_range(dtype)
        if not lowest <= int(value.real) <= highest:
            raise InputError(f"input {position} is {value}, which does not fit {dtype.text}")


def _common_device(inputs: Sequence[Any], device: torch.device | str | None) -> torch.device:
    """The device of the tensors. Tensors without dimensions may stay on the CPU, as in PyTorch."""
    tensors = [(position, value) for position, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    deciding = [pair for pair in tensors if pair[1].dim() or pair[1].device.type != "cpu"]
    for position, value in deciding[1:]:
        if value.device != deciding[0][1].device:
            raise InputError(
                f"input {position} is on {value.device}, but input {deciding[0][0]} is on {deciding[0][1].device}; "
                "move them to one device"
            )
    if deciding:
        return deciding[0][1].device
    wanted = torch.device(device if device is not None else "cpu")
    if wanted.type == "cuda" and wanted.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return wanted


def _origins(graph: Graph, *wanted: sizes.Size) -> str:
    """Which input dimensions the symbols of some sizes come from."""
    symbols = set().union(*(sizes.symbols(size) for size in wanted))
    found = []
    for position, node in enumerate(graph.inputs):
        if f"n{position}" in symbols:
            found.append(f"n{position} is input {position}")
        if isinstance(node.type, TensorType):
            for axis, size in enumerate(node.type.shape):
                if str(size) in symbols:
                    found.append(f"{size} is axis {axis} of input {position}")
    return ", ".join(found)
