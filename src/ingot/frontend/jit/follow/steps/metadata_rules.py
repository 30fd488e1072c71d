"""What results of a call look like for operands of other sizes than those it was seen with.

In: a function, its arguments, what it did with other sizes, and its operands' metadata. Out: an outcome, or None where
the call has to be watched once more. A rule is used only where it gives the observed result for the observed sizes, for
operands of the same dtypes, devices and numbers of axes. Unusual calls, and calls that PyTorch would refuse, have no
rule. Results are row-major where operands are; other layouts have a rule only where all operands have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ingot.frontend.jit.follow.rules.roles import is_always_view, name_of
from ingot.frontend.jit.follow.rules.shape_rules import SHAPE_RULES, Shape, broadcast
from ingot.frontend.jit.follow.steps.step_tree import Metadata, Outcome, Wait
from ingot.runtime.native.abi.prototypes import row_major_strides

_ANY_LAYOUT = frozenset({"mm", "bmm", "matmul", "__matmul__"})
"""Functions whose results are row-major for operands of any layout."""


def foretell(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Outcome | None, metadata: tuple[Metadata, ...]
) -> Outcome | None:
    """What a call does, judged by what it did with operands of other sizes."""
    if known is None:
        return None
    if known.wait is Wait.NOW or known.wait is Wait.ALONE:
        return known
    if known.wait is Wait.SAME:
        is_as_seen = all(
            one[0] == two[0] and one[3] == two[3] for one, two in zip(known.operands, metadata, strict=True)
        )
        return known if is_as_seen and name_of(function) != "contiguous" else None
    if known.wait is Wait.VIEW:
        return known if is_always_view(function, args) else None
    if not _is_alike(known.operands, metadata) or _is_empty(known.operands) or _is_empty(metadata):
        return None  # PyTorch takes shortcuts for empty tensors, and checks less
    if known.wait is Wait.IN_PLACE:
        return _foretell_writing(known, metadata)
    if any(isinstance(value, torch.memory_format) for value in (*args, *kwargs.values())):
        return None
    name = name_of(function)
    if known.is_pointwise:
        return _foretell_elements(name, args, known, metadata)
    rule = SHAPE_RULES.get(name)
    return None if rule is None else _foretell_shapes(rule, name in _ANY_LAYOUT, args, kwargs, known, metadata)


def _is_alike(seen: Sequence[Metadata], given: Sequence[Metadata]) -> bool:
    """Whether operands differ in sizes alone."""
    return len(seen) == len(given) and all(
        one[0] is other[0] and len(one[1]) == len(other[1]) and one[3] == other[3]
        for one, other in zip(seen, given, strict=True)
    )


def _is_empty(operands: Sequence[Metadata]) -> bool:
    return any(0 in one[1] for one in operands)


def is_row_major(metadata: Metadata) -> bool:
    return metadata[2] == row_major_strides(tuple(metadata[1]))


def _with_results(known: Outcome, metadata: tuple[Metadata, ...], shapes: Sequence[Shape]) -> Outcome:
    results = tuple(
        (old[0], torch.Size(shape), row_major_strides(tuple(shape)), old[3])
        for old, shape in zip(known.results, shapes, strict=True)
    )
    return replace(known, results=results, operands=metadata)


# --- element by element -----------------------------------------------------------------------------------------------


def _foretell_writing(known: Outcome, metadata: tuple[Metadata, ...]) -> Outcome | None:
    """Writing in place: everything must fit into what is written."""
    first = metadata[0][1]
    is_fitting = broadcast([one[1] for one in metadata]) == tuple(first)
    if not known.is_pointwise or not is_fitting or not all(map(is_row_major, metadata)):
        return None
    return replace(known, operands=metadata)


def _foretell_elements(
    name: str, args: tuple[Any, ...], known: Outcome, metadata: tuple[Metadata, ...]
) -> Outcome | None:
    if len(known.results) != 1 or known.container is not None:
        return None
    if name == "contiguous":
        is_copied = isinstance(args[0], torch.Tensor) and not args[0].is_contiguous()
        return _with_results(known, metadata, [metadata[0][1]]) if is_copied and len(args) == 1 else None
    seen, given = _elements(known.operands), _elements(metadata)
    if seen is None or given is None or seen != known.results[0][1:3]:
        return None
    dtype, _, _, device = known.results[0]
    return replace(known, results=((dtype, torch.Size(given[0]), given[1], device),), operands=metadata)


def _elements(operands: Sequence[Metadata]) -> tuple[Shape, tuple[int, ...]] | None:
    """The shape and strides of what is computed element by element; None where there is no certain rule."""
    shape = broadcast([one[1] for one in operands])
    if shape is None:
        return None
    if all(map(is_row_major, operands)):
        return shape, row_major_strides(shape)
    layouts = {(tuple(one[1]), one[2]) for one in operands if len(one[1])}
    if len(layouts) != 1 or not _is_dense(*(only := next(iter(layouts)))):
        return None
    return only


def _is_dense(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether elements of more than one axis lie in memory without gaps and without overlap, in some order of axes."""
    if min(shape, default=0) < 2:
        return False  # strides of such axes mean nothing, and PyTorch makes up others
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride != expected:
            return False
        expected *= size
    return True


# --- by the shapes of operands ----------------------------------------------------------------------------------------


def _foretell_shapes(
    rule: Callable[..., Sequence[Shape] | None],
    takes_any_layout: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    known: Outcome,
    metadata: tuple[Metadata, ...],
) -> Outcome | None:
    if not takes_any_layout and not all(map(is_row_major, (*metadata, *known.operands))):
        return None
    if not all(map(is_row_major, known.results)):
        return None
    seen = rule([tuple(one[1]) for one in known.operands], args, kwargs)
    if seen is None or tuple(seen) != tuple(tuple(one[1]) for one in known.results):
        return None
    given = rule([tuple(one[1]) for one in metadata], args, kwargs)
    if given is None:
        return None
    return _with_results(known, metadata, given)
