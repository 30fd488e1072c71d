"""Random functions that read sizes, compute with them and hand them to PyTorch, over ten lengths, against eager.

A function takes two tensors whose first axes vary, together or apart. Numbers made of sizes become bounds of slices,
sizes of views and new tensors, factors, and conditions. What a call gives, or the error that it raises, is eager's.
"""

from __future__ import annotations

import linecache
import os
import random
from typing import Any

import pytest
import torch

import ingot
from tests.frontend.jit.cache.test_dynamic_sizes import generals

PROGRAMS = int(os.environ.get("INGOT_TEST_EXAMPLES", "60"))
TENSORS = ("x", "y", "s", "t")


class Writer:
    """Writes a function of two matrices `x` and `y`, with as many columns, that computes with their sizes."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def program(self) -> str:
        lines = ["def program(x, y):", "    s, t = torch.tanh(x), y * 2", "    a, b = x.shape[0], y.size(0)"]
        for _ in range(self.random.randint(3, 8)):
            lines += self.statement()
        lines.append("    return torch.tanh(s), t + 1")
        return "\n".join(lines) + "\n"

    def number(self) -> str:
        tensor = self.random.choice(TENSORS)
        if self.random.random() < 0.3:
            return str(self.random.choice((-3, -1, 0, 1, 2, 3, 5, 8, 20)))
        reads = ("a", "b", "a", "b", f"{tensor}.shape[0]", f"{tensor}.size(0)", f"len({tensor})", f"{tensor}.numel()")
        return self.random.choice(reads)

    def integer(self) -> str:
        first, second = self.number(), self.number()
        constant = self.random.choice((2, 3, 4, 8))
        plain = (first, f"{first} + {second}", f"{first} - {second}", f"{first} * {constant}", f"-{first}")
        other = (f"{first} // {constant}", f"{first} % {constant}", f"min({first}, {second})", f"max({first}, 7)")
        rare = (f"({first}) ** 2 % 11", f"int(({first}) * 0.5)", f"abs({first}).bit_length()", f"len(str({first}))")
        return self.random.choice(self.random.choices((plain, other, rare), (6, 3, 1))[0])

    def condition(self) -> str:
        first, second = self.integer(), self.integer()
        sign = self.random.choice(("<", "<=", "==", "!=", ">", ">="))
        return self.random.choice((f"{first} {sign} {second}", f"{first} in (7, 12, 30)", f"({first}) % 2", f"{first}"))

    def tensor(self) -> str:
        tensor, first, second = self.random.choice(TENSORS), self.integer(), self.integer()
        return self.random.choice(
            (
                f"{tensor}[{first}:]",
                f"{tensor}[:{first}]",
                f"{tensor}[{first}:{second}]",
                f"{tensor}[-({first}):]",
                f"{tensor}[:, :2][{first} % 5:]",
                f"{tensor} * ({first})",
                f"{tensor} + ({first})",
                f"{tensor} / (a + {first} % 7 + 1)",
                f"{tensor}.reshape({tensor}.numel())[: {first}].view(-1, 1)",
                f"{tensor}.view({tensor}.shape[0], -1)",
                f"{tensor}.reshape(-1, {tensor}.shape[0]).transpose(0, 1)",
                f"torch.arange({tensor}.shape[0]).view(-1, 1) + {tensor}",
                f"torch.cat([{tensor}, {tensor}.new_ones({tensor}.shape)])",
                f"{tensor}.new_full(({tensor}.shape[0], 1), {first}) + {tensor}",
                f"{tensor} * {tensor}.size(0) ** -0.5",
                f"torch.sin({tensor})",
                f"{tensor}[({first}) % len({tensor})].expand({tensor}.shape)",
                f"torch.zeros({tensor}.shape[0], {tensor}.shape[1]) + {tensor}.repeat(1, 1)",
            )
        )

    def statement(self) -> list[str]:
        pick = self.random.random()
        if pick < 0.3:
            return [f"    {self.random.choice('ab')} = {self.integer()}"]
        if pick < 0.8:
            return [f"    {self.random.choice('st')} = {self.tensor()}"]
        target = self.random.choice("st")
        return [f"    if {self.condition()}:", f"        {target} = {self.tensor()}"]


def made(seed: int) -> tuple[Any, str]:
    text, file = Writer(seed).program(), f"<sizes {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, file, "exec"), names)
    return names["program"], text


def outcome(function: Any, *given: torch.Tensor) -> Any:
    try:
        return function(*given)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:
        return type(error)


def is_same(found: Any, expected: Any) -> bool:
    if not isinstance(expected, tuple) or not isinstance(found, tuple):
        return found is expected
    return all(
        one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other, atol=1e-5, equal_nan=True)
        for one, other in zip(found, expected, strict=True)
    )


def sizes_of(seed: int) -> list[tuple[int, int]]:
    """Ten pairs of sizes, which for some programs grow together at first."""
    numbers = random.Random(seed)
    first = [(n, n * 2 if seed % 3 == 0 else n + 3 if seed % 3 == 1 else n) for n in (4, 8, 12, 16)]
    return first + [(numbers.randint(2, 40), numbers.randint(2, 40)) for _ in range(6)]


@pytest.mark.parametrize("dynamic", [None, True])
def test_random_functions_of_sizes_are_as_in_eager(dynamic: bool | None):
    opened = 0
    for seed in range(PROGRAMS):
        program, text = made(seed)
        compiled: Any = ingot.jit(program, dynamic=dynamic)
        for n, m in sizes_of(seed):
            for _ in range(2):
                given = torch.randn(n, 4), torch.randn(m, 4)
                expected = outcome(program, *given)
                found = outcome(compiled, *given)
                assert is_same(found, expected), f"sizes {n}, {m} after others, seed {seed}:\n{text}"
        opened += bool(generals(compiled._compiled))
    assert opened > PROGRAMS // 10
