"""Training steps as CUDA graphs: what the host tells them, tried with a stand-in that runs what was captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.frontend.jit.lowering import cuda_graphs, recorded_program
from tests.frontend.jit.gradients.step_pairs import OPTIMIZERS, ORDERS, Pair, Write, plain_step, small_model, zero_last


class Graph:
    """Runs what was captured again, into the memory of the results."""

    def __init__(self, run: Callable[[], list[Any]], results: list[Any]):
        self.run, self.results, self.replays = run, results, 0

    def replay(self) -> None:
        self.replays += 1
        for result, value in zip(self.results, self.run(), strict=True):
            if isinstance(result, torch.Tensor):
                result.copy_(value)


class Captures:
    """What was captured; capturing runs nothing, so what was written meanwhile is as it was."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.pair: Pair | None = None

    def capture(self, run: Callable[[], list[Any]], device: torch.device) -> tuple[Graph, list[Any]]:
        assert self.pair is not None
        model, optimizer = self.pair.models[0], self.pair.optimizers[0]
        states = [one for state in optimizer.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
        kept = [(one, one.detach().clone()) for one in (*model.parameters(), *model.buffers(), *states)]
        results = run()
        for tensor, before in kept:
            tensor.data.copy_(before)
        for cell in (one.cell_contents for one in run.__closure__ or ()):
            for tensor in cell if isinstance(cell, list) else ():
                if isinstance(tensor, torch.Tensor) and tensor.dim() == 0 and not any(tensor is one for one, _ in kept):
                    tensor.data.sub_(1)  # a count that stands for one on the CPU, which the run has made one more
        self.graphs.append(Graph(run, results))
        return self.graphs[-1], results


class Stream:
    def wait_stream(self, other: Stream) -> None: ...


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch, no_eager_comparison: None) -> Captures:
    made, stream = Captures(), Stream()
    monkeypatch.setattr(cuda_graphs, "_capture", made.capture)
    monkeypatch.setattr(cuda_graphs, "_current_stream", lambda device: stream)
    monkeypatch.setattr(recorded_program, "_can_be_captured", lambda device: True)
    return made


def pair_for(captures: Captures, **given: Any) -> Pair:
    captures.pair = Pair(mode="reduce-overhead", **given)
    return captures.pair


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replays_leave_what_eager_leaves(captures: Captures, name: str):
    pair = pair_for(captures, optimize=OPTIMIZERS[name])
    pair.run(10)
    assert pair.is_compiled and captures.graphs[0].replays >= 4


def test_the_host_is_asked_at_every_replay(captures: Captures):
    pair = pair_for(captures)
    pair.run(6)

    def slow(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] *= 0.5

    def one_apart(model: Any, optimizer: Any) -> None:
        next(iter(optimizer.state.values()))["step"].data.fill_(40.0)

    for change in (slow, one_apart, slow):
        pair.both(change)
        pair.run(3)
    assert len(captures.graphs) == 1 and captures.graphs[0].replays >= 10


def test_another_decay_is_another_graph(captures: Captures):
    pair = pair_for(captures)
    pair.run(6)

    def decay(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["weight_decay"] = 0.3

    pair.both(decay)
    pair.run(6)
    assert len(captures.graphs) == 2


@pytest.mark.parametrize("write", [write for write in ORDERS if write.__name__ in ("_step_first", "zero_in_place")])
def test_steps_that_read_gradients_are_not_captured(captures: Captures, write: Write):
    pair = pair_for(captures, write=write)
    pair.run(6)
    assert pair.is_compiled and not captures.graphs
    assert "not replayed as a CUDA graph: it reads gradients from before the call" in pair.compiled.explain()


def test_steps_that_write_into_an_argument_are_not_captured(captures: Captures):
    def write(model: Any, optimizer: Any) -> Any:
        inner = plain_step(model, optimizer)

        def step(x, y):
            loss = inner(x, y)
            y.mul_(0.5)
            y.mul_(2.0)
            return loss

        return step

    pair = pair_for(captures, write=write)
    pair.run(6)
    assert pair.is_compiled and not captures.graphs
    assert "it writes into an argument" in pair.compiled.explain()


def test_gradients_that_are_set_to_none_at_the_end(captures: Captures):
    pair = pair_for(captures, make=small_model, write=zero_last)
    pair.run(8)
    assert pair.is_compiled and captures.graphs[0].replays >= 2
