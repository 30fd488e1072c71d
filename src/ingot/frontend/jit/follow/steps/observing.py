"""Finding out what a call is made of: it runs once as PyTorch runs it, and its operators are noted.

In: a function of torch with arguments that are real tensors. Out: its result, and the `Outcome` that later calls with
such arguments have. A call that is not understood runs alone from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.frontend.jit.arguments.supported_tensors import refused_tensor
from ingot.frontend.jit.follow.rules.roles import (
    base_name,
    can_wait,
    gives_operand,
    is_always_view,
    is_view,
    name_of,
    views_by_layout,
)
from ingot.frontend.jit.follow.steps.step_tree import Outcome, Wait, metadata_of
from ingot.frontend.jit.trace.attachment import as_outside_of_modes
from ingot.frontend.jit.trace.refusals import cannot_be_watched
from ingot.frontend.jit.trace.trace import all_of, written_arguments

_COPIES, _EMPTY = ("clone", "_to_copy"), ("empty", "empty_strided")
ALONE, NOW = Outcome(Wait.ALONE), Outcome(Wait.NOW)


class OperatorObserver(TorchDispatchMode):
    """Notes every operator that a call is made of, with what it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[torch._ops.OpOverload, list[torch.Tensor], bool, bool]] = []
        """The operator, what it wrote, whether integers are involved, whether it drew random numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False keeps torch from importing its tracing compiler for the sake of this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with as_outside_of_modes():
            result = func(*args, **kwargs)
        if base_name(func) in _EMPTY and result.numel() == 0:  # workspace that a library does not need this time
            return result
        written = all_of(torch.Tensor, written_arguments(func, args, kwargs))
        tensors = all_of(torch.Tensor, (list(args), kwargs, result))
        is_of_integers = any(not tensor.is_floating_point() for tensor in tensors)
        self.seen.append((func, written, is_of_integers, _draws(func, args, kwargs)))
        return result


def _draws(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operator draws random numbers; attention does so only for dropout."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for position, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p", argument.default_value)
            return given != 0.0
    return True


def observe(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], operands: Sequence[torch.Tensor]
) -> tuple[Any, Outcome]:
    """Call a function; its result, and what such calls do. The operands are the tensors among its arguments."""
    if cannot_be_watched(function, kwargs) is not None or _counts_no_versions(function):
        return function(*args, **kwargs), ALONE
    before = [metadata_of(tensor) if _is_plain(tensor) else None for tensor in operands]
    with OperatorObserver() as operators:
        result = function(*args, **kwargs)
    if None in before or any(metadata_of(t) != m for t, m in zip(operands, before, strict=True)):
        return result, ALONE
    return result, _outcome(function, args, result, operands, operators.seen)


def _counts_no_versions(function: Any) -> bool:
    """Whether a function forgets to count versions of what it writes where a mode sees what it is made of."""
    name = name_of(function)
    return name.startswith(("_foreach_", "_fused_")) and name.endswith("_")


def _is_plain(tensor: torch.Tensor) -> bool:
    return refused_tensor(tensor) is None


def _outcome(function: Any, args: tuple[Any, ...], result: Any, operands: Sequence[torch.Tensor], seen: Any) -> Outcome:
    if not seen:
        gives_first = bool(args) and result is args[0] and gives_operand(name_of(function))
        return Outcome(Wait.SAME, operands=tuple(map(metadata_of, operands))) if gives_first else ALONE
    writes = [tensor for _, written, _, _ in seen for tensor in written]
    outer = {tensor.untyped_storage()._cdata for tensor in operands}
    writes_operands = any(tensor.untyped_storage()._cdata in outer for tensor in writes if _is_plain(tensor))
    if writes_operands:
        return _in_place(result, args, writes, operands, seen)
    if any(written and not _is_plain(written[0]) for _, written, _, _ in seen):
        return ALONE
    results, container = _results(result)
    if results is None:
        return NOW if _is_of_values(result) else ALONE
    if all(is_view(target) for target, _, _, _ in seen):
        is_certain = is_always_view(function, args) or views_by_layout(function)
        return Outcome(Wait.VIEW, (), container) if is_certain else NOW
    is_fresh = all(tensor.untyped_storage()._cdata not in outer for tensor in results)
    if not is_fresh or not _all_wait(seen) or not all(map(_is_whole, results)):
        return NOW
    return _made_of(seen, operands, Outcome(Wait.LATER, tuple(map(metadata_of, results)), container))


def _made_of(seen: Any, operands: Sequence[torch.Tensor], outcome: Outcome) -> Outcome:
    """The same outcome, with what its call was made of: rules for other sizes need to know."""
    targets = [target for target, _, _, _ in seen if not is_view(target)]
    return replace(
        outcome,
        operands=tuple(map(metadata_of, operands)),
        operators=tuple(map(base_name, targets)),
        is_pointwise=len(seen) == 1 and (torch.Tag.pointwise in targets[0].tags or base_name(targets[0]) in _COPIES),
    )


def _all_wait(seen: Any) -> bool:
    return all(is_view(target) or can_wait(target, is_of_integers, draws) for target, _, is_of_integers, draws in seen)


def _in_place(
    result: Any, args: tuple[Any, ...], writes: list[torch.Tensor], operands: Sequence[torch.Tensor], seen: Any
) -> Outcome:
    """An operation that writes its first argument and gives it back can wait, if it can be told from all others."""
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor):
        return ALONE
    is_plain = result is first and all(tensor is first for tensor in writes)
    if not is_plain or len(seen) != 1 or not _all_wait(seen) or base_name(seen[0][0]) == "copy":
        return ALONE
    storage = first.untyped_storage()._cdata
    is_apart = sum(tensor.untyped_storage()._cdata == storage for tensor in operands) == 1
    if not is_apart or not first.is_contiguous():
        return ALONE
    return _made_of(seen, operands, Outcome(Wait.IN_PLACE))


def _results(result: Any) -> tuple[list[torch.Tensor] | None, Any]:
    """The tensors that a call gives, and what holds them; None where there is anything else."""
    if isinstance(result, torch.Tensor):
        return ([result] if _is_ordinary(result) else None), None
    if isinstance(result, tuple | list) and result and all(isinstance(one, torch.Tensor) for one in result):
        return (list(result) if all(map(_is_ordinary, result)) else None), type(result)
    return None, None


def _is_of_values(result: Any) -> bool:
    """Whether a result is made of numbers and tensors: anything else, such as a numpy array, may show memory."""
    if isinstance(result, list | tuple):
        return all(map(_is_of_values, result))
    return result is None or isinstance(result, bool | int | float | complex | str | torch.dtype | torch.Tensor)


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and _is_plain(tensor) and not tensor.requires_grad


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor takes all of its memory, so that another one can be made like it."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    is_dense = tensor.numel() == 0 or extent == tensor.numel()
    return tensor.storage_offset() == 0 and is_dense
