"""From overloads that write to those that return: `add_.Tensor` and `add.out` both write what `add.Tensor` returns.

In: an overload. Out: its functional counterpart and the name of the argument that is written, found in the schemas
alone, so that it holds for every operator PyTorch has.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

UNLIKE = {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}
"""Overloads that change a shape and not its elements, or draw random numbers: nothing is returned in their place."""


@cache
def functional_form(overload: OpOverload) -> tuple[OpOverload, str] | None:
    """The overload whose result is written, and the one argument it is written into; None if there is none.

    The caller sees to it that the result gets the shape and dtype of what is written: both are those of the argument.
    """
    schema = overload._schema
    written = [argument for argument in schema.arguments if _is_written(argument)]
    if len(written) != 1 or overload.namespace != "aten" or len(schema.returns) != 1:
        return None
    if UNLIKE & set(overload.tags):
        return None
    name = str(overload.overloadpacket).removeprefix("aten.")
    if name.endswith("_") and not name.endswith("__") and written[0].name == "self":
        base, kept = name[:-1], list(schema.arguments)
    elif name.startswith("__i") and name.endswith("__"):
        base, kept = f"__{name[3:]}", list(schema.arguments)
    elif written[0].is_out:
        base, kept = name, [argument for argument in schema.arguments if not argument.is_out]
    else:
        return None
    found = _functional_overload(base, overload._overloadname, kept)
    return None if found is None else (found, written[0].name)


def _functional_overload(base: str, preferred: str, arguments: list[Any]) -> OpOverload | None:
    """The overload of a name that takes these arguments and writes nothing; one of the same name comes first."""
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return None
    names = sorted(packet.overloads(), key=lambda name: name != preferred)
    wanted = [_described(argument) for argument in arguments]
    for name in names:
        candidate = getattr(packet, name)
        schema = candidate._schema
        if any(_is_written(argument) for argument in schema.arguments) or len(schema.returns) != 1:
            continue
        if [_described(argument) for argument in schema.arguments] == wanted:
            return candidate
    return None


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _described(argument: Any) -> tuple[str, str, bool, str]:
    default = repr(argument.default_value) if argument.has_default_value() else ""
    return argument.name, str(argument.type), argument.kwarg_only, default
