"""Type rules of the primitives: operand types and attributes in, result type out.

A rule that needs two sizes to be equal calls `assume`. Equal sizes pass, different numbers are an error at once, and
anything that depends on symbols is remembered and checked when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.base import sizes
from ingot.base.dtypes import DataType, complex_type, part_type
from ingot.base.errors import DTypeError, ShapeError
from ingot.base.sizes import Shape, Size
from ingot.base.types import ScalarType, TensorType, TupleType, ValueType
from ingot.ops import attributes as attribute

Assume = Callable[[Size, Size], None]
Types = Sequence[ValueType]


def broadcast_sizes(first: Size, second: Size, assume: Assume) -> Size:
    """The size two aligned dimensions meet in. Symmetric, so that commuted operands have the same type."""
    if first == second or second == 1:
        return first
    if first == 1:
        return second
    require_equal(first, second, assume, f"sizes {first} and {second} do not broadcast")
    return min((first, second), key=lambda size: (not isinstance(size, int), str(size)))


def broadcast_shapes(shapes: Sequence[Shape], assume: Assume) -> Shape:
    """Shapes aligned at their last dimension, as PyTorch broadcasts them."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max(map(len, shapes), default=0)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            result[axis] = broadcast_sizes(result[axis], size, assume)
    return tuple(result)


def require_equal(left: Size, right: Size, assume: Assume, message: str) -> None:
    """Sizes that must be equal: an error if both are numbers and differ, an assumption if symbols decide."""
    if left == right:
        return
    if isinstance(left, int) and isinstance(right, int):
        raise ShapeError(message)
    assume(left, right)


def pointwise(result_dtype: DataType | None = None):
    """Rule of element-by-element operators whose operands have one dtype; `result_dtype` None keeps it."""

    def infer(types: Types, _: attribute.Attributes, assume: Assume) -> ValueType:
        dtypes = {type_.dtype for type_ in types if not isinstance(type_, TupleType)}
        if len(dtypes) != 1:
            raise DTypeError(f"operands must have one dtype, not {', '.join(map(str, types))}")
        return _shaped_like(types, result_dtype or dtypes.pop(), assume)

    return infer


def where(types: Types, _: attribute.Attributes, assume: Assume) -> ValueType:
    condition, *branches = types
    if getattr(condition, "dtype", None) is not DataType.Bool:
        raise DTypeError(f"the condition of where must be bool, not {condition}")
    chosen = pointwise()(branches, attribute.NONE, assume)
    assert isinstance(chosen, TensorType | ScalarType)
    return _shaped_like(types, chosen.dtype, assume)


def join_parts(types: Types, _: attribute.Attributes, assume: Assume) -> ValueType:
    """Rule of what makes a complex number of two real ones."""
    part = pointwise()(types, attribute.NONE, assume)
    assert isinstance(part, TensorType | ScalarType)
    return _shaped_like(types, complex_type(part.dtype), assume)


def part_of_complex(types: Types, _: attribute.Attributes, assume: Assume) -> ValueType:
    (operand,) = types
    assert isinstance(operand, TensorType | ScalarType)
    return _shaped_like(types, part_type(operand.dtype), assume)


def cast(types: Types, attributes: attribute.CastAttributes, _: Assume) -> ValueType:
    (operand,) = types
    if isinstance(operand, TensorType):
        return TensorType(attributes.dtype, operand.shape)
    return ScalarType(attributes.dtype)


def reduction(result_dtype: DataType | None = None):
    """Rule of reductions: the reduced axes disappear."""

    def infer(types: Types, attributes: attribute.AxesAttributes, _: Assume) -> ValueType:
        operand = tensor(types[0])
        kept = tuple(size for axis, size in enumerate(operand.shape) if axis not in attributes.axes)
        return TensorType(result_dtype or operand.dtype, kept)

    return infer


def same(types: Types, *_: object) -> ValueType:
    """The result has the type of the first operand."""
    return tensor(types[0])


def permute(types: Types, attributes: attribute.PermuteAttributes, _: Assume) -> ValueType:
    operand = tensor(types[0])
    return TensorType(operand.dtype, tuple(operand.shape[axis] for axis in attributes.order))


def reshape(types: Types, attributes: attribute.ShapeAttributes, assume: Assume) -> ValueType:
    operand = tensor(types[0])
    old, new = sizes.product(operand.shape), sizes.product(attributes.shape)
    require_equal(
        old, new, assume, f"{operand} has {old} elements and cannot take the shape {shape_text(attributes.shape)}"
    )
    return TensorType(operand.dtype, attributes.shape)


def squeeze(types: Types, attributes: attribute.AxesAttributes, assume: Assume) -> ValueType:
    operand = tensor(types[0])
    for axis in attributes.axes:
        require_equal(operand.shape[axis], 1, assume, f"axis {axis} of {operand} does not have size 1")
    kept = tuple(size for axis, size in enumerate(operand.shape) if axis not in attributes.axes)
    return TensorType(operand.dtype, kept)


