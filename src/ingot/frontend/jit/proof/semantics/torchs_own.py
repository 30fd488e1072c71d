"""Whether what PyTorch's Python functions call is PyTorch's own: users, and tools of theirs, may have put other things
in its place.

In: a function of PyTorch's. Out: a name that it looks up, itself or within others, and that holds something else.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain.place_guards import ABSENT
from ingot.frontend.jit.proof.semantics import torch_names
from ingot.frontend.jit.python_code.library_code import closed_over, is_librarys_own, names_in

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_METHODS = frozenset(name for cls in torch.Tensor.__mro__[:-1] for name in vars(cls) if not name.startswith("_"))
"""Names of what tensors have, which code may look up in them."""


def replaced_within(walker: Walker, function: types.FunctionType) -> str | None:
    """A name that a function of PyTorch's looks up, itself or within others that it calls, and that holds something
    which is not a library's own; None if there is none. Methods of tensors that it may call are guarded."""
    waiting, seen, methods = [function], {id(function)}, set[str]()
    while waiting:
        one = waiting.pop()
        methods |= names_in(one.__code__) & _METHODS
        for name, held in _looked_up(one):
            if id(held) in seen:
                continue
            seen.add(id(held))
            if not is_librarys_own(held):
                return name
            if type(held) is types.FunctionType:
                waiting.append(held)
    found = ((name, walker.type_attribute(torch.Tensor, name)) for name in sorted(methods))
    return next((name for name, held in found if held is not ABSENT and not is_librarys_own(held)), None)


def _looked_up(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names in a function's code, and what they stand for among its globals and in the namespaces of PyTorch's that are
    read as attributes; then what it closes over."""
    for name in names_in(function.__code__):
        for names in (function.__globals__, *torch_names.READ_BY_OPAQUE.values()):
            if name in names:
                yield name, names[name]
    for held in closed_over(function):
        yield function.__qualname__, held
