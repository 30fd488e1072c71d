"""What operators take: the kinds of parameters, and how arguments of each kind are made canonical.

An operator's signature is the signature of its Python function; the annotation of each parameter names its kind:

    Operand     a handle or a Python number; takes part in type promotion
    Plain       a handle or a number that keeps its own type (conditions)
    Tensor      a tensor handle that keeps its own type (indices)
    Tensors     a list of tensor handles
    Axis, Axes  one axis, several axes; negative ones count from the end
    Sizes       a list of sizes: ints, scalar handles, or a vector handle
    SizeValue   one size
    Type        a DataType (torch dtypes are understood too), or None
    Integer, Integers, Flags, Flag, Real, Text     plain Python values; a scalar handle whose value is known is one too
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from ingot.base.dtypes import HELD, DataType, from_torch_name
from ingot.base.errors import ArgumentError, AxisError, DTypeError, SignatureError

Operand = Annotated[Any, "Operand"]
Plain = Annotated[Any, "Plain"]
Tensor = Annotated[Any, "Tensor"]
Tensors = Annotated[Any, "Tensors"]
Axis = Annotated[Any, "Axis"]
Axes = Annotated[Any, "Axes"]
Sizes = Annotated[Any, "Sizes"]
SizeValue = Annotated[Any, "SizeValue"]
Type = Annotated[Any, "Type"]
Integer = Annotated[Any, "Integer"]
Integers = Annotated[Any, "Integers"]
Flags = Annotated[Any, "Flags"]
Flag = Annotated[Any, "Flag"]
Real = Annotated[Any, "Real"]
Text = Annotated[Any, "Text"]

KINDS = frozenset(
    {"Operand", "Plain", "Tensor", "Tensors", "Axis", "Axes", "Sizes", "SizeValue", "Type"}
    | {"Integer", "Integers", "Flags", "Flag", "Real", "Text"}
)

SPELLINGS = {
    "axes": ("dims", "dim", "axis", "broadcast_dims"),
    "axis": ("dim",),
    "order": ("dims",),
    "keepdim": ("keep_dim", "keepdims"),
    "shape": ("new_shape", "output_shape"),
    "starts": ("start_indices",),
    "stops": ("end_indices",),
    "steps": ("strides",),
    "widths": ("pad_widths",),
    "is_broadcast": ("is_broadcast_dim",),
    "x": ("arg", "input", "arg1", "mat1"),
    "y": ("arg2", "mat2"),
    "weight": ("arg2",),
    "value": ("fill_value",),
    "low": ("minval",),
    "high": ("maxval",),
}
"""Other names a keyword may have: the predecessors did not agree on one."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: str
    optional: bool
    default: Any
    """`inspect.Parameter.empty` where there is none."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an operator, in order."""

    parameters: tuple[Parameter, ...]

    @staticmethod
    def of(function: Callable[..., Any]) -> Signature:
        """Read from a Python function, leaving out its first parameter, the builder."""
        found: list[Parameter] = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            kind, optional = _kind(parameter.annotation)
            if kind not in KINDS:
                raise TypeError(f"{function.__name__}: {parameter.name} is annotated {kind!r}, which is no kind")
            found.append(Parameter(parameter.name, kind, optional, parameter.default))
        return Signature(tuple(found))

    def bind(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Match arguments with parameters and fill in defaults; every parameter gets a value."""
        if len(arguments) > len(self.parameters):
            raise SignatureError(f"takes {len(self.parameters)} arguments, got {len(arguments)}")
        bound = {parameter.name: value for parameter, value in zip(self.parameters, arguments, strict=False)}
        self._move_data_type(bound)
        if len(bound) == len(self.parameters) and not keywords:
            return bound
        for keyword, value in keywords.items():
            name = self._canonical_name(keyword)
            if name in bound:
                raise SignatureError(f"got two values for {name!r}")
            bound[name] = value
        for parameter in self.parameters:
            if parameter.name in bound:
                continue
            if parameter.default is inspect.Parameter.empty:
                raise SignatureError(f"misses the argument {parameter.name!r}; it takes {self}")
            bound[parameter.name] = parameter.default
        return {parameter.name: bound[parameter.name] for parameter in self.parameters}

    def _move_data_type(self, bound: dict[str, Any]) -> None:
        """A data type in the place of something else is the argument `dtype`: nvFuser has `prod(t, DataType.Float)`."""
        if not any(parameter.name == "dtype" for parameter in self.parameters) or "dtype" in bound:
            return
        for name, value in bound.items():
            if is_data_type(value):
                del bound[name]
                bound["dtype"] = value
                return

    def _canonical_name(self, keyword: str) -> str:
        names = {parameter.name for parameter in self.parameters}
        if keyword in names:
            return keyword
        for name in names:
            if keyword in SPELLINGS.get(name, ()):
                return name
        raise SignatureError(f"has no parameter {keyword!r}; it takes {self}")

    def __str__(self) -> str:
        parts = []
        for parameter in self.parameters:
            required = parameter.default is inspect.Parameter.empty
            parts.append(parameter.name if required else f"{parameter.name}={parameter.default!r}")
        return f"({', '.join(parts)})"


def _kind(annotation: Any) -> tuple[str, bool]:
    """The kind an annotation names and whether None is taken too; it may be text or evaluated already."""
    if isinstance(annotation, str):
        kind, _, rest = annotation.partition(" | ")
        return kind, rest == "None"
    members = get_args(annotation) if type(None) in get_args(annotation) else (annotation,)
    kinds = [member.__metadata__[0] for member in members if hasattr(member, "__metadata__")]
    return kinds[0] if kinds else str(annotation), len(members) > 1


def is_data_type(value: Any) -> bool:
    """Whether a value is a data type, ingot's or torch's."""
    return isinstance(value, DataType) or (type(value).__module__ == "torch" and type(value).__name__ == "dtype")


def data_type(value: Any) -> DataType | None:
    """A DataType from a DataType, a torch dtype, or nothing (None and DataType.Null)."""
    if value is None or value is DataType.Null:
        return None
    dtype = value if isinstance(value, DataType) else from_torch_name(str(value))
    if dtype is None:
        raise ArgumentError(f"{value!r} is not a data type; use a member of ingot.DataType")
    if dtype not in HELD:
        raise DTypeError(f"operators do not compute with {dtype!r} ({dtype.text}); run it through PyTorch")
    return dtype


def one_axis(axis: int, rank: int) -> int:
    """An axis counted from the front; a tensor without dimensions takes 0 and -1, as in PyTorch."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise AxisError(f"an axis must be an int, not {axis!r}")
    limit = max(rank, 1)
    if not -limit <= axis < limit:
        raise AxisError(f"axis {axis} is out of range for rank {rank}; expected {-limit} to {limit - 1}")
    return axis % limit


def several_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front in the order given; None means all of them."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    counted = tuple(one_axis(axis, rank) for axis in given)
    if len(set(counted)) != len(counted):
        raise AxisError(f"axes {list(given)} name an axis twice")
    return counted if rank else ()
