"""Vector functions as functions of a module: written once in a process for each type, from then on only named.

What a kernel calls is inlined by the first pass over it. Writing a function anew wherever it is used would cost more
than the rest of the kernel: its text is kept, and so are the intrinsics that it needs declared beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, HostModule
from ingot.codegen.llvm.math.dsl.vocabulary import Bits, Lanes, Number

Emitter = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _FunctionDefinition:
    text: str
    intrinsics: tuple[tuple[str, ir.FunctionType], ...]


class _Written(ir.Function):
    """A function whose text is known."""

    __slots__ = ("_text",)

    def __init__(self, module: HostModule, kind: ir.FunctionType, name: str, text: str):
        super().__init__(module, kind, name)
        self._text = text

    @property
    def is_declaration(self) -> bool:
        return False

    def __str__(self) -> str:
        return self._text


def _full_name(function: Callable[..., Lanes], type: Any) -> str:
    is_vector = isinstance(type, ir.VectorType)
    return f"ingot_{function.__name__}_{f'{type.count}x{type.element}' if is_vector else type}"


def _lanes(builder: Any, value: Any) -> Lanes:
    lane = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    return (Bits if isinstance(lane, ir.IntType) else Number)(builder, value)


@cache
def _definition(function: Callable[..., Lanes], type: ir.Type, arity: int, host: Host) -> _FunctionDefinition:
    module = HostModule(host)
    defined = ir.Function(module, ir.FunctionType(type, [type] * arity), _full_name(function, type))
    defined.is_internal = True
    defined.attributes += " alwaysinline"
    builder: Any = ir.IRBuilder(defined)
    builder.ret(function(*(_lanes(builder, argument) for argument in defined.arguments)).value)
    others = [other for other in module.functions.values() if other is not defined]
    return _FunctionDefinition(str(defined), tuple((other.name, other.kind) for other in others))


def emitter(
    function: Callable[..., Lanes],
    on_gpu: Callable[..., Lanes] | None = None,
    approximate: Callable[..., Lanes] | None = None,
) -> Emitter:
    """A function of Numbers or Bits as one of LLVM values of one type, called in the block a builder is at.

    Where given, `on_gpu` takes its place in single precision for processors with approximate instructions, and
    `approximate` for those that are asked for no more.
    """

    def best(type: Any, host: Host) -> Callable[..., Lanes]:
        lane = type.element if isinstance(type, ir.VectorType) else type
        if not isinstance(lane, ir.FloatType) or not host.has_approximations:
            return function
        return (host.approximates and approximate) or on_gpu or function

    def emit(builder: ir.IRBuilder, *operands: Any) -> Any:
        module: Any = builder.module
        type = operands[0].type
        found = module.functions.get(_full_name(function, type))
        if found is None:
            definition = _definition(best(type, module.host), type, len(operands), module.host)
            for name, kind in definition.intrinsics:
                if name not in module.functions:
                    ir.Function(module, kind, name)
            kind = ir.FunctionType(type, [type] * len(operands))
            found = _Written(module, kind, _full_name(function, type), definition.text)
        return builder.call(found, operands, is_pure=True)

    emit.__doc__ = function.__doc__
    emit.__name__ = function.__name__
    return emit
