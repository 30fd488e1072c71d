"""Padding and joining."""

from __future__ import annotations

from typing import Any

from ingot.base.errors import ArgumentValueError, ShapeError
from ingot.base.sizes import Size
from ingot.ops import inference
from ingot.ops.attributes import (
    AxisAttributes,
    PadAttributes,
)
from ingot.ops.definitions.movement.views import slices, view
from ingot.ops.parameters import (
    Axis,
    Flag,
    Plain,
    Sizes,
    Tensor,
    Tensors,
    one_axis,
)
from ingot.ops.promotion import Promotion
from ingot.ops.samples import Operand as SampleOperand
from ingot.ops.samples import Sample


@view(
    inference.pad,
    PadAttributes,
    lambda torch, x, value, before, after: _pad(torch, x, value, before, after),
    lambda torch, x, widths, value: torch.nn.functional.pad(x, widths, value=_number(value)),
    lambda shape: [
        Sample((SampleOperand(shape), widths, value))
        for widths in ([1, 2], [0, 1, 2, 0], [-1, 2])
        if len(widths) <= 2 * len(shape) and all(size > 1 for size in shape)
        for value in (None, 0, 1, 0.1, True)
    ],
)
def pad(b: Any, x: Tensor, widths: Sizes, value: Plain | None = None) -> Any:
    """x with elements added (or, for negative widths, removed) around it, zeros unless another value is given; widths
    start with the last axis."""
    rank = len(x.shape)
    if len(widths) % 2 or len(widths) > 2 * rank:
        raise ShapeError(f"pad needs up to {rank} pairs of widths for {x.type}, got {len(widths)} widths")
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for position in range(len(widths) // 2):
        before[rank - 1 - position], after[rank - 1 - position] = widths[2 * position], widths[2 * position + 1]
    starts = [-width if _is_negative(width) else 0 for width in before]
    stops = [size + width if _is_negative(width) else size for size, width in zip(x.shape, after, strict=True)]
    if any(isinstance(stop - start, int) and stop - start < 0 for start, stop in zip(starts, stops, strict=True)):
        raise ShapeError(f"pad cannot remove more elements than {x.type} has, as widths {list(widths)} would")
    x = b.slice(x, starts, stops)
    low = tuple(0 if _is_negative(width) else width for width in before)
    high = tuple(0 if _is_negative(width) else width for width in after)
    if not any(width != 0 for width in low + high):
        return x
    filling = b.scalar_like(0 if value is None else _one_number(value), x.dtype)
    return b.node("pad", x, filling, attributes=PadAttributes(low, high))


@view(
    inference.concatenate,
    AxisAttributes,
    lambda torch, *tensors, axis: torch.cat(tensors, axis),
    lambda torch, tensors, axis, manual_padding: (
        torch.stack(tensors).sum(0).to(tensors[0].dtype) if manual_padding else torch.cat(tensors, axis)
    ),
    lambda shape: [
        Sample(([SampleOperand(shape), SampleOperand(shape)], axis)) for axis in range(-len(shape), len(shape))
    ],
    promotion=Promotion.MOVEMENT,
)
def cat(b: Any, tensors: Tensors, axis: Axis = 0, manual_padding: Flag = False) -> Any:
    """Tensors joined along an axis. With manual_padding each has been padded with zeros to the whole length already."""
    if not tensors:
        raise ArgumentValueError("cat needs at least one tensor")
    rank = len(tensors[0].shape)
    if rank == 0:
        raise ShapeError("cat cannot join tensors without dimensions; reshape them to [1] first")
    counted = one_axis(axis, rank)
    if manual_padding:
        tensors = _unpadded(b, tensors, counted)
    return tensors[0] if len(tensors) == 1 else b.node("cat", *tensors, attributes=AxisAttributes(counted))


# --- shared ----------------------------------------------------------------------------------------------------------


def _one_number(value: Any) -> Any:
    if value.shape:
        raise ShapeError(f"pad takes one number for what it adds, not {value.type}")
    known = value.constant_value()
    return value if known is None else known


def _number(value: Any) -> Any:
    return 0 if value is None else value.item() if hasattr(value, "item") else value


def _pad(torch: Any, x: Any, value: Any, before: Any, after: Any) -> Any:
    """Written with a fill and a copy: torch's own pad takes a Python number, which cannot hold every value."""
    shape = [low + size + high for low, size, high in zip(before, x.shape, after, strict=True)]
    result = torch.empty(shape, dtype=x.dtype, device=x.device).copy_(value)
    result[slices(before, [low + size for low, size in zip(before, x.shape, strict=True)], [1] * x.dim())] = x
    return result


def _is_negative(width: Size) -> bool:
    return isinstance(width, int) and width < 0


def _unpadded(b: Any, tensors: Any, axis: int) -> list[Any]:
    """What was padded, tensor by tensor; each must have been padded by what the others are long."""
    parts = [b.handle_for(tensor.node.operands[0]) if _is_padded(tensor.node, axis) else None for tensor in tensors]
    before: Size = 0
    for tensor, part in zip(tensors, parts, strict=True):
        if part is None or tensor.node.attributes.before[axis] != before or tensor.shape != tensors[0].shape:
            raise ShapeError(
                f"cat(manual_padding=True) joins results of pad along axis {axis}, end to end, not {tensor.type}"
            )
        before = before + part.shape[axis]
    if before != tensors[0].shape[axis]:
        raise ShapeError(f"cat(manual_padding=True): {len(tensors)} tensors do not fill {tensors[0].type}")
    return parts


def _is_padded(node: Any, axis: int) -> bool:
    """Whether a node pads with zeros, along one axis alone."""
    if not isinstance(node.attributes, PadAttributes) or node.operands[1].constant != 0:
        return False
    widths = zip(node.attributes.before, node.attributes.after, strict=True)
    return all(other == axis or width == (0, 0) for other, width in enumerate(widths))
