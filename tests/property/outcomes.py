"""What running a graph gives, and the comparison of two such outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base.errors import ExecutionError
from ingot.ir.graph import Graph, Output, operations_of
from ingot.ir.interpreter import Interpreter
from tests.property.random_values import copied, same_bits


@dataclass(frozen=True)
class Outcome:
    results: tuple[Any, ...]
    arguments: tuple[Any, ...]
    """The arguments after the run: aliased ones have been overwritten."""
    refused: bool = False
    """PyTorch would not run an operation."""


def run(graph: Graph, arguments: Sequence[Any]) -> Outcome:
    """Interpret a graph on copies of the arguments, with torch's generator in a known state."""
    copies = copied(arguments)
    torch.manual_seed(20)
    try:
        results = Interpreter(graph).run(copies)
    except ExecutionError:
        return Outcome((), tuple(copies), refused=True)
    return Outcome(tuple(results), tuple(copies))


def difference(expected: Outcome, found: Outcome) -> str | None:
    """Where two outcomes differ, in words; None where they have the same bits."""
    if expected.refused or found.refused:
        return None if expected.refused and found.refused else f"refused: {expected.refused} and {found.refused}"
    for what, lefts, rights in (
        ("result", expected.results, found.results),
        ("argument", expected.arguments, found.arguments),
    ):
        if len(lefts) != len(rights):
            return f"{len(lefts)} and {len(rights)} {what}s"
        for position, (left, right) in enumerate(zip(lefts, rights, strict=True)):
            if not same_bits(left, right):
                return f"{what} {position} is\n{shown_difference(left, right)}"
    return None


def first_wrong_value(graph: Graph, is_wrong: Callable[[Graph], bool]) -> Graph:
    """The part of a failing graph up to the first value that fails by itself, which is what a person wants to see."""
    for node in graph.nodes:
        operations = set(operations_of([node]))
        # Draws of random numbers count whether or not they are used.
        kept = tuple(other for other in graph.nodes if other in operations or other.has_effect)
        part = Graph(graph.inputs, kept, (Output(node),), graph.assumptions)
        try:
            if is_wrong(part):
                return part
        except Exception:
            continue
    return graph


def shown_difference(left: Any, right: Any) -> str:
    """The elements that differ, or everything where types or shapes do."""
    same_shape = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape == right.shape
    if not same_shape or left.dtype is not right.dtype:
        return f"{left!r}\nand\n{right!r}"
    pairs = zip(left.flatten().tolist(), right.flatten().tolist(), strict=True)
    different = [f"[{index}] {a!r} and {b!r}" for index, (a, b) in enumerate(pairs) if not same_bits(a, b)]
    return f"{left.dtype} {list(left.shape)}: " + ", ".join(different[:8])
