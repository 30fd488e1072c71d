"""What a definition should compute: its recorded calls, run with PyTorch one by one.

This shares nothing with the graph, its passes or the interpreter but the operators' `eager` functions, so a fault in
any of those shows. `EagerRun` computes as PyTorch does. `PreciseRun` computes every call in float64 and then rounds its
result to the type that the definition gives it; it may also disturb results, by as much as a right computation of the
same call may be off. How far disturbed runs lie apart is how much a right result may differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.dtypes import HALVES, DataType, part_type
from ingot.frontend.fusion_definition.defined_values import FusionScalar, FusionValue, FusionVector
from ingot.frontend.fusion_definition.recorded_statements import (
    AddOutput,
    Apply,
    DefineScalar,
    DefineTensor,
    DefineVector,
    Statement,
    flat,
    mapped,
)
from ingot.ir.torch_types import to_torch
from ingot.ops import Kind, Op
from ingot.ops.parameters import Parameter, data_type
from ingot.ops.samples import EXACT


class EagerRun:
    """One run of a recorded definition, with PyTorch."""

    def __init__(self, inputs: Sequence[Any], device: torch.device | None = None):
        self._waiting = list(inputs)
        self._device = device or _device_of(inputs)
        self._taken = 0
        self._values: dict[int, Any] = {}

    def results(self, statements: Sequence[Statement]) -> list[Any]:
        """The results, those left out that are written into inputs; inputs stay as they are. Random numbers are drawn
        as after torch.manual_seed(0)."""
        outputs: list[Any] = []
        with torch.no_grad(), torch.device(self._device), torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fusion does not warn either
            # For all devices PyTorch would also note the text of the stack three times, for kinds that are not in use.
            (torch.default_generator if self._device.type == "cpu" else torch).manual_seed(0)
            for statement in statements:
                if isinstance(statement, AddOutput):
                    if statement.alias_input is None:
                        outputs.append(self._result(statement.value))
                else:
                    self._run(statement)
        return outputs

    def _run(self, statement: DefineTensor | DefineScalar | DefineVector | Apply) -> None:
        match statement:
            case DefineTensor(_, result):
                self._values[id(result)] = self._input(self._take())
            case DefineScalar(value, _, result):
                self._values[id(result)] = self._take() if value is None else value
            case DefineVector(given, result):
                elements = [self._take() for _ in range(given)] if isinstance(given, int) else given
                self._values[id(result)] = [self._replace(element) for element in elements]
            case Apply():
                self._apply(statement)

    def _apply(self, statement: Apply) -> None:
        op, signature = statement.op, statement.op.signature
        assert op.eager is not None and signature is not None
        arguments = [self._argument(statement, p) for p in signature.parameters]
        if isinstance(statement.result, FusionScalar):
            arguments = _with_tensors(arguments, signature.parameters, self._device)
        result = op.eager(torch, *arguments)
        results = (result,) if isinstance(statement.result, FusionVector) else flat(result)
        for handle, value in zip(flat(statement.result), results, strict=True):
            self._values[id(handle)] = self._made(op, handle, value)

    def _argument(self, statement: Apply, parameter: Parameter) -> Any:
        given = statement.arguments[parameter.name]
        value = mapped(data_type(given) if parameter.kind == "Type" else given, self._replace)
        if statement.op.keeps_half_types or parameter.kind != "Operand":
            return value
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value

    def _take(self) -> Any:
        self._taken += 1
        return self._waiting[self._taken - 1]

    def _replace(self, value: Any) -> Any:
        if isinstance(value, FusionValue | FusionVector):
            return self._values[id(value)]
        return to_torch(value) if isinstance(value, DataType) and value is not DataType.Null else value

    # --- what other runs do differently -------------------------------------------------------------------------------

    def _input(self, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    def _made(self, op: Op, handle: Any, value: Any) -> Any:
        """The value of a handle, from what PyTorch computed."""
        is_number = isinstance(handle, FusionScalar) and isinstance(value, torch.Tensor)
        return value.item() if is_number else value

    def _result(self, value: FusionValue) -> Any:
        return self._values[id(value)]


class PreciseRun(EagerRun):
    """A run in float64 whose values are rounded to their types. With a generator, what is not exact is disturbed: by
    `_CAUTION` times what an operator of the table may be off. Results are those before the last rounding."""

    def __init__(self, inputs: Sequence[Any], device: torch.device | None, generator: torch.Generator | None):
        super().__init__(inputs, device)
        self._generator = generator
        self._unrounded: dict[int, Any] = {}

    def _input(self, value: torch.Tensor) -> torch.Tensor:
        if value.is_complex():
            return value.to(torch.complex128, copy=True)
        return value.double() if value.is_floating_point() else value.clone()

    def _argument(self, statement: Apply, parameter: Parameter) -> Any:
        given, own_type = statement.arguments[parameter.name], _is_of_its_type(statement)
        if own_type and isinstance(given, FusionValue):
            value = self._replace(given)
            return value.to(to_torch(given.dtype())) if isinstance(value, torch.Tensor) else value
        value = data_type(given) if parameter.kind == "Type" else given
        if not own_type and isinstance(value, DataType) and (value.is_float or value.is_complex):
            return torch.float64 if value.is_float else torch.complex128
        return mapped(value, lambda one: self._operand(statement, self._replace(one)))

    def _operand(self, statement: Apply, value: Any) -> Any:
        """What is summed up, one by one or in a product, is disturbed before that: so errors of long sums grow."""
        op = statement.op
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or op.kind is Kind.POINTWISE:
            return value
        if op.tolerance == EXACT or not value.numel():
            return value
        terms = value.shape[-1] / 4 if op.name in _PRODUCTS and value.dim() else 2 + value.numel().bit_length()
        return self._disturbed(value, terms * _epsilon(next(flat(statement.result))) * value.abs())

    def _made(self, op: Op, handle: Any, value: Any) -> Any:
        if isinstance(handle, FusionVector) or not (handle.dtype().is_float or handle.dtype().is_complex):
            return super()._made(op, handle, value)
        precise = torch.complex128 if handle.dtype().is_complex else torch.float64
        tensor = self._disturbed_result(op, handle, torch.as_tensor(value).to(precise))
        rounded = tensor.to(to_torch(handle.dtype())).to(precise)
        self._unrounded[id(handle)] = tensor
        return rounded.item() if isinstance(handle, FusionScalar) else rounded

    def _disturbed_result(self, op: Op, handle: FusionValue, value: torch.Tensor) -> torch.Tensor:
        scale = op.tolerance.scale if op.tolerance.scale <= 1 else 0.0  # that of sums is for sums of a few numbers
        ulps = min(max(op.tolerance.ulps, 1.0), _MOST_ULPS.get(op.kind, 16.0))
        amount = ulps * _epsilon(handle) * value.abs().clamp(min=scale)
        if op.tolerance.ulps <= 1 and handle.dtype().is_float and handle.dtype() is not DataType.Double:
            amount = torch.where(value.float().double() == value, 0.0, amount)  # what float32 holds is not rounded
        return self._disturbed(value, amount)

    def _disturbed(self, value: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        if self._generator is None:
            return value
        if value.is_complex():  # either part by what the whole may be off
            return torch.view_as_complex(self._disturbed(torch.view_as_real(value), amount.unsqueeze(-1)))
        draws = torch.rand(value.shape, generator=self._generator, dtype=torch.float64, device="cpu").to(value.device)
        # Between a half and the whole of it, upwards or downwards: two errors of one size do not cancel out.
        moved = torch.where(draws < 0.5, 0.5 + draws, -draws) * amount * _CAUTION
        return torch.where(value.isfinite(), value + moved, value)

    def _result(self, value: FusionValue) -> Any:
        return self._unrounded.get(id(value), self._values[id(value)])


_HALVES = tuple(map(to_torch, HALVES))
_CAUTION = 4.0
_MOST_ULPS = {Kind.REDUCTION: 2.0, Kind.SCAN: 4.0}
"""How far off results of long sums are besides, where what is summed up is disturbed."""
_ATTENTION = frozenset({"sdpfa_fwd", "sdpfa_bwd"})
_PRODUCTS = frozenset({"matmul", "linear", "grouped_mm"}) | _ATTENTION
_OF_THEIR_TYPE = frozenset({"fused_sum", "nan_to_num", "nextafter", "rand_like", "randn_like", "uniform", "normal"})
"""Operators that give something else in float64 than in the type they are called with."""


def _is_of_its_type(statement: Apply) -> bool:
    """Whether a call has to be made in the types of its operands: in float64 it would give something else."""
    first = next(flat(statement.result))
    rounds_between = statement.op.name in _ATTENTION and first.dtype() in HALVES  # its products, to the half type
    return rounds_between or statement.op.name in _OF_THEIR_TYPE


def _epsilon(handle: FusionValue) -> float:
    """The distance of numbers near 1 in the type that a value is computed in."""
    return 2.0**-52 if part_type(handle.dtype()) is DataType.Double else 2.0**-23


_PRECISE_NUMBERS = {float: torch.float64, complex: torch.complex128}


def _device_of(inputs: Sequence[Any]) -> torch.device:
    """Where tensors are made that are made of nothing."""
    devices = [value.device for value in inputs if isinstance(value, torch.Tensor)]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def _with_tensors(arguments: list[Any], parameters: Sequence[Parameter], device: torch.device) -> list[Any]:
    """Arguments with tensors in the place of numbers: functions of torch do not compute with numbers alone."""

    def tensor(value: Any, parameter: Parameter) -> Any:
        if parameter.kind not in ("Operand", "Plain") or not isinstance(value, bool | int | float | complex):
            return value
        return torch.tensor(value, dtype=_PRECISE_NUMBERS.get(type(value)), device=device)

    return [tensor(value, parameter) for value, parameter in zip(arguments, parameters, strict=True)]
