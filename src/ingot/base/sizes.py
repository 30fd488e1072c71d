"""Sizes of tensors: an int, or an expression over symbols that are bound when a graph runs.

    size := integer | expression
    expression := integer polynomial over atoms, in one canonical order
    atom := symbol | floordiv(size, size) | min(size, size) | max(size, size)

Expressions are canonical: two that are equal as polynomials are equal objects with equal text, so `s0*s1` and `s1*s0`
name the same size. Arithmetic that comes out constant gives a plain int.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known only when the graph runs."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SizeCall:
    """A function of sizes that is no polynomial: floordiv, min or max."""

    function: str
    left: Size
    right: Size

    def __str__(self) -> str:
        return f"{self.function}({self.left}, {self.right})"


Atom = Symbol | SizeCall
Monomial = tuple[Atom, ...]


class SizeExpression:
    """A polynomial with integer coefficients; immutable, compared and hashed by its canonical text."""

    __slots__ = ("terms", "text")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        self.text = _text_of(terms)

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for monomial, coefficient in _terms_of(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _canonical(terms)

    def __mul__(self, other: Size) -> Size:
        terms: dict[Monomial, int] = {}
        for left, left_coefficient in self.terms:
            for right, right_coefficient in _terms_of(other):
                monomial = tuple(sorted(left + right, key=str))
                terms[monomial] = terms.get(monomial, 0) + left_coefficient * right_coefficient
        return _canonical(terms)

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: int) -> Size:
        return self * -1 + other

    def __neg__(self) -> Size:
        return self * -1

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return divide(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return divide(other, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizeExpression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"SizeExpression({self.text})"


Size = Union[int, SizeExpression]
Shape = tuple[Size, ...]


def symbol(name: str) -> SizeExpression:
    """The size that is this symbol and nothing else."""
    return SizeExpression((((Symbol(name),), 1),))


def is_symbol(size: Size) -> bool:
    """Whether a size is one symbol and nothing else."""
    return isinstance(size, SizeExpression) and size.text in symbols(size)


def evaluate(size: Size, bindings: Mapping[str, int]) -> int:
    """The number a size stands for, given a number for each symbol."""
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        value = coefficient
        for atom in monomial:
            value *= _evaluate_atom(atom, bindings)
        total += value
    return total


def substitute(size: Size, replacements: Mapping[str, Size]) -> Size:
    """The same size with symbols replaced by other sizes."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        value: Size = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                value = value * replacements.get(atom.name, symbol(atom.name))
            else:
                left, right = substitute(atom.left, replacements), substitute(atom.right, replacements)
                value = value * FUNCTIONS[atom.function](left, right)
        total = total + value
    return total


def symbols(size: Size) -> frozenset[str]:
    """Names of all symbols a size depends on."""
    if isinstance(size, int):
        return frozenset()
    found: set[str] = set()
    for monomial, _ in size.terms:
        for atom in monomial:
            found |= {atom.name} if isinstance(atom, Symbol) else symbols(atom.left) | symbols(atom.right)
    return frozenset(found)


def product(shape: Shape) -> Size:
    """Number of elements of a shape."""
    total: Size = 1
    for size in shape:
        total = total * size
    return total


def divide(left: Size, right: Size) -> Size:
    """left // right, exact where the polynomial divides term by term."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if left == right:
        return 1
    if right == 1:
        return left
    quotient = _divide_by_monomial(left, right)
    return _call("floordiv", left, right) if quotient is None else quotient


def minimum(left: Size, right: Size) -> Size:
    return _extremum("min", min, left, right)


def maximum(left: Size, right: Size) -> Size:
    return _extremum("max", max, left, right)


FUNCTIONS = {"floordiv": divide, "min": minimum, "max": maximum}
"""Functions that may appear in the text of a size."""


def _extremum(name: str, pick, left: Size, right: Size) -> Size:
    difference = left - right
    if isinstance(difference, int):  # comparable for all values of the symbols
        return left if pick(difference, 0) == difference else right
    left, right = sorted((left, right), key=str)
    return _call(name, left, right)


def _call(function: str, left: Size, right: Size) -> SizeExpression:
    return SizeExpression((((SizeCall(function, left, right),), 1),))


def _divide_by_monomial(left: Size, right: Size) -> Size | None:
    """left / right where right has one term and every term of left is a multiple of it; None otherwise."""
    divisor = _terms_of(right)
    if len(divisor) != 1:
        return None
    (atoms, factor) = divisor[0]
    terms: dict[Monomial, int] = {}
    for monomial, coefficient in _terms_of(left):
        remaining = list(monomial)
        for atom in atoms:
            if atom not in remaining:
                return None
            remaining.remove(atom)
        if coefficient % factor:
            return None
        terms[tuple(remaining)] = coefficient // factor
    return _canonical(terms)


def _terms_of(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return (((), size),) if isinstance(size, int) else size.terms


def _canonical(terms: Mapping[Monomial, int]) -> Size:
    kept = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    ordered = sorted(kept.items(), key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))
    return SizeExpression(tuple(ordered))


def _text_of(terms: tuple[tuple[Monomial, int], ...]) -> str:
    parts: list[str] = []
    for monomial, coefficient in terms:
        factors = [str(atom) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        parts.append((f" {sign} " if parts else "-" if sign == "-" else "") + "*".join(factors))
    return "".join(parts)


def _evaluate_atom(atom: Atom, bindings: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return bindings[atom.name]
    left, right = evaluate(atom.left, bindings), evaluate(atom.right, bindings)
    # A division by a size that turns out to be 0 comes from reshaping nothing, where 0 is as good as any answer.
    return {
        "floordiv": lambda: left // right if right else 0,
        "min": lambda: min(left, right),
        "max": lambda: max(left, right),
    }[atom.function]()
