"""Operations and functions of torch that end a recording, and operations that give a tensor another shape in place.

In: an operation or a function with its arguments. Out: why it ends a recording, or the view that it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from ingot.frontend.jit.trace.trace import all_of, tags_of


def refusal(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why an operation ends a recording, if it does."""
    if kwargs.get("generator") is not None or any(isinstance(given, torch.Generator) for given in args):
        return "random numbers are drawn from a generator of its own"
    tags = tags_of(target)
    if torch.Tag.data_dependent_output in tags:
        return f"{target} turns a tensor's value into a Python value, on which the rest may depend"
    if torch.Tag.dynamic_output_shape in tags and not _has_fixed_shape(target, args):
        return f"the shape of what {target} returns depends on values"
    if target.overloadpacket._qualified_op_name in _RESHAPES_IN_PLACE:
        return f"{target} changes what memory a tensor lies in"
    if target.overloadpacket._qualified_op_name == "aten::prod" and torch.is_grad_enabled() and args[0].requires_grad:
        return "PyTorch differentiates products of elements by another formula while they are recorded"
    if target.overloadpacket._qualified_op_name == "aten::record_stream":
        return "it tells PyTorch that a tensor is used on another stream"
    return None


_RESHAPES_IN_PLACE = frozenset(
    f"aten::{name}" for name in ("set_", "resize_", "resize_as_", "resize", "t_", "transpose_", "squeeze_")
) | frozenset(f"aten::{name}" for name in ("unsqueeze_", "swapaxes_", "swapdims_", "as_strided_", "set_data"))


_TURNS_IN_PLACE = frozenset({"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_"})


@cache
def turned_view(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The view that an operation makes of its first argument, where it gives the argument itself another shape."""
    name = target.overloadpacket.__name__
    if target.namespace != "aten" or name not in _TURNS_IN_PLACE:
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_"))
    return getattr(packet, target._overloadname, None) or getattr(packet, "int", None)


_AT_OFFSETS = frozenset({"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"})


def given_offset(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Where in its memory an operation is told to begin, if it is."""
    if target.overloadpacket.__name__ not in _AT_OFFSETS:
        return None
    last = len(target._schema.arguments) - 1
    return args[last] if len(args) > last else kwargs.get("storage_offset")


def _has_fixed_shape(target: torch._ops.OpOverload, args: Sequence[Any]) -> bool:
    """Indexing has a shape that depends on values only where masks are among the indices."""
    if target.overloadpacket._qualified_op_name not in ("aten::index", "aten::index_put", "aten::index_put_"):
        return False
    return not any(tensor.dtype in (torch.bool, torch.uint8) for tensor in all_of(torch.Tensor, args[1]))


_LOSES_OUT = frozenset({"matrix_rank", "linalg_matrix_rank"})
"""Functions whose `out=` PyTorch forgets to write where a mode sees what they are made of."""
_CASTS_WITHIN = frozenset(
    {
        *("pinv", "linalg_pinv", "pinverse", "bilinear"),
        *("_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
    }
)
"""Functions of several operations that a mode sees as one, so that autocast finds none of them."""
_KNOWN = ("aten", "prim", "prims", "profiler")
"""Namespaces whose operations are not made of others, apart from those above."""


def cannot_be_watched(function: Any, kwargs: Mapping[str, Any]) -> str | None:
    """Why a function of torch gives another result under a mode that sees its parts; None if it does not."""
    is_operation = isinstance(function, OpOverload | OpOverloadPacket)
    name = getattr(function.overloadpacket if isinstance(function, OpOverload) else function, "__name__", "")
    if "out" in kwargs and name in _LOSES_OUT:
        return f"PyTorch does not write the result of {name} while it is recorded"
    if torch._C._is_any_autocast_enabled():
        is_known = str(function).partition(".")[0] in _KNOWN if is_operation else True
        if name in _CASTS_WITHIN or not is_known:
            return f"autocast may cast what {name} is made of"
    return None