def broadcast(types: Types, attributes: attribute.BroadcastAttributes, assume: Assume) -> ValueType:
    operand = tensor(types[0])
    for axis, size in zip(attributes.axes, operand.shape, strict=True):
        if size != 1:
            target = attributes.shape[axis]
            require_equal(size, target, assume, f"{operand} does not broadcast to {shape_text(attributes.shape)}")
    return TensorType(operand.dtype, attributes.shape)


def slice_(types: Types, attributes: attribute.SliceAttributes, _: Assume) -> ValueType:
    operand = tensor(types[0])
    shape = tuple(
        sizes.divide(stop - start + (step - 1), step)
        for start, stop, step in zip(attributes.starts, attributes.stops, attributes.steps, strict=True)
    )
    return TensorType(operand.dtype, shape)


def pad(types: Types, attributes: attribute.PadAttributes, _: Assume) -> ValueType:
    operand = tensor(types[0])
    widths = zip(attributes.before, operand.shape, attributes.after, strict=True)
    return TensorType(operand.dtype, tuple(before + size + after for before, size, after in widths))


def concatenate(types: Types, attributes: attribute.AxisAttributes, assume: Assume) -> ValueType:
    first, *others = (tensor(type_) for type_ in types)
    total = first.shape[attributes.axis]
    for other in others:
        if other.rank != first.rank or other.dtype is not first.dtype:
            raise ShapeError(f"cannot join {other} to {first}: rank and dtype must agree")
        for axis, (left, right) in enumerate(zip(first.shape, other.shape, strict=True)):
            if axis != attributes.axis:
                require_equal(left, right, assume, f"cannot join {other} to {first} along axis {attributes.axis}")
        total = total + other.shape[attributes.axis]
    return TensorType(first.dtype, _with_size(first.shape, attributes.axis, total))


def index_select(types: Types, attributes: attribute.AxisAttributes, _: Assume) -> ValueType:
    operand, index = map(tensor, types)
    if index.rank != 1 or index.dtype not in (DataType.Int, DataType.Int32):
        raise ShapeError(f"the index of index_select must be a vector of int32 or int64, not {index}")
    return TensorType(operand.dtype, _with_size(operand.shape, attributes.axis, index.shape[0]))


def gather(types: Types, _: attribute.AxisAttributes, __: Assume) -> ValueType:
    operand, index = map(tensor, types)
    if index.dtype is not DataType.Int:
        raise DTypeError(f"the index of gather must be int64, not {index.dtype.text}")
    if index.rank != operand.rank:
        raise ShapeError(f"the index of gather must have rank {operand.rank} like its operand, not {index.rank}")
    return TensorType(operand.dtype, index.shape)


def full(types: Types, attributes: attribute.ShapeAttributes, _: Assume) -> ValueType:
    (value,) = types
    if not isinstance(value, ScalarType):
        raise ShapeError(f"a tensor is filled with a scalar, not with {value}")
    return TensorType(value.dtype, attributes.shape)


def iota(_: Types, attributes: attribute.IotaAttributes, __: Assume) -> ValueType:
    return TensorType(attributes.dtype, (attributes.length,))


def random(_: Types, attributes: attribute.RandomAttributes, __: Assume) -> ValueType:
    return TensorType(attributes.dtype, attributes.shape)


def library(_: Types, attributes: attribute.LibraryAttributes, __: Assume) -> ValueType:
    return attributes.results[0] if len(attributes.results) == 1 else TupleType(attributes.results)


def item(types: Types, attributes: attribute.ItemAttributes, _: Assume) -> ValueType:
    (results,) = types
    if not isinstance(results, TupleType) or attributes.index >= len(results.elements):
        raise ShapeError(f"{results} has no element {attributes.index}")
    return results.elements[attributes.index]


def input_(_: Types, attributes: attribute.InputAttributes, __: Assume) -> ValueType:
    if attributes.shape is None:
        return ScalarType(attributes.dtype)
    return TensorType(attributes.dtype, attributes.shape)


def scalar(_: Types, attributes: attribute.Attributes, __: Assume) -> ValueType:
    """Rule of constants and of sizes, which are int64."""
    return ScalarType(getattr(attributes, "dtype", DataType.Int))


def tensor(type_: ValueType) -> TensorType:
    if not isinstance(type_, TensorType):
        raise ShapeError(f"a tensor is needed here, not the scalar {type_}")
    return type_


def shape_text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _with_size(shape: Shape, axis: int, size: Size) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _shaped_like(types: Types, dtype: DataType, assume: Assume) -> ValueType:
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
    return TensorType(dtype, broadcast_shapes(shapes, assume)) if shapes else ScalarType(dtype)
