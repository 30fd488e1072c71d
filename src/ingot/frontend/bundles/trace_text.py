"""The text of a trace in a bundle, which `trace_parser` reads back.

    trace := "trace" "{" line* "return" value "}"
    line  := value "=" "argument" ":" type
           | value "=" "tensor" string ":" type                     a weight, by its name
           | "assume" "{" size "}" "in" integer ".." integer         what an open size may be
           | "assume" "{" size "}" "is a multiple of" integer
           | value "=" operator "(" values ")" ":" types             one operation, and what it gives
    type  := dtype "[" (integer | "{" size "}")* "]" ["strides" "[" integers "]"] ["on" device]
    value := "%" integer | None | True | False | number | string | "torch." name | "device(" string ")"
           | "{" size "}" | "[" values "]" | "(" values ")"

Values have the numbers of the trace. Where an operation returns a number beside tensors stands `_`.
A size is written as graphs write it (docs/ir.md).
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from ingot.base.errors import UnsupportedError
from ingot.base.sizes import SizeExpression
from ingot.frontend.bundles.stored_trace import StoredArgument, StoredOperation, StoredTrace, StoredType, StoredWeight
from ingot.frontend.jit.trace.trace import TraceValue

DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.bool, torch.complex64, torch.complex128),
    )
}
CONSTANTS: dict[str, Any] = {
    **DTYPES,
    **{str(layout): layout for layout in (torch.strided,)},
    **{
        str(one): one
        for one in (
            *(torch.contiguous_format, torch.preserve_format),
            *(torch.channels_last, torch.channels_last_3d),
        )
    },
}
"""What `torch.` names stand for: dtypes, layouts and memory formats."""


def trace_text(trace: StoredTrace) -> str:
    """A trace as text."""
    lines = [_leaf(leaf) for leaf in (*trace.arguments, *trace.weights)]
    for one in trace.ranges:
        lines.append(f"assume {{{one.size}}} in {one.lowest} .. {one.highest}")
    lines += [f"assume {{{name}}} is a multiple of {divisor}" for name, divisor in trace.divisors]
    lines += [_operation(operation) for operation in trace.operations]
    lines.append(f"return {value_text(list(trace.results))}")
    return "\n".join(["trace {", *(f"  {line}" for line in lines), "}", ""])


def _leaf(leaf: StoredArgument | StoredWeight) -> str:
    source = "argument" if isinstance(leaf, StoredArgument) else f"tensor {json.dumps(leaf.name)}"
    return f"%{leaf.value.index} = {source}: {type_text(leaf.type)}"


def _operation(operation: StoredOperation) -> str:
    given = [value_text(value) for value in operation.arguments]
    given += [f"{name}={value_text(value)}" for name, value in operation.keywords.items()]
    types = ", ".join(map(type_text, operation.types))
    call = f"{_results_text(operation.results)} = {operation.target}({', '.join(given)})"
    return f"{call}: {types}" if types else call


def _results_text(results: Any) -> str:
    if isinstance(results, list | tuple):
        inner = ", ".join(map(_results_text, results))
        return f"[{inner}]" if isinstance(results, list) else f"({inner})"
    return f"%{results.index}" if isinstance(results, TraceValue) else "_"


def type_text(type_: StoredType) -> str:
    """A tensor's type as text."""
    sizes = ", ".join(str(size) if isinstance(size, int) else f"{{{size}}}" for size in type_.sizes)
    strides = "" if type_.strides is None else f" strides [{', '.join(map(str, type_.strides))}]"
    place = "" if type_.device.type == "cpu" else f" on {json.dumps(str(type_.device))}"
    return f"{str(type_.dtype).removeprefix('torch.')}[{sizes}]{strides}{place}"


def value_text(value: Any) -> str:
    """An argument of an operation, or a result, as text."""
    if isinstance(value, TraceValue):
        return f"%{value.index}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))})"
    if value is None or type(value) in (bool, int):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else str(value)
    if type(value) is str:
        return json.dumps(value)
    if isinstance(value, SizeExpression):
        return f"{{{value}}}"
    if isinstance(value, torch.device):
        return f"device({json.dumps(str(value))})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format) and str(value) in CONSTANTS:
        return str(value)
    raise UnsupportedError(
        f"a bundle cannot hold {value!r}, a {type(value).__name__}; bundles hold tensors and numbers"
    )
