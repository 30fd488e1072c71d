"""The namespace of operators: one method per record of the op table, generated when this module is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Protocol

from ingot.base.errors import UnknownOperatorError
from ingot.ops import Op, lookup, table


class _Caller(Protocol):
    def call(self, name: str, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> Any: ...


class Operators:
    """All operators of a definition, reached as `fd.ops.<name>(...)`.

    Arguments are handles of the same definition or Python numbers; results are handles. `axes` may also be written
    `dims` or `dim`, and `keepdim` `keep_dim`.
    """

    def __init__(self, owner: _Caller):
        self._owner = owner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Reached for operators added to the table since, and for names that are not there: `lookup` says what helps.
        if name.startswith("__"):
            raise AttributeError(name)
        op = lookup(name)
        if not op.is_public:
            raise UnknownOperatorError(f"{name} is part of every graph and is not called as an operator")
        return MethodType(_method(op), self)

    def __dir__(self) -> list[str]:
        return [op.name for op in table().values() if op.is_public]


def _method(op: Op) -> Callable[..., Any]:
    def method(self: Operators, *arguments: Any, **keywords: Any) -> Any:
        return self._owner.call(op.name, arguments, keywords)

    assert op.signature is not None
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(p.name, keyword, default=p.default) for p in op.signature.parameters]
    method.__name__ = op.name
    method.__qualname__ = f"Operators.{op.name}"
    method.__doc__ = op.summary
    method.__signature__ = inspect.Signature([inspect.Parameter("self", keyword), *parameters])  # type: ignore[attr-defined]
    return method


for _op in table().values():
    if _op.is_public:
        setattr(Operators, _op.name, _method(_op))
