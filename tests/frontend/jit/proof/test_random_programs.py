"""Random programs with conditions that the walk does not know: what it says has to be true whatever they are.

A program takes numbers. The walk is told that some of them are always the same, but not which they are; the program
runs with many. What the walk says it knows has to be so in every run that returns.
"""

from __future__ import annotations

import itertools
import linecache
import os
import random
from typing import Any

import pytest

from ingot.frontend.jit.proof.domain.abstract_values import (
    MIXED,
    AbstractValue,
    Determined,
    Fresh,
    Known,
    Raised,
    Refused,
    Tuple,
    Union,
    known,
)
from ingot.frontend.jit.proof.walk.walker import Walker

PROGRAMS = int(os.environ.get("INGOT_TEST_EXAMPLES", "300"))
NUMBERS, LISTS = ("a", "b", "c"), ("p", "q")


class Writer:
    """Writes a function of `u` and `v`, which are not known, and `n`, which is."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.budget = 14

    def program(self) -> str:
        self.lines = ["def program(u, v, n):", "    a, b, c = 1, n, 3", "    p, q = [1, 2], [n]", "    d = {'x': 1}"]
        self.lines += [
            "    def change(k):",
            "        nonlocal a",
            "        a = a + k",
            "        p.append(k)",
            "        return a",
        ]
        self.block(1, is_loop=False)
        self.lines.append("    return a, b, c, p, q, d")
        return "\n".join(self.lines) + "\n"

    def number(self) -> str:
        pick = self.random.random()
        if pick < 0.3:
            return str(self.random.randint(-2, 4))
        if pick < 0.7:
            return self.random.choice((*NUMBERS, "n"))
        if pick < 0.8:
            return self.random.choice(("u", "v"))
        return self.random.choice(("len(p)", "len(q)", "p[0]", "q[-1]", "d.get('x', 0)", "d['y']", "sum(q)", "p[1]"))

    def condition(self) -> str:
        if self.random.random() < 0.5:
            return f"{self.random.choice('uv')} > {self.random.randint(0, 2)}"
        first, second = self.number(), self.number()
        shapes = (
            f"{first} < {second}",
            f"{first} == {second} or u > 1",
            f"not ({first} > 1 and v > 0)",
            f"{first} in q",
        )
        return self.random.choice(shapes)

    def block(self, depth: int, is_loop: bool) -> None:
        for _ in range(self.random.randint(1, 4)):
            if self.budget <= 0:
                break
            self.budget -= 1
            self.statement(depth, is_loop)
        self.write(depth, "pass")

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def statement(self, depth: int, is_loop: bool) -> None:
        kinds = [self.assign] * 4 + [self.container] * 4 + [self.branch] * 3 + [self.loop, self.attempt, self.early]
        kind = self.random.choice(kinds if depth < 4 else [self.assign, self.container])
        if kind == self.early and is_loop:
            self.write(depth, f"if {self.condition()}:")
            self.write(depth + 1, self.random.choice(("break", "continue", "return a, 'early'")))
            return
        kind(depth, is_loop)

    def assign(self, depth: int, is_loop: bool) -> None:
        name = self.random.choice(NUMBERS)
        shapes = (
            f"{name} = {self.number()} + {self.number()}",
            f"{name} += {self.number()}",
            f"{name} = {self.number()} if {self.condition()} else {self.number()}",
            f"{name} = change({self.number()})",
            f"{name} = sum(k * {self.number()} for k in q)",
            f"{name} = max([k for k in p if k > 0] or [0])",
            "a, b = b, a",
        )
        self.write(depth, self.random.choice(shapes))

    def container(self, depth: int, is_loop: bool) -> None:
        name = self.random.choice(LISTS)
        shapes = (
            f"{name}.append({self.number()})",
            f"{name}[0] = {self.number()}",
            f"{self.random.choice(NUMBERS)} = {name}.pop()",
            f"{name} = {name} + [{self.number()}]",
            f"{name} += [{self.number()}]",
            "p = q",
            f"d['{self.random.choice('xy')}'] = {self.number()}",
            "d.pop('x', None)",
        )
        self.write(depth, self.random.choice(shapes))

    def branch(self, depth: int, is_loop: bool) -> None:
        self.write(depth, f"if {self.condition()}:")
        self.block(depth + 1, is_loop)
        if self.random.random() < 0.6:
            self.write(depth, "else:")
            self.block(depth + 1, is_loop)

    def loop(self, depth: int, is_loop: bool) -> None:
        name = self.random.choice(("i", "c"))
        self.write(
            depth, f"for {name} in {self.random.choice(('range(3)', '[1, 2]', 'list(q)', 'list(enumerate(p))'))}:"
        )
        self.block(depth + 1, True)
        if self.random.random() < 0.3:
            self.write(depth, "else:")
            self.block(depth + 1, is_loop)

    def attempt(self, depth: int, is_loop: bool) -> None:
        self.write(depth, "try:")
        self.block(depth + 1, is_loop)
        if self.random.random() < 0.7:
            self.write(depth, f"except {self.random.choice(('KeyError', 'IndexError', '(KeyError, TypeError)'))}:")
            self.block(depth + 1, is_loop)
        self.write(depth, "finally:")
        self.block(depth + 1, False)
        if self.random.random() < 0.1:
            self.write(depth + 1, "return 'finally', a")

    def early(self, depth: int, is_loop: bool) -> None:
        self.write(depth, f"if {self.condition()}:")
        self.write(depth + 1, self.random.choice(("return b, p", "raise ValueError(a)", "return None")))


def _function(seed: int) -> tuple[Any, str]:
    text = Writer(seed).program()
    file = f"<program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    return names["program"], text


def _covers(walker: Walker, value: AbstractValue, found: Any) -> bool:
    """Whether an abstract value may stand for what a run gave."""
    match value:
        case Known():
            return type(value.value) is type(found) and value.value == found
        case Determined():
            return value.cls is None or type(found) is value.cls
        case Union():
            return any(_covers(walker, one, found) for one in value.values)
        case Tuple():
            if not isinstance(found, tuple) or len(found) != len(value.items):
                return False
            return all(_covers(walker, one, other) for one, other in zip(value.items, found, strict=True))
        case Fresh():
            held = walker.state.items[value.identity]
            if held is MIXED:
                return isinstance(found, value.cls)
            if isinstance(held, tuple):
                return type(found) is list and _covers(walker, Tuple(held), tuple(found))
            if type(found) is not dict or list(held) != list(found):
                return False
            return all(_covers(walker, held[key], found[key]) for key in held)
    return False


@pytest.mark.parametrize("start", range(0, PROGRAMS, 50))
def test_what_is_known_holds_in_every_run(start: int):
    walked = 0
    for seed in range(start, start + 50):
        function, text = _function(seed)
        walker = Walker()
        try:
            value = walker.call(known(function), [Determined(int), Determined(int), Known(2)])
        except Refused:
            continue
        except Raised:
            value = None
        walked += 1
        for u, v in itertools.product(range(-1, 4), repeat=2):
            try:
                found = function(u, v, 2)
            except Exception:
                continue
            assert value is not None and _covers(walker, value, found), f"{text}\n{u=} {v=} gives {found}"
    assert walked > 5
