"""Text back to graphs. The grammar is in docs/ir.md; every error quotes the line and points at the column.

Types are worked out anew from the operators' own rules, and a text that claims other types is refused, so a parsed
graph is as well-formed as a built one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ingot.base import sizes
from ingot.base.dtypes import DataType, from_text
from ingot.base.errors import IngotError, ParseError
from ingot.base.numbers import convert_number
from ingot.base.sizes import Size
from ingot.base.types import OperandSlot, ScalarType, TensorType
from ingot.ir.attribute_rules import check_attributes
from ingot.ir.graph import Graph, Output
from ingot.ir.library import check_library_call
from ingot.ir.node import Assumption, Node, make
from ingot.ir.verifier import verify
from ingot.ops import Op, lookup
from ingot.ops.attributes import Attributes, ConstantAttributes, InputAttributes, LibraryAttributes

Result = TypeVar("Result")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment>\#[^\n]*)
      | (?P<number>-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|\d+|inf\b|nan\b))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<value>%\d+)
      | (?P<slot>\$\d+)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<mark>->|==|[()\[\]{},:=*+-])
    )""",
    re.VERBOSE,
)

_WORDS = frozenset({"none", "true", "false", "nan", "inf", "assume", "return", "in", "strides", "graph"})


def is_reserved(name: str) -> bool:
    """Whether a word means something in the text of a graph and cannot name a size."""
    return name in _WORDS or name in sizes.FUNCTIONS or from_text(name) is not None


def parse(text: str) -> Graph:
    """The graph a text describes."""
    parser = _Parser(text)
    try:
        graph = parser.graph()
    except RecursionError:
        raise parser.error("brackets are nested too deeply") from None
    verify(graph)
    return graph


