"""Library calls: finding `torch.ops` functions by name, and what may be called.

Only names inside `torch.ops` resolve, so a graph read from a file can name PyTorch operators and nothing else.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch

from ingot.base.errors import UnsupportedError


@cache
def find_library_function(target: str) -> Any:
    """The overload `namespace.operator.overload` of torch.ops."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){2}", target):
        raise UnsupportedError(f"{target!r} is no library call; write it like 'aten.mm.default'")
    namespace, operator, overload = target.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    function = getattr(packet, overload, None)
    if not isinstance(function, torch._ops.OpOverload):
        raise UnsupportedError(f"torch.ops has no {target}")
    return function


@cache
def check_library_call(target: str) -> bool:
    """Refuse calls a graph cannot hold; tells whether the call draws random numbers."""
    function = find_library_function(target)
    if function._schema.is_mutable:
        raise UnsupportedError(f"{target} writes into its arguments; a graph holds functional calls only")
    return torch.Tag.nondeterministic_seeded in function.tags
