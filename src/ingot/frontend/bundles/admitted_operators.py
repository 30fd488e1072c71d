"""Which operators of PyTorch's a bundle may name, and with which arguments.

In: a name such as `aten.add.Tensor`, and arguments. Out: the operator, or a BundleError. Deny by default: only
operators of the namespace `aten` that exist, whose arguments are all of known types, and that reach for nothing but
tensors. What opens files, changes memory under a tensor or makes tensors that are not plain memory is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from ingot.base.errors import BundleError
from ingot.base.sizes import SizeExpression
from ingot.frontend.jit.trace.trace import TraceValue, tags_of

_NAME = re.compile(r"aten\.([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")
_DENIED = re.compile(
    r"""from_file | sparse | nested | quantize | _debug | _assert | _print | dlpack | pin_memory | record_stream
      | ^set_ | ^set$ | ^resize | ^_resize | _data$ | ^data$ | ^_version$ | ^requires_grad_$ | ^retain_grad$
      | ^backward$ | ^_backward | ^_make_ | ^_cudnn_init | ^_has_ | ^_use_ | _backward_hook
      | ^rename | ^refine_names | ^align_""",
    re.VERBOSE,
)
"""Parts of names of operators that do more than compute: files, foreign memory, other kinds of tensors, autograd."""
_TEXTS = frozenset(
    {
        *("norm", "reduce", "rounding_mode", "mode", "interpolation", "driver", "UPLO", "approximate", "ord", "side"),
        *("padding", "padding_side", "pad_mode", "equation", "indexing"),
    }
)
"""Names of arguments that are texts and only choose a way to compute."""


@cache
def admitted_operator(name: str) -> torch._ops.OpOverload:
    """The operator of this name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise BundleError(f"{name!r} is not the name of an operator that a bundle may use; those begin with 'aten.'")
    packet = getattr(torch.ops.aten, found[1], None) if not found[1].startswith("__") else None
    target = getattr(packet, found[2], None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
    if not isinstance(target, torch._ops.OpOverload):
        raise BundleError(f"this version of PyTorch ({torch.__version__}) has no operator {name}")
    if _DENIED.search(found[1]) is not None:
        raise BundleError(f"a bundle may not use {name}, which does more than compute with tensors")
    if torch.Tag.data_dependent_output in tags_of(target):
        raise BundleError(f"a bundle may not use {name}, which turns a tensor's value into a Python value")
    for argument in target._schema.arguments:
        if not _is_known(argument.real_type, argument.name):
            raise BundleError(f"a bundle may not use {name}, whose argument {argument.name!r} is a {argument.type}")
    return target


def check_arguments(target: torch._ops.OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit an operator's schema; tensors are TraceValues."""
    declared = target._schema.arguments
    positional = [argument for argument in declared if not argument.kwarg_only]
    if len(arguments) > len(positional):
        raise BundleError(f"{target} takes at most {len(positional)} arguments, not {len(arguments)}")
    given = dict(zip((argument.name for argument in positional), arguments, strict=False))
    unknown = [name for name in keywords if name in given or all(name != argument.name for argument in declared)]
    if unknown:
        raise BundleError(f"{target} takes no argument {unknown[0]!r} here")
    given |= keywords
    argument: Any
    for argument in declared:
        if argument.name not in given:
            if not argument.has_default_value():
                raise BundleError(f"{target} needs the argument {argument.name!r}")
        elif not _fits(argument.real_type, given[argument.name], argument.N):
            raise BundleError(
                f"{given[argument.name]!r} is no {argument.type}, which {target} takes for {argument.name!r}"
            )


_PLAIN: dict[str, tuple[type, ...]] = {
    "TensorType": (TraceValue, bool, int, float, SizeExpression),  # PyTorch takes a number for a tensor of one element
    "IntType": (int, SizeExpression),
    "SymIntType": (int, SizeExpression),
    "FloatType": (int, float),
    "NumberType": (bool, int, float, SizeExpression),
    "BoolType": (bool,),
    "StringType": (str,),
    "ScalarTypeType": (torch.dtype,),
    "LayoutType": (torch.layout,),
    "MemoryFormatType": (torch.memory_format,),
    "DeviceObjType": (torch.device,),
    "GeneratorType": (),
}
"""What stands for each type of a schema. A generator is always left out: random numbers come from PyTorch's own."""


def _is_known(kind: Any, name: str) -> bool:
    if kind.kind() in ("OptionalType", "ListType"):
        return _is_known(kind.getElementType(), name)
    return kind.kind() in _PLAIN and (kind.kind() != "StringType" or name in _TEXTS)


def _fits(kind: Any, value: Any, count: int | None) -> bool:
    name = kind.kind()
    if name == "OptionalType":
        return value is None or _fits(kind.getElementType(), value, count)
    if name == "ListType":
        element = kind.getElementType()
        if not isinstance(value, list | tuple):
            return count is not None and _fits(element, value, None)
        return all(_fits(element, one, None) for one in value)
    accepted = _PLAIN[name]
    return isinstance(value, accepted) and (not isinstance(value, bool) or bool in accepted)
