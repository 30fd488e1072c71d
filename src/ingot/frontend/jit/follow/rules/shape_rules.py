"""Shapes of results, by the shapes of operands: PyTorch's rules for functions that are not computed per element.

In: the operands' shapes in the order of the arguments, and the arguments for those that are no tensors. Out: the shapes
of the results, or None where PyTorch would raise an error or the call is written in a way that no rule knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
Rule = Callable[[Sequence[Shape], tuple[Any, ...], Mapping[str, Any]], Sequence[Shape] | None]


def broadcast(shapes: Sequence[Sequence[int]]) -> Shape | None:
    """The shape of operands taken together; None if they do not fit."""
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for place in range(1, len(shape) + 1):
            if shape[-place] != 1:
                if result[-place] not in (1, shape[-place]):
                    return None
                result[-place] = shape[-place]
    return tuple(result)


def _same(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    return [shapes[0]] if len(shapes) == 1 else None


def _layer_norm(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """layer_norm(x, normalized_shape, weight, bias) and rms_norm: the last axes are fixed by the arguments."""
    normalized = kwargs.get("normalized_shape", args[1] if len(args) > 1 else None)
    if not isinstance(normalized, list | tuple) or not normalized:
        return None
    fixed = tuple(normalized)
    is_fitting = shapes[0][-len(fixed) :] == fixed and all(shape == fixed for shape in shapes[1:])
    return [shapes[0]] if is_fitting else None


def _option(name: str, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], default: Any) -> Any:
    return kwargs[name] if name in kwargs else args[place] if len(args) > place else default


def _axes(dim: Any, rank: int) -> set[int] | None:
    """The axes that an argument names; None where it names none that there is."""
    named = (dim,) if type(dim) is int else dim
    if not isinstance(named, list | tuple) or not all(type(axis) is int and -rank <= axis < rank for axis in named):
        return None
    return {axis % rank for axis in named} or set(range(rank))


def _reduction(count: int, needs_elements: bool) -> Rule:
    """f(x), f(x, dim), f(x, dim, keepdim), with as many results where `dim` is given, and one where it is not."""

    def rule(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
        if len(shapes) != 1 or "axis" in kwargs or "out" in kwargs or "keepdims" in kwargs:
            return None
        shape = shapes[0]
        dim, keeps = _option("dim", 1, args, kwargs, None), _option("keepdim", 2, args, kwargs, False)
        if type(keeps) is not bool or (needs_elements and 0 in shape):
            return None
        if dim is None:
            return [tuple(1 for _ in shape) if keeps else ()]
        axes = _axes(dim, len(shape))
        if axes is None or not shape:
            return None
        kept = [1 if axis in axes else size for axis, size in enumerate(shape) if keeps or axis not in axes]
        return [tuple(kept)] * count

    return rule


def _cat(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    dim, rank = _option("dim", 1, args, kwargs, 0), len(shapes[0])
    if type(dim) is not int or not -rank <= dim < rank or any(len(shape) != rank for shape in shapes):
        return None
    axis = dim % rank
    others = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(others) != 1:
        return None
    return [shapes[0][:axis] + (sum(shape[axis] for shape in shapes),) + shapes[0][axis + 1 :]]


def _stack(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    dim, rank = _option("dim", 1, args, kwargs, 0), len(shapes[0]) + 1
    if type(dim) is not int or not -rank <= dim < rank or len(set(shapes)) != 1:
        return None
    axis = dim % rank
    return [shapes[0][:axis] + (len(shapes),) + shapes[0][axis:]]


def _linear(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    x, weight, *bias = shapes
    is_fitting = len(x) >= 1 and len(weight) == 2 and x[-1] == weight[1] and bias in ([], [weight[:1]])
    return [(*x[:-1], weight[0])] if is_fitting else None


def _product(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """Matrices, and as many batches of them on both sides."""
    if len(shapes) != 2 or "out" in kwargs:
        return None
    left, right = shapes
    is_fitting = len(left) == len(right) >= 2 and left[:-2] == right[:-2] and left[-1] == right[-2]
    return [(*left[:-1], right[-1])] if is_fitting else None


def _added_product(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """addmm(bias, a, b), baddbmm(bias, a, b)"""
    if len(shapes) != 3:
        return None
    made = _product(shapes[1:], (), kwargs)
    return made if made is not None and broadcast([shapes[0], made[0]]) == made[0] else None


def _pair(value: Any) -> tuple[int, int] | None:
    if type(value) is int:
        return value, value
    values = tuple(value) if isinstance(value, list | tuple) else ()
    if len(values) == 1:
        values *= 2
    return values if len(values) == 2 and all(type(one) is int for one in values) else None  # type: ignore[return-value]


def _conv2d(shapes: Sequence[Shape], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """conv2d(x, weight, bias, stride, padding, dilation, groups)"""
    x, weight, *bias = shapes
    stride = _pair(_option("stride", 3, args, kwargs, 1))
    padding = _pair(_option("padding", 4, args, kwargs, 0))
    dilation = _pair(_option("dilation", 5, args, kwargs, 1))
    groups = _option("groups", 6, args, kwargs, 1)
    if stride is None or padding is None or dilation is None or type(groups) is not int:
        return None
    is_fitting = len(x) == len(weight) == 4 and x[1] == weight[1] * groups and weight[0] % groups == 0
    if not is_fitting or bias not in ([], [weight[:1]]):
        return None
    sizes = [
        (x[2 + axis] + 2 * padding[axis] - dilation[axis] * (weight[2 + axis] - 1) - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]
    return [(x[0], weight[0], *sizes)] if min(sizes) > 0 else None


SHAPE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("softmax", "log_softmax", "tril", "triu", "cumsum", "flip", "roll"), _same),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("sum", "mean", "prod", "any", "all", "logsumexp"), _reduction(1, needs_elements=False)),
    **dict.fromkeys(("amax", "amin", "argmax", "argmin"), _reduction(1, needs_elements=True)),
    **dict.fromkeys(("max", "min"), _reduction(2, needs_elements=True)),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    "linear": _linear,
    **dict.fromkeys(("mm", "bmm", "matmul", "__matmul__"), _product),
    **dict.fromkeys(("addmm", "baddbmm"), _added_product),
    "conv2d": _conv2d,
}
"""Rules by the name of the function that is called."""
