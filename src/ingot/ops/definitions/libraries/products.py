"""Products of matrices."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import FLOATS, HALVES, INTEGERS, DataType, in_order
from ingot.base.errors import DTypeError, ShapeError
from ingot.base.types import TensorType
from ingot.ops.parameters import Tensor
from ingot.ops.record import Kind, operator, refuse
from ingot.ops.samples import Domain, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

SMALL = Domain(low=-2.0, high=2.0, lowest_integer=-9, highest_integer=9, specials=False)
MULTIPLIED = Tolerance(ulps=32, scale=8.0, half_ulps=2)
GROUPED = HALVES | {DataType.Float}


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


def _group_samples(shape: tuple[int, ...]) -> list[Sample]:
    """Sizes that PyTorch takes: rows of matrices are multiples of 16 bytes."""
    if len(shape) != 2 or 0 in shape:
        return []
    ends = SampleOperand((2,), Domain(lowest_integer=4, highest_integer=4, specials=False), DataType.Int32)
    return [
        Sample((SampleOperand(left, SMALL, dtype), SampleOperand(right, SMALL, dtype), ends))
        for left, right in (((4, 16), (2, 16, 8)), ((2, 8, 16), (16, 8)))
        for dtype in in_order(GROUPED)
    ]


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, y, offsets: _product_of_groups(torch, x, y, offsets),
    samples=_group_samples,
    tolerance=MULTIPLIED,
)
def grouped_mm(b: Any, x: Tensor, y: Tensor, offsets: Tensor) -> Any:
    """Products of groups: rows of a matrix x by the matrices of y, or the matrices of x by columns of a matrix y. The
    offsets say where each group ends."""
    dtype = _one_dtype("grouped_mm", x, y)
    if dtype not in GROUPED:
        raise DTypeError(f"grouped_mm computes in f32, f16 and bf16, not in {dtype.text}")
    ranks = (len(x.shape), len(y.shape))
    if ranks not in ((2, 3), (3, 2)) or len(offsets.shape) != 1:
        raise ShapeError(
            f"grouped_mm needs a matrix, a stack of them and a vector, got {x.type}, {y.type}, {offsets.type}"
        )
    if offsets.dtype is not DataType.Int32:
        raise DTypeError(f"the offsets of grouped_mm are int32, not {offsets.dtype.text}")
    stack = y if ranks == (2, 3) else x
    b.require_equal_sizes(x.shape[-1], y.shape[-2], f"cannot multiply {x.type} by {y.type}")
    b.require_equal_sizes(offsets.shape[0], stack.shape[0], f"{offsets.type} has no end for each group of {stack.type}")
    product = b.library("aten._grouped_mm.default", (x, y, offsets), TensorType(dtype, (x.shape[-2], y.shape[-1])))
    axis = 0 if ranks == (2, 3) else 1
    position = b.broadcast_in_dim(b.iota(product.shape[axis]), product.shape, [axis])
    end = b.reshape(b.slice(offsets, [offsets.shape[0] - 1], [offsets.shape[0]]), [])
    return b.where(
        b.lt(position, end), product, b.constant(0.0, dtype)
    )  # behind the last group PyTorch leaves anything


def _product_of_groups(torch: Any, x: Any, y: Any, offsets: Any) -> Any:
    """Group by group; what lies behind the last group is zero."""
    ends = offsets.tolist()
    spans = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    result = x.new_zeros(x.shape[-2], y.shape[-1])
    for number, span in enumerate(spans):
        if x.dim() == 2:
            result[span] = x[span] @ y[number]
        else:
            result[:, span] = x[number] @ y[:, span]
    return result


refuse("scaled_mm", "products of scaled 8-bit and 4-bit numbers are not computed; torch._scaled_mm has them")


def _one_dtype(name: str, *operands: Any) -> Any:
    """Library calls promote nothing: PyTorch itself wants one floating-point or integer type here."""
    dtypes = {operand.dtype for operand in operands}
    if len(dtypes) > 1 or not dtypes <= FLOATS | HALVES | INTEGERS:
        raise DTypeError(f"{name} needs operands of one numeric dtype, got {', '.join(str(o.type) for o in operands)}")
    return dtypes.pop()
