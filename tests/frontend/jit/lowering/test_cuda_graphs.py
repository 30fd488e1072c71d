"""Programs as CUDA graphs: what is copied in and out, when a graph is made, and when there is none.

A stand-in takes the place of a graph where there is no GPU: replaying it runs what was captured on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ingot
from ingot.base.errors import ConfigError
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.lowering import cuda_graphs
from ingot.frontend.jit.lowering.cuda_graphs import MOST_CAPTURES, MOST_GRAPHS, WARM_UP, Replayed
from ingot.frontend.jit.lowering.recorded_program import compile_trace
from ingot.runtime.compiler import JitCompiler


class Graph:
    """Runs what was captured again, into the memory of the results."""

    def __init__(self, run: Callable[[], list[Any]], results: list[Any]):
        self.run, self.results = run, results

    def replay(self) -> None:
        for result, value in zip(self.results, self.run(), strict=True):
            if isinstance(result, torch.Tensor):
                result.copy_(value)


class Stream:
    def __init__(self) -> None:
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited_for.append(other)


class Captures:
    """What was captured, and on which stream graphs are replayed."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.stream = Stream()

    def capture(self, run: Callable[[], list[Any]], device: torch.device) -> tuple[Graph, list[Any]]:
        results = run()
        self.graphs.append(Graph(run, results))
        return self.graphs[-1], results


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    made = Captures()
    monkeypatch.setattr(cuda_graphs, "_capture", made.capture)
    monkeypatch.setattr(cuda_graphs, "_current_stream", lambda device: made.stream)
    return made


def replayed(function: Callable[..., Any], *args: Any) -> Replayed:
    """The program of a function, replayed; functions here return one tensor."""
    _, made = record(function, args, {}, describe(args, {}), None, strict=True)
    assert made.trace is not None
    program = compile_trace(made.trace, JitCompiler()).replayed()
    assert isinstance(program.function, Replayed)
    return program.function


def sorted_and_scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sort(x * 2).values + y


def test_a_replay_gives_what_a_run_gives(captures: Captures):
    made = replayed(sorted_and_scaled, torch.ones(4), torch.ones(4))
    for _ in range(WARM_UP + 4):
        x, y = torch.randn(4), torch.randn(4)
        (result,) = made([x, y], [], ())
        torch.testing.assert_close(result, sorted_and_scaled(x, y))
    assert len(captures.graphs) == 1 and made.text == "replayed as 1 CUDA graph"


def test_results_stay_as_they_are_when_the_next_call_comes(captures: Captures):
    made = replayed(sorted_and_scaled, torch.ones(4), torch.ones(4))
    given = [[torch.randn(4), torch.randn(4)] for _ in range(WARM_UP + 3)]
    results = [made(one, [], ())[0] for one in given]
    for one, result in zip(given, results, strict=True):
        torch.testing.assert_close(result, sorted_and_scaled(*one))


def test_other_numbers_have_a_graph_of_their_own_up_to_a_bound(captures: Captures):
    made = replayed(sorted_and_scaled, torch.ones(4), torch.ones(4))
    for number in range(MOST_GRAPHS + 2):
        for _ in range(WARM_UP + 2):
            made([torch.ones(4), torch.ones(4)], [], (number,))
    assert len(captures.graphs) == MOST_GRAPHS


def test_tensors_around_a_function_are_read_where_they_are(captures: Captures):
    weight = torch.ones(4)
    made = replayed(lambda x: torch.sort(x * 2).values + weight, torch.ones(4))
    x = torch.randn(4)
    for _ in range(WARM_UP + 2):
        made([x], [weight], ())
    weight.fill_(5.0)
    torch.testing.assert_close(made([x], [weight], ())[0], torch.sort(x * 2).values + 5)
    assert len(captures.graphs) == 1
    moved = [torch.full((4,), 7.0 + number) for number in range(MOST_CAPTURES + 2)]
    for other in moved:
        torch.testing.assert_close(made([x], [other], ())[0], torch.sort(x * 2).values + other)
    assert len(captures.graphs) == MOST_CAPTURES


def test_streams_wait_for_each_other(captures: Captures):
    made = replayed(sorted_and_scaled, torch.ones(4), torch.ones(4))
    for _ in range(WARM_UP + 2):
        made([torch.ones(4), torch.ones(4)], [], ())
    first, captures.stream = captures.stream, Stream()
    made([torch.ones(4), torch.ones(4)], [], ())
    assert captures.stream.waited_for == [first] and not first.waited_for


def test_a_capture_that_fails_leaves_the_program_as_it_was(captures: Captures, monkeypatch: pytest.MonkeyPatch):
    def fail(run: Callable[[], list[Any]], device: torch.device) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(cuda_graphs, "_capture", fail)
    made = replayed(sorted_and_scaled, torch.ones(4), torch.ones(4))
    x, y = torch.randn(4), torch.randn(4)
    for _ in range(WARM_UP + 2):
        torch.testing.assert_close(made([x, y], [], ())[0], sorted_and_scaled(x, y))
    assert made.text == "not replayed as a CUDA graph: operation not permitted when stream is capturing"


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.sort(x * 2).values.split(2)


def view_of_argument(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[1:], torch.sort(x * 2).values


@pytest.mark.parametrize("function", [views, view_of_argument])
def test_results_that_share_memory_are_not_replayed(function: Callable[..., Any], captures: Captures):
    made = replayed(function, torch.ones(4))
    x = torch.randn(4)
    for _ in range(WARM_UP + 2):
        for result, expected in zip(made([x], [], ()), function(x), strict=True):
            torch.testing.assert_close(result, expected)
    assert "share memory" in made.text


def test_arguments_whose_elements_share_memory_are_not_replayed(captures: Captures):
    x = torch.randn(1).expand(4)
    made = replayed(sorted_and_scaled, x, torch.ones(4))
    for _ in range(WARM_UP + 2):
        torch.testing.assert_close(made([x, torch.ones(4)], [], ())[0], sorted_and_scaled(x, torch.ones(4)))
    assert "elements share theirs" in made.text


def test_what_is_never_captured_says_why():
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.sort(x).values

    def single(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    assert "writes into tensors" in replayed(writes, torch.ones(4)).text
    assert "a single step" in replayed(single, torch.ones(4)).text


def test_the_mode_is_checked_and_changes_nothing_on_the_cpu():
    with pytest.raises(ConfigError, match="mode must be one of 'default', 'reduce-overhead'"):
        ingot.jit(sorted_and_scaled, mode="fast")  # type: ignore[call-overload]
    jitted: Any = ingot.jit(sorted_and_scaled, mode="reduce-overhead")
    for _ in range(3):
        x, y = torch.randn(4), torch.randn(4)
        torch.testing.assert_close(jitted(x, y), sorted_and_scaled(x, y))
    assert "CUDA graph" not in jitted.explain()