def parse_size(text: str) -> Size:
    """The size a text such as `2*rows + 1` describes."""
    parser = _Parser(text)
    size = parser.size()
    parser.take("end")
    return size


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens = list(self._tokenize())
        self.position = 0
        self.values: dict[str, Node] = {}

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _tokenize(self):
        position = 0
        end = len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                start = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                raise self._error_at(start, f"{self.text[start]!r} means nothing here")
            kind = match.lastgroup
            assert kind is not None
            if kind != "comment":
                yield _Token(kind, match.group(kind), match.start(kind))
            position = match.end()
        yield _Token("end", "end of text", end)

    @property
    def current(self) -> _Token:
        return self.tokens[self.position]

    def peek(self, text: str) -> bool:
        return self.current.text == text

    def accept(self, text: str) -> bool:
        found = self.peek(text)
        self.position += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.current.text!r}")

    def take(self, kind: str) -> str:
        if self.current.kind != kind:
            raise self.error(f"expected a {kind}, found {self.current.text!r}")
        self.position += 1
        return self.tokens[self.position - 1].text

    def several(self, closing: str, element: Callable[[], Any]) -> list[Any]:
        """Elements separated by commas, up to and including the closing mark."""
        found: list[Any] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(element())
        return found

    def error(self, message: str) -> ParseError:
        return self._error_at(self.current.position, message)

    def _error_at(self, position: int, message: str) -> ParseError:
        before = self.text[:position]
        line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1)
        quoted = self.text.splitlines()[line - 1] if self.text.strip() else ""
        return ParseError(f"line {line}: {message}\n  {quoted}\n  {' ' * column}^")

    # --- the graph ----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        self.expect("graph")
        self.expect("(")
        inputs = self.several(")", self.input)
        self.expect("{")
        assumptions: list[Assumption] = []
        while self.accept("assume"):
            assumptions.append(self.assumption())
        nodes: list[Node] = []
        while not self.accept("return"):
            nodes.append(self.operation())
        outputs = [self.output()]
        while self.accept(","):
            outputs.append(self.output())
        self.expect("}")
        self.take("end")
        return Graph(tuple(inputs), tuple(nodes), tuple(outputs), tuple(assumptions))

    def input(self) -> Node:
        start = self.position
        name = self.take("value")
        self.expect(":")
        type_ = self.type()
        shape = type_.shape if isinstance(type_, TensorType) else None
        attributes = InputAttributes(len(self.values), type_.dtype, shape)
        node = self.checked(start, lambda: self.made(lookup("input"), (), attributes))
        return self.define(name, node)

    def assumption(self) -> Assumption:
        left = self.size()
        self.expect("==")
        right = self.size()
        self.expect("in")
        words = [self.take("name")]
        while self.current.kind == "name" and self.current.text not in ("assume", "return"):
            words.append(self.take("name"))
        return Assumption(left, right, " ".join(words))

    def operation(self) -> Node:
        name = self.take("value")
        self.expect("=")
        start = self.position
        operator = self.take("name")
        self.expect("(")
        operands: list[Node] = []
        attributes: dict[str, Any] = {}

        def argument() -> None:
            if self.current.kind == "name" and self.tokens[self.position + 1].text == "=":
                key = self.take("name")
                self.expect("=")
                attributes[key] = self.attribute()
            else:
                operands.append(self.operand())

        self.several(")", argument)
        self.expect(":")
        written_from = self.current.position
        node = self.checked(start, lambda: self.node(operator, operands, attributes))
        self.skip_type()
        written = re.sub(r"\s+", "", self.text[written_from : self.current.position].split("#")[0])
        if written != re.sub(r"\s+", "", str(node.type)):
            raise self._error_at(written_from, f"{operator} gives {node.type} here, not {written}")
        return self.define(name, node)

    def node(self, operator: str, operands: list[Node], values: dict[str, Any]) -> Node:
        op = lookup(operator)
        if op.is_fused_approximation:
            raise ParseError(f"{operator} stands in kernels alone; no graph holds it")
        if op.infer is None:
            raise ParseError(f"{operator} is a composite: graphs hold the operators it is made of")
        expected = {field.name for field in fields(op.attributes)}
        if expected != set(values):
            raise ParseError(f"{operator} has the attributes {sorted(expected)}, not {sorted(values)}")
        attributes = op.attributes(**values)
        if isinstance(attributes, LibraryAttributes):
            check_library_call(attributes.target)
        return self.made(op, operands, attributes)

    def made(self, op: Op, operands: Sequence[Node], attributes: Attributes) -> Node:
        check_attributes(op, [operand.type for operand in operands], attributes)
        return make(op, operands, attributes)

    def checked(self, start: int, compute: Callable[[], Result]) -> Result:
        """Run a type rule; its error becomes one at the operation's place."""
        try:
            return compute()
        except (IngotError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
            raise self._error_at(self.tokens[start].position, str(error)) from error

    def define(self, name: str, node: Node) -> Node:
        if name in self.values:
            raise self.error(f"{name} is defined twice")
        self.values[name] = node
        return node

    def output(self) -> Output:
        node = self.operand()
        alias = self.alias() if self.accept("->") else None
        order = None
        if self.accept("strides"):
            self.expect("[")
            order = tuple(self.several("]", self.whole_number))
        return Output(node, alias, order)

    def alias(self) -> int:
        node = self.operand()
        if not isinstance(node.attributes, InputAttributes):
            raise self.error("only an input can be written into")
        return node.attributes.index

    def operand(self) -> Node:
        if self.current.kind == "value":
            if self.current.text not in self.values:
                raise self.error(f"{self.current.text} is not defined before this line")
            return self.values[self.take("value")]
        start = self.position
        value = self.attribute()
        self.expect(":")
        dtype = from_text(self.take("name"))
        if dtype is None or not isinstance(value, bool | int | float):
            raise self.error("a constant is a number and its type, like 1.0:f32")
        held = self.checked(start, lambda: convert_number(value, dtype))
        return make(lookup("constant"), (), ConstantAttributes(held, dtype))

    # --- types, sizes, attributes -------------------------------------------------------------------------------------

    def type(self) -> TensorType | ScalarType:
        dtype = self.dtype()
        if self.accept("["):
            return TensorType(dtype, tuple(self.several("]", self.size)))
        return ScalarType(dtype)

    def skip_type(self) -> None:
        if self.accept("("):
            self.several(")", self.type)
        else:
            self.type()

    def dtype(self) -> DataType:
        dtype = from_text(self.current.text)
        if dtype is None:
            raise self.error(f"{self.current.text!r} is no data type")
        self.position += 1
        return dtype

    def attribute(self) -> Any:
        token = self.current
        if token.kind == "string":
            return self.checked(self.position, lambda: json.loads(self.take("string")))
        if token.kind == "slot":
            return OperandSlot(self.whole("slot", 1))
        if self.accept("["):
            return tuple(self.several("]", self.attribute))
        if token.text in ("none", "true", "false"):
            self.position += 1
            return {"none": None, "true": True, "false": False}[token.text]
        if token.kind == "number" and not re.fullmatch(r"-?\d+", token.text):
            return float(self.take("number"))
        if from_text(token.text) is not None:
            type_ = self.type()
            return type_ if isinstance(type_, TensorType) else type_.dtype
        return self.size()

    def size(self) -> Size:
        """A sum of products; the text of a canonical size, though any order is understood."""
        negative = self.accept("-")
        total = self.size_term()
        if negative:
            total = -total
        while self.peek("+") or self.peek("-") or self._glued_minus():
            if self._glued_minus():
                total = total + self.size_term()
            else:
                sign = 1 if self.accept("+") else -1
                self.accept("-")
                total = total + sign * self.size_term()
        return total

    def _glued_minus(self) -> bool:
        """Whether a number follows whose sign belongs to the sum, as in `s0 -1`."""
        return self.current.kind == "number" and self.current.text.startswith("-")

    def size_term(self) -> Size:
        value = self.size_factor()
        while self.accept("*"):
            value = value * self.size_factor()
        return value

    def size_factor(self) -> Size:
        if self.current.kind == "number":
            return self.whole_number()
        start = self.position
        name = self.take("name")
        if name not in sizes.FUNCTIONS:
            return sizes.symbol(name)
        self.expect("(")
        left = self.size()
        self.expect(",")
        right = self.size()
        self.expect(")")
        return self.checked(start, lambda: sizes.FUNCTIONS[name](left, right))

    def whole_number(self) -> int:
        return self.whole("number")

    def whole(self, kind: str, skipped: int = 0) -> int:
        """The whole number a token spells after its first characters."""
        if self.current.kind == kind and not re.fullmatch(r"-?[0-9]{1,19}", self.current.text[skipped:]):
            raise self.error("a whole number of at most 64 bits is needed here")
        return int(self.take(kind)[skipped:])
