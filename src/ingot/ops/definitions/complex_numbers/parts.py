"""Complex numbers and their parts: the primitives that join two real numbers and take them apart again."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import COMPLEX, FLOATS, part_type
from ingot.base.errors import ArgumentError, DTypeError
from ingot.ops import inference
from ingot.ops.definitions.elementwise import composite
from ingot.ops.parameters import Operand, Plain, Tensor
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, of_complex, operator, same_of_complex
from ingot.ops.samples import ANYWHERE, Sample, operands
from ingot.ops.samples import Operand as SampleOperand


@operator(
    Kind.POINTWISE,
    name="complex",
    infer=inference.join_parts,
    reference=lambda torch, x, y: torch.complex(x, y),
    eager="torch.complex",
    emit=lambda e, x, y: e.complex(x, y),
    promotion=Promotion.ARITHMETIC,
    dtypes=FLOATS,
    operand_dtypes=FLOATS,
    takes_one_type=True,
    samples=operands(ANYWHERE, ANYWHERE),
)
def join(b: Any, x: Operand, y: Operand) -> Any:
    """The complex number whose real part is x and whose imaginary part is y."""
    return b.node("complex", x, y)


@operator(
    Kind.POINTWISE,
    infer=inference.part_of_complex,
    reference=lambda torch, x: torch.real(x),
    eager=lambda torch, x: torch.real(x).clone(),
    dtypes=COMPLEX,
    emit=lambda e, x: e.real(x),
    samples=operands(ANYWHERE),
)
def real(b: Any, x: Plain) -> Any:
    """The real part of x, which a real number is itself."""
    return b.node("real", x) if x.dtype.is_complex else x


@operator(
    Kind.POINTWISE,
    infer=inference.part_of_complex,
    reference=lambda torch, x: torch.imag(x),
    eager=lambda torch, x: torch.imag(x).clone(),
    dtypes=COMPLEX,
    emit=lambda e, x: e.imaginary(x),
    samples=operands(ANYWHERE),
)
def imag(b: Any, x: Plain) -> Any:
    """The imaginary part of a complex number."""
    if not x.dtype.is_complex:
        raise DTypeError(f"only complex numbers have an imaginary part, not {x.type}")
    return b.node("imag", x)


same_of_complex("real", "imag")


def parts(b: Any, x: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a complex number."""
    return b.node("real", x), b.node("imag", x)


def joined(b: Any, x: Any, y: Any) -> Any:
    """A complex number of two parts of one type."""
    return b.node("complex", x, y)


def part_by_part(b: Any, function: Any, *values: Any) -> Any:
    """What a function gives for the real parts, and what it gives for the imaginary ones, as one complex number."""
    real_parts, imaginary_parts = zip(*(parts(b, value) for value in values), strict=True)
    return joined(b, function(*real_parts), function(*imaginary_parts))


# --- conversions ------------------------------------------------------------------------------------------------------


@of_complex("cast")
def _cast(b: Any, x: Any, dtype: Any) -> Any:
    """To another complex type part by part; a real number gets the imaginary part 0. To bool only zero is false. Other
    conversions drop a part and are refused: `real` says that this is meant."""
    if dtype is None or x.dtype is dtype:
        return x
    part = part_type(dtype)
    if not x.dtype.is_complex:
        return joined(b, b.cast(x, part), b.constant(0.0, part))
    if dtype.is_complex:
        return part_by_part(b, lambda value: b.cast(value, part), x)
    if dtype.text != "bool":
        raise DTypeError(f"{x.type} is not converted to {dtype.text}, which has no imaginary part; use real or imag")
    return b.ne(x, 0)


@composite(None, COMPLEX, "torch.view_as_real", operands(ANYWHERE))
def view_as_real(b: Any, x: Tensor) -> Any:
    """The parts of a complex number along a new last axis of size 2."""
    if not x.dtype.is_complex:
        raise DTypeError(f"only complex numbers have two parts, not {x.type}")
    return b.stack(list(parts(b, x)), -1)


same_of_complex("view_as_real")


@composite(
    None,
    FLOATS,
    lambda torch, x: torch.view_as_complex(x.clone(memory_format=torch.contiguous_format)),
    lambda shape: [Sample((SampleOperand((*shape, 2)),))],
    operand_dtypes=FLOATS,
)
def view_as_complex(b: Any, x: Tensor) -> Any:
    """Complex numbers from their parts along the last axis, which has size 2."""
    if x.dtype not in FLOATS or not x.shape or x.shape[-1] != 2:
        raise ArgumentError(f"view_as_complex takes f32 or f64 whose last axis has size 2, not {x.type}")
    return joined(b, b.select(x, 0, -1), b.select(x, 1, -1))
