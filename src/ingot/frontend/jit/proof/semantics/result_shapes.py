"""Shapes and dtypes of the results of common operations, without asking PyTorch.

In: an operation's name, and its arguments with tensors without memory. Out: such a tensor, or None where PyTorch is to
be asked: it imports its compiler for that, which takes about a second. What always holds: the answer is PyTorch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ingot.frontend.jit.proof.semantics.torch_names import words

Size = tuple[int, ...]

_LIKE_FIRST = words(
    """
    relu gelu silu mish tanh sigmoid exp expm1 log log1p log2 sqrt rsqrt sin cos erf neg abs square softplus elu
    leaky_relu hardswish hardsigmoid layer_norm rms_norm batch_norm group_norm instance_norm dropout softmax
    log_softmax reciprocal positive pos floor ceil round trunc _transformer_encoder_layer_fwd
    """
)
"""Operations whose result is like their first argument, if that holds floating-point numbers."""
_ARITHMETIC = frozenset(["add", "sub", "mul", "iadd", "isub", "imul"])
_DIVISIONS = frozenset(["truediv", "div", "itruediv"])
_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


def result_of(name: str, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
    if not args:
        return None
    if name in _LIKE_FIRST and all(kwargs.get(key) is None for key in ("dtype", "out", "half_to_float")):
        return _like_first(name, args, kwargs)
    if name == "_grouped_mm":
        return _grouped(args, kwargs)
    if any(value is not None for key, value in kwargs.items() if key != "dim"):
        return None
    if name in ("cat", "stack"):
        return _joined(name, *args, **kwargs) if len(args) + len(kwargs) <= 2 else None
    if name == "linear" and not kwargs:
        return _linear(*args)
    if kwargs or len(tensors) == 0:
        return None
    if name in _ARITHMETIC or name in _DIVISIONS or name in _COMPARISONS:
        return _pointwise(name, args)
    if name == "where" and len(args) == 3:
        return _made(_broadcast(args), _dtype(args[1:]))
    return None


def _like_first(name: str, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    first = args[0]
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return None
    if name in ("softmax", "log_softmax") and len(args) + len(kwargs.keys() - {"dtype"}) != 2:
        return None
    if name == "batch_norm" and any(isinstance(one, torch.Tensor) and one.dtype != first.dtype for one in args):
        return None
    return _made(tuple(first.shape), first.dtype)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor | None:
    parts = [x, weight] if bias is None else [x, weight, bias]
    if weight.dim() != 2 or x.dim() == 0 or len({one.dtype for one in parts}) != 1:
        return None
    return _made((*x.shape[:-1], weight.shape[0]), x.dtype)


def _grouped(args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Groups of rows by a matrix each. Without memory PyTorch takes bfloat16 alone."""
    given = dict(zip(("mat_a", "mat_b", "offs"), args, strict=False))
    given |= {key: value for key, value in kwargs.items() if value is not None}
    rows, matrices = given.pop("mat_a", None), given.pop("mat_b", None)
    is_usual = isinstance(rows, torch.Tensor) and isinstance(matrices, torch.Tensor) and given.keys() <= {"offs"}
    if not is_usual or (rows.dim(), matrices.dim()) != (2, 3) or rows.dtype != matrices.dtype:
        return None
    return _made((rows.shape[0], matrices.shape[-1]), rows.dtype)


def _joined(name: str, tensors: Any, dim: Any = 0) -> torch.Tensor | None:
    """Tensors of one dtype that are concatenated or stacked; those without axes or elements are left to PyTorch."""
    parts: list[Any] = list(tensors) if isinstance(tensors, list | tuple) else []
    if not parts or type(dim) is not int:
        return None
    if not all(isinstance(one, torch.Tensor) and one.dim() and one.numel() for one in parts):
        return None
    first = parts[0]
    count = first.dim() + (name == "stack")
    if not -count <= dim < count or any(one.dtype != first.dtype or one.dim() != first.dim() for one in parts):
        return None
    shape, dim = [*first.shape], dim % count
    if name == "stack":
        shape.insert(dim, len(parts))
    else:
        shape[dim] = sum(one.shape[dim] for one in parts)
    return _made(tuple(shape), first.dtype)


def _pointwise(name: str, args: list[Any]) -> torch.Tensor | None:
    if len(args) != 2:
        return None
    dtype = _dtype(args)
    if name in _DIVISIONS and dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        return None
    if name.startswith("i") and dtype is not getattr(args[0], "dtype", None):
        return None
    return _made(_broadcast(args), torch.bool if name in _COMPARISONS and dtype is not None else dtype)


def _dtype(args: Sequence[Any]) -> torch.dtype | None:
    """The common dtype of two operands; None for operands that are not numbers or tensors."""
    if not all(isinstance(one, torch.Tensor) or type(one) in (int, float, bool) for one in args):
        return None
    if not any(isinstance(one, torch.Tensor) for one in args):
        return None
    return torch.result_type(*args)


def _broadcast(args: Sequence[Any]) -> Size | None:
    """The shape that operands are expanded to; None if they do not fit."""
    shapes = [tuple(one.shape)[::-1] for one in args if isinstance(one, torch.Tensor)]
    sizes = []
    for column in itertools.zip_longest(*shapes, fillvalue=1):
        others = {size for size in column if size != 1}
        if len(others) > 1:
            return None
        sizes.append(others.pop() if others else 1)
    return tuple(reversed(sizes))


def _made(shape: Size | None, dtype: torch.dtype | None) -> torch.Tensor | None:
    return None if shape is None or dtype is None else torch.empty(shape, dtype=dtype, device="meta")
