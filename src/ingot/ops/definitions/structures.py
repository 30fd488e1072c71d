"""What graphs are made of besides operators, and operators that PyTorch's libraries do best."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import FLOATS, HALVES, INTEGERS
from ingot.base.errors import DTypeError, ShapeError
from ingot.base.types import TensorType
from ingot.ops import inference
from ingot.ops.attributes import (
    ConstantAttributes,
    InputAttributes,
    ItemAttributes,
    LibraryAttributes,
    SizeAttributes,
)
from ingot.ops.parameters import Tensor
from ingot.ops.record import Kind, operator, structure
from ingot.ops.samples import Domain, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

structure("input", Kind.STRUCTURE, "An argument of the graph.", infer=inference.input_, attributes=InputAttributes)
structure("constant", Kind.STRUCTURE, "A number.", infer=inference.scalar, attributes=ConstantAttributes)
structure("dimension", Kind.STRUCTURE, "A size as a number.", infer=inference.scalar, attributes=SizeAttributes)
structure("item", Kind.STRUCTURE, "One of several results.", infer=inference.item, attributes=ItemAttributes)
structure("library", Kind.LIBRARY, "A call of torch.ops.", infer=inference.library, attributes=LibraryAttributes)

SMALL = Domain(low=-2.0, high=2.0, lowest_integer=-9, highest_integer=9, specials=False)
MULTIPLIED = Tolerance(ulps=32, scale=8.0, half_ulps=2)


@operator(
    Kind.COMPOSITE,
    eager="torch.matmul",
    samples=lambda shape: [
        Sample((SampleOperand(shape, SMALL), SampleOperand((*other, *columns), SMALL)))
        for other, columns in (((*shape[:-2], *shape[-1:]), (4,)), (shape[-1:], (2,)), (shape[-1:], ()))
        if shape
    ],
    tolerance=MULTIPLIED,
)
def matmul(b: Any, x: Tensor, y: Tensor) -> Any:
    """Matrix product of the last two axes, the others broadcast; vectors are taken as in PyTorch."""
    dtype = _one_dtype("matmul", x, y)
    if not x.shape or not y.shape:
        raise ShapeError(f"matmul needs at least one dimension on both sides, got {x.type} and {y.type}")
    rows, columns = x.shape[:-1], y.shape[:-2] + y.shape[-1:]
    inner = y.shape[0] if len(y.shape) == 1 else y.shape[-2]
    if len(y.shape) == 1:
        columns = ()
    b.require_equal_sizes(x.shape[-1], inner, f"cannot multiply {x.type} by {y.type}")
    batch = b.broadcast_shapes(rows[:-1], columns[:-1])
    shape = (*batch, *rows[-1:], *columns[-1:])
    return b.library("aten.matmul.default", (x, y), TensorType(dtype, shape))


@operator(
    Kind.COMPOSITE,
    eager="torch.nn.functional.linear",
    samples=lambda shape: [
        Sample((SampleOperand(shape, SMALL), SampleOperand((4, shape[-1]), SMALL), *bias))
        for bias in ((), (SampleOperand((4,), SMALL),))
        if shape
    ],
    tolerance=MULTIPLIED,
)
def linear(b: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x times the transposed weight, plus the bias if there is one."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    dtype = _one_dtype("linear", *operands)
    if not x.shape or len(weight.shape) != 2:
        raise ShapeError(f"linear needs a matrix of weights, got {weight.type} for {x.type}")
    b.require_equal_sizes(x.shape[-1], weight.shape[1], f"cannot apply the weight {weight.type} to {x.type}")
    if bias is not None:
        if len(bias.shape) != 1:
            raise ShapeError(f"linear needs a vector for its bias, not {bias.type}")
        b.require_equal_sizes(bias.shape[0], weight.shape[0], f"bias {bias.type} does not fit {weight.type}")
    return b.library("aten.linear.default", operands, TensorType(dtype, (*x.shape[:-1], weight.shape[0])))


def _one_dtype(name: str, *operands: Any) -> Any:
    """Library calls promote nothing: PyTorch itself wants one floating-point or integer type here."""
    dtypes = {operand.dtype for operand in operands}
    if len(dtypes) > 1 or not dtypes <= FLOATS | HALVES | INTEGERS:
        raise DTypeError(f"{name} needs operands of one numeric dtype, got {', '.join(str(o.type) for o in operands)}")
    return dtypes.pop()
