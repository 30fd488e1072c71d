"""The syntax tree that is found for a function is the one that it was compiled from, or none is found."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import linecache
from pathlib import Path
from typing import Any

import pytest

from ingot.frontend.jit.proof.walk.source import dataclass_initialiser, source_of

# fmt: off
PAIR = (lambda x: x + 1, lambda x: x + 2); NESTED = lambda x: (lambda y: x * y)  # noqa: E702
# fmt: on
CALLS = [
    functools.partial(
        lambda x, y: x - y,
        2,
    ),
]


class Outer:
    class Inner:
        def method(self, x: Any) -> Any:
            return self.__hidden + x  # type: ignore[attr-defined]

    @functools.lru_cache  # noqa: B019
    def cached(
        self,
        x: Any,
    ) -> Any:
        text = """
not further in
"""
        return (x, text)


def outer(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return x + y

    return inner


def _text(function: Any) -> str:
    found = source_of(function)
    assert found is not None
    body = found.node.body
    return ast.unparse(body if isinstance(body, ast.expr) else body[-1])


def test_lambdas_of_one_line_are_told_apart():
    assert [_text(function) for function in PAIR] == ["x + 1", "x + 2"]
    assert _text(NESTED) == "lambda y: x * y" and _text(NESTED(2)) == "x * y"
    assert _text(CALLS[0].func) == "x - y"


def test_methods_and_nested_functions():
    method = source_of(Outer.Inner.method)  # type: ignore[arg-type]
    assert method is not None and method.class_name == "Inner"
    assert _text(Outer.cached.__wrapped__) == "return (x, text)"
    assert _text(outer(1)) == "return x + y"


def test_every_function_of_a_file_is_found():
    for function in vars(ast).values():
        if hasattr(function, "__code__") and function.__code__.co_filename == ast.__file__:
            assert source_of(function) is not None, function


@pytest.mark.parametrize("text", ["def function(x):\n    return x + 2\n", "", "def function(x:\n", "x = 1\n" * 3])
def test_a_file_that_has_changed_is_not_taken_for_its_code(tmp_path: Path, text: str):
    file = tmp_path / "changing.py"
    file.write_text("def function(x):\n    return x + 1\n")
    specification = importlib.util.spec_from_file_location("changing", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    file.write_text(text)
    linecache.checkcache(str(file))
    assert source_of(module.function) is None


@dataclasses.dataclass
class Plain:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    c: int = dataclasses.field(default=3, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 2.0

    def __post_init__(self) -> None:
        pass


class Handwritten:
    __dataclass_fields__: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, a: int):
        self.a = a + 1


def test_initialisers_of_dataclasses_are_written_again():
    for cls in (Plain, Frozen):
        found = dataclass_initialiser(cls, cls.__init__)  # type: ignore[arg-type]
        assert found is not None and isinstance(found.node, ast.FunctionDef)
    found = dataclass_initialiser(Frozen, Frozen.__init__)  # type: ignore[arg-type]
    assert found is not None and "__post_init__" in ast.unparse(found.node)
    assert dataclass_initialiser(Handwritten, Handwritten.__init__) is None  # type: ignore[arg-type]
    assert dataclass_initialiser(Plain, Frozen.__init__) is None  # type: ignore[arg-type]
