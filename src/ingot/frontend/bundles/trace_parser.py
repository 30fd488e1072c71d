"""Text back to a stored trace, strictly: the grammar is in `trace_text`.

In: text from a file that anyone may have written. Out: a trace whose operators exist and are admitted, whose arguments
fit their schemas, and whose values are defined before they are used; everything else is a BundleError that names the
line. Nothing is evaluated: names are looked up in tables of this package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import BundleError, IngotError
from ingot.base.sizes import Size
from ingot.frontend.bundles.admitted_operators import admitted_operator, check_arguments
from ingot.frontend.bundles.stored_trace import StoredArgument, StoredOperation, StoredTrace, StoredType, StoredWeight
from ingot.frontend.bundles.trace_text import CONSTANTS, DTYPES
from ingot.frontend.jit.cache.generalisation import SizeRange
from ingot.frontend.jit.trace.trace import TraceValue, all_of, values_in
from ingot.ir.parser import parse_size

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<value>%[0-9]+)
      | (?P<number>-?(?:[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+|[0-9]+|inf\b|nan\b))
      | (?P<operator>aten\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+)
      | (?P<constant>torch\.[a-z0-9_]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<size>\{[^{}"]*\})
      | (?P<mark>\.\.|[()\[\],:=])
    )""",
    re.VERBOSE,
)
_MOST_DIGITS = 19
"""Of whole numbers: 64 bits."""
_DEEPEST = 16
"""How deeply lists may be nested."""
_MOST_DIMENSIONS = 64
_MOST_VALUES = 1_000_000
_DEVICE = re.compile(r"(cpu|cuda)(:[0-9]{1,3})?")


def parse_trace(text: str) -> StoredTrace:
    """The trace that a text describes."""
    lines = text.splitlines()
    if len(lines) < 3 or lines[0] != "trace {" or lines[-1] != "}":
        raise BundleError("the text of a trace begins with a line 'trace {' and ends with a line '}'")
    reading = _Reading()
    for number, line in enumerate(lines[1:-1], 2):
        try:
            reading.line(_Line(line))
        except (IngotError, ValueError, OverflowError, RecursionError) as error:
            raise BundleError(f"line {number} of a trace: {error}\n  {line.strip()[:200]}") from error
    return reading.finish()


def parse_value(text: str) -> Any:
    """A plain value that a text describes: a number, a text, None, a dtype or a device, or a list of such."""
    line = _Line(text)
    value = line.value(0)
    line.end()
    if values_in(value):
        raise BundleError(f"{text[:200]} is no plain value")
    return value


