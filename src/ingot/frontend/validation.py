"""What a definition should compute: its recorded calls, run with PyTorch one by one, and the comparison with it.

This shares nothing with the graph, its passes or the interpreter but the operators' `eager` functions, so a fault in
any of those shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import ValidationError
from ingot.base.sizes import SizeExpression
from ingot.frontend.fusion_statements import (
    AddOutput,
    Apply,
    DefineScalar,
    DefineTensor,
    DefineVector,
    Statement,
    flat,
    mapped,
)
from ingot.ir.handles import Handle, Vector
from ingot.ir.torch_types import to_torch
from ingot.ops.parameters import data_type
from ingot.ops.promotion import Promotion

_HALVES = (torch.float16, torch.bfloat16)


def run_eagerly(statements: Sequence[Statement], inputs: Sequence[Any]) -> list[Any]:
    """The results PyTorch gives for a recorded definition; aliased outputs are left out, inputs stay as they are."""
    run = _EagerRun(inputs)
    outputs: list[Any] = []
    with torch.no_grad(), torch.device(_device(inputs)):
        for statement in statements:
            match statement:
                case DefineTensor(_, result):
                    run.take_tensor(result)
                case DefineScalar(value, _, result):
                    run.values[id(result)] = run.take() if value is None else value
                case DefineVector(given, result):
                    run.values[id(result)] = run.take_vector(given)
                case Apply():
                    run.apply(statement)
                case AddOutput(value, alias_input, _):
                    if alias_input is None:
                        outputs.append(run.replace(value))
    return outputs


def _device(inputs: Sequence[Any]) -> torch.device:
    """Where tensors are made that are made of nothing."""
    devices = [value.device for value in inputs if isinstance(value, torch.Tensor)]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


class _EagerRun:
    def __init__(self, inputs: Sequence[Any]):
        self.values: dict[int, Any] = {}
        self._waiting = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        self._taken = 0
        self._sizes: dict[str, int] = {}

    def take(self) -> Any:
        value = self._waiting[self._taken]
        if isinstance(value, int):
            self._sizes[f"n{self._taken}"] = value
        self._taken += 1
        return value

    def take_tensor(self, handle: Any) -> None:
        tensor = self.take()
        self._sizes.update((str(size), actual) for size, actual in zip(handle.shape, tensor.shape, strict=True))
        self.values[id(handle)] = tensor

    def take_vector(self, given: int | list[Any]) -> list[int]:
        return [self.take() for _ in range(given)] if isinstance(given, int) else mapped(given, self.replace)

    def replace(self, value: Any) -> Any:
        if isinstance(value, Handle | Vector):
            return self.values[id(value)]
        if isinstance(value, SizeExpression):
            return sizes.evaluate(value, self._sizes)
        return to_torch(value) if isinstance(value, DataType) and value is not DataType.Null else value

    def apply(self, statement: Apply) -> None:
        op = statement.op
        assert op.eager is not None and op.signature is not None
        arguments = []
        for parameter in op.signature.parameters:
            value = statement.arguments[parameter.name]
            value = data_type(value) if parameter.kind == "Type" else value
            value = mapped(value, self.replace)
            widens = op.promotion not in (None, Promotion.MOVEMENT) and parameter.kind == "Operand"
            arguments.append(value.float() if widens and _is_half(value) else value)
        result = op.eager(torch, *arguments)
        results = (result,) if isinstance(statement.result, Vector) else flat(result)
        self.values.update((id(handle), value) for handle, value in zip(flat(statement.result), results, strict=True))


def require_close(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise ValidationError at the first result that is not what was expected."""
    if len(actual) != len(expected):
        raise ValidationError(f"there are {len(actual)} results, but {len(expected)} were expected")
    for position, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        found_tensor, wanted_tensor = torch.as_tensor(found), torch.as_tensor(wanted)
        if found_tensor.shape != wanted_tensor.shape:
            shapes = f"{list(found_tensor.shape)}, not {list(wanted_tensor.shape)}"
            raise ValidationError(f"result {position} has the shape {shapes}")
        wanted_tensor = wanted_tensor.to(found_tensor)
        relative, absolute = TOLERANCES.get(found_tensor.dtype, (0.0, 0.0))
        close = torch.isclose(found_tensor, wanted_tensor, rtol=relative, atol=absolute, equal_nan=True)
        if not close.all():
            worst = (found_tensor.double() - wanted_tensor.double()).abs().nan_to_num(torch.inf).max().item()
            raise ValidationError(
                f"result {position} differs from PyTorch's in {int((~close).sum())} of {close.numel()} elements, "
                f"by up to {worst:g}"
            )


TOLERANCES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 1e-4),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (2e-2, 2e-2),
}
"""Relative and absolute; a wrong operator is off by far more, another order of summation by far less."""


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALVES
