"""Random functions with one to four decisions give eager's results, whatever their arguments lead to."""

from __future__ import annotations

import linecache
import os
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.frontend.jit.api.forms import jit
from tests.frontend.jit.comparing import outcome, same

SEEDS = int(os.environ.get("INGOT_BRANCH_SEEDS", "40"))
CALLS = 24

_EXPRESSIONS = (
    "{a} * 2", "{a} + {b}", "torch.tanh({a})", "{a} - {b}.amax()", "{a} * {b}", "{a}.abs() + 0.5", "{a}.t().t()",
    "torch.relu({a})", "torch.where({a} > 0, {a}, {b})", "{a}[:] * SCALE",
)  # fmt: skip
_WRITES = ("{a} = {a} * 1; {a}.add_(1)", "{a} = {a} * 1; {a}[0].mul_(2)", "{a} = {b} + 0; view = {a}[1]; view.zero_()")
_CONDITIONS = (
    "{a}.sum() > {n}", "({a} > 1.5).any()", "{a}.mean().item() < {n}", "float({a}.abs().max()) > 2 and {b}.sum() > 0",
    "not ({a}.min() < -1)", "int(({a} > 0).sum()) > 4 or {b}.mean() > {n}", "{n} < {a}.sum().item() < 3",
    "abs({a}.sum().item()) > abs({b}.sum().item())",
)  # fmt: skip
_EFFECTS = (
    "d = d + torch.rand(3, 3)", "d = torch.nn.functional.dropout(d)", "COUNT.add_(1)", "d = d + COUNT", "y.add_(1)",
    "d = d * {a}", "d.add_({a})", "COUNT.copy_({a}.sum())",
)  # fmt: skip
"""Draws and writes that must not be done twice. Few decisions depend on them."""
SCALE = 1.5


class _Writer:
    def __init__(self, seed: int, has_effects: bool = False):
        self.random = random.Random(seed)
        self.has_effects = has_effects
        self.lines = ["def function(x, y):", "    n = 0", "    d = torch.ones(3, 3)"]

    def pick(self, forms: tuple[str, ...]) -> str:
        # Two: sums of one tensor that are computed at two places may round differently, and must not be compared.
        names = self.random.sample("xyzw", 2)
        return self.random.choice(forms).format(a=names[0], b=names[1], n=self.random.choice((-1, 0, 0.5, 1)))

    def statements(self, margin: str, count: int) -> None:
        for _ in range(count):
            if self.has_effects and self.random.random() < 0.5:
                self.lines.append(f"{margin}{self.pick(_EFFECTS)}")
            if self.random.random() < 0.25:
                self.lines += [f"{margin}{part.strip()}" for part in self.pick(_WRITES).split(";")]
            else:
                self.lines.append(f"{margin}{self.random.choice('xyzw')} = {self.pick(_EXPRESSIONS)}")

    def decision(self, margin: str, depth: int) -> None:
        kind = self.random.random()
        if kind < 0.25:
            self.lines += [f"{margin}for _ in range(3):", f"{margin}    z = z * 0.6 + x * 0.1"]
            leaves = self.random.choice(("break", "return z, n", "continue"))
            self.lines += [f"{margin}    if {self.pick(_CONDITIONS)}:", f"{margin}        {leaves}"]
            self.lines += [f"{margin}    n += 1"]
            return
        self.lines.append(f"{margin}if {self.pick(_CONDITIONS)}:")
        self.statements(f"{margin}    ", 2)
        if depth and self.random.random() < 0.4:
            self.decision(f"{margin}    ", depth - 1)
        if self.random.random() < 0.6:
            self.lines.append(f"{margin}else:")
            self.statements(f"{margin}    ", 1)
            self.lines.append(f"{margin}    n += 10")

    def write(self) -> str:
        self.lines += ["    z = x + y", "    w = x.exp()"]
        for _ in range(self.random.randint(1, 3)):
            self.statements("    ", 2)
            self.decision("    ", 1)
        self.statements("    ", 1)
        if self.random.random() < 0.3:
            self.lines.append("    y.copy_(z)")
        return "\n".join([*self.lines, "    return {'x': x, 'more': [z, w, n, d]}"]) + "\n"


def _function(seed: int, has_effects: bool = False) -> tuple[Any, str]:
    text, file = _Writer(seed, has_effects).write(), f"<branches {seed} {has_effects}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"torch": torch, "SCALE": SCALE, "COUNT": torch.zeros(()), "__name__": __name__}
    exec(compile(text, file, "exec"), namespace)
    return namespace["function"], text


def _arguments(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    shift = torch.randint(-1, 2, (), generator=generator)
    # Eighths: sums of them are exact, so that no order of adding decides otherwise than another.
    return tuple((torch.randn(3, 3, generator=generator) * 8).round() / 8 + shift for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("has_effects", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_branches(seed: int, has_effects: bool):
    function, text = _function(seed, has_effects)
    compiled: Any = jit(function)
    count = function.__globals__["COUNT"]
    generator = torch.Generator().manual_seed(seed)
    for call in range(CALLS):
        if call == 16:
            function.__globals__["SCALE"] = 0.75
        given = _arguments(generator)
        twins = tuple(one.clone() for one in given)
        before = count.clone()
        torch.manual_seed(call)
        expected = outcome(function, given)
        left = torch.rand(()), count.clone()
        count.copy_(before)
        torch.manual_seed(call)
        try:
            same(outcome(compiled, twins), expected, twins, given)
            torch.testing.assert_close((torch.rand(()), count), left)
        except AssertionError as error:
            raise AssertionError(f"call {call} of\n{text}\n{error}") from None


@pytest.mark.parametrize(("has_effects", "wanted"), [(False, 10), (True, 5)])
def test_many_random_programs_run_without_Python(has_effects: bool, wanted: int):
    tiers = []
    for seed in range(20):
        function, _ = _function(seed, has_effects)
        compiled: Any = jit(function)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(8):
            outcome(compiled, _arguments(generator))
        tiers.append(compiled.tier)
    assert tiers.count("skipping") >= wanted