class _Line:
    """One line, read from left to right."""

    def __init__(self, text: str):
        self.tokens: list[tuple[str, str]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise BundleError(f"{text[position : position + 20].strip()!r} means nothing here")
            self.tokens.append((match.lastgroup, match.group(match.lastgroup)))
            position = match.end()
        self.tokens.append(("end", "the end of the line"))
        self.position = 0

    def accept(self, text: str) -> bool:
        is_found = self.tokens[self.position][1] == text and self.tokens[self.position][0] != "string"
        self.position += is_found
        return is_found

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                raise BundleError(f"expected {text!r}, found {self.tokens[self.position][1][:40]!r}")

    def take(self, kind: str) -> str:
        found, text = self.tokens[self.position]
        if found != kind:
            raise BundleError(f"expected a {kind}, found {text[:40]!r}")
        self.position += 1
        return text

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.position]

    def end(self) -> None:
        self.take("end")

    def several(self, closing: str, element: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(element())
        return found

    # --- values -------------------------------------------------------------------------------------------------------

    def whole_number(self) -> int:
        text = self.take("number")
        if not re.fullmatch(rf"-?[0-9]{{1,{_MOST_DIGITS}}}", text):
            raise BundleError(f"{text[:40]} is no whole number of 64 bits")
        return int(text)

    def register(self) -> TraceValue:
        text = self.take("value")
        if len(text) > _MOST_DIGITS or int(text[1:]) >= _MOST_VALUES:
            raise BundleError(f"{text[:40]} is too large for the number of a value")
        return TraceValue(int(text[1:]))

    def string(self) -> str:
        return json.loads(self.take("string"))

    def device(self) -> torch.device:
        name = self.string()
        if _DEVICE.fullmatch(name) is None:
            raise BundleError(f"{name[:40]!r} is no device that bundles are for")
        return torch.device(name)

    def size(self) -> Size:
        return parse_size(self.take("size")[1:-1])

    def value(self, depth: int) -> Any:
        kind, text = self.peek()
        if depth > _DEEPEST:
            raise BundleError("lists are nested too deeply")
        if kind == "value":
            return self.register()
        if kind == "string":
            return self.string()
        if kind == "size":
            return self.size()
        if kind == "number":
            is_whole = re.fullmatch(r"-?[0-9]+", text) is not None
            return self.whole_number() if is_whole else float(self.take("number"))
        if kind == "constant":
            if text not in CONSTANTS:
                raise BundleError(f"{text[:40]} is no dtype, layout or memory format that a bundle may name")
            return CONSTANTS[self.take("constant")]
        for word, meaning in (("None", None), ("True", True), ("False", False)):
            if self.accept(word):
                return meaning
        if self.accept("device"):
            self.expect("(")
            device = self.device()
            self.expect(")")
            return device
        return self.sequence(lambda: self.value(depth + 1))

    def sequence(self, element: Callable[[], Any]) -> list[Any] | tuple[Any, ...]:
        if self.accept("["):
            return self.several("]", element)
        self.expect("(")
        return tuple(self.several(")", element))

    def results(self, depth: int = 0) -> Any:
        """What an operation's results are called."""
        if depth > _DEEPEST:
            raise BundleError("lists are nested too deeply")
        if self.accept("_"):
            return None
        if self.peek()[0] == "value":
            return self.register()
        return self.sequence(lambda: self.results(depth + 1))

    def type(self) -> StoredType:
        name = f"torch.{self.take('name')}"
        if name not in DTYPES:
            raise BundleError(f"{name[:40]} is no dtype that a bundle may hold")
        self.expect("[")
        shape = tuple(self.several("]", self.plain_size))
        if len(shape) > _MOST_DIMENSIONS or any(isinstance(size, int) and size < 0 for size in shape):
            raise BundleError("a tensor has at most 64 axes, and no size below 0")
        strides = None
        if self.accept("strides"):
            self.expect("[")
            strides = tuple(self.several("]", self.whole_number))
            if len(strides) != len(shape) or any(one < 0 for one in strides):
                raise BundleError("a tensor has as many strides as sizes, and none below 0")
        device = self.device() if self.accept("on") else torch.device("cpu")
        return StoredType(DTYPES[name], shape, strides, device)

    def plain_size(self) -> Size:
        return self.size() if self.peek()[0] == "size" else self.whole_number()


@dataclass(slots=True)
class _Reading:
    """A trace in the making."""

    arguments: list[StoredArgument] = field(default_factory=list)
    weights: list[StoredWeight] = field(default_factory=list)
    operations: list[StoredOperation] = field(default_factory=list)
    ranges: list[SizeRange] = field(default_factory=list)
    divisors: list[tuple[str, int]] = field(default_factory=list)
    results: tuple[Any, ...] | None = None
    defined: set[TraceValue] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)

    def line(self, line: _Line) -> None:
        if self.results is not None:
            raise BundleError("nothing comes after the line that returns")
        if line.accept("return"):
            found = line.value(0)
            if not isinstance(found, list):
                raise BundleError("a trace returns a list")
            self._require_defined(values_in(found))
            self.results = tuple(found)
        elif line.accept("assume"):
            self._assumption(line)
        else:
            self._definition(line)
        line.end()

    def _assumption(self, line: _Line) -> None:
        size = line.size()
        self._require_symbols([size])
        if line.accept("in"):
            lowest = line.whole_number()
            line.expect("..")
            self.ranges.append(SizeRange(size, lowest, line.whole_number()))
            return
        line.expect("is", "a", "multiple", "of")
        divisor = line.whole_number()
        if divisor < 1 or not sizes.is_symbol(size):
            raise BundleError("an open size is a multiple of a number that is at least 1")
        self.divisors.append((str(size), divisor))

    def _definition(self, line: _Line) -> None:
        results = line.results()
        line.expect("=")
        if line.accept("argument"):
            line.expect(":")
            type_ = line.type()
            if any(not isinstance(size, int) and not sizes.is_symbol(size) for size in type_.sizes):
                raise BundleError("a size of an argument is a number or a symbol")
            self.symbols |= {str(size) for size in type_.sizes if not isinstance(size, int)}
            self.arguments.append(StoredArgument(self._new(results), type_))
        elif line.accept("tensor"):
            name = line.string()
            line.expect(":")
            type_ = line.type()
            if any(not isinstance(size, int) for size in type_.sizes):
                raise BundleError("a tensor of a bundle has no open sizes")
            self.weights.append(StoredWeight(self._new(results), name, type_))
        else:
            self._operation(results, line)

    def _operation(self, results: Any, line: _Line) -> None:
        target = admitted_operator(line.take("operator"))
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}

        def argument() -> None:
            kind, text = line.peek()
            if kind == "name" and line.tokens[line.position + 1] == ("mark", "="):
                line.take("name")
                line.expect("=")
                if text in keywords:
                    raise BundleError(f"{text!r} is given twice")
                keywords[text] = line.value(0)
            elif keywords:
                raise BundleError("arguments by position come before those by name")
            else:
                arguments.append(line.value(0))

        line.expect("(")
        line.several(")", argument)
        self._require_defined(values_in((arguments, keywords)))
        self._require_symbols(all_of(sizes.SizeExpression, (arguments, keywords)))
        check_arguments(target, arguments, keywords)
        made = values_in(results)
        types = [line.type()] if line.accept(":") else []
        while line.accept(","):
            types.append(line.type())
        if len(types) != len(made):
            raise BundleError(f"{target} gives {len(made)} tensors here, but {len(types)} types")
        self._require_symbols([size for type_ in types for size in type_.sizes])
        self.defined.update(made)
        self.operations.append(StoredOperation(target, tuple(arguments), keywords, results, tuple(types)))

    def _new(self, value: Any) -> TraceValue:
        if not isinstance(value, TraceValue) or value in self.defined:
            raise BundleError("an argument or a tensor needs a number of its own")
        if self.operations or self.ranges or self.divisors:
            raise BundleError("arguments and tensors come before everything else")
        self.defined.add(value)
        return value

    def _require_defined(self, values: Sequence[TraceValue]) -> None:
        for value in values:
            if value not in self.defined:
                raise BundleError(f"{value!r} is not defined before this line")

    def _require_symbols(self, found: Sequence[Size]) -> None:
        for size in found:
            unknown = sizes.symbols(size) - self.symbols
            if unknown:
                raise BundleError(f"no argument has the size {min(unknown)}")

    def finish(self) -> StoredTrace:
        if self.results is None:
            raise BundleError("a trace has a last line that returns")
        ordered = (tuple(self.arguments), tuple(self.weights), tuple(self.operations))
        return StoredTrace(*ordered, self.results, tuple(self.ranges), tuple(self.divisors))
