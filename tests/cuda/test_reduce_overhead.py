"""`mode="reduce-overhead"`: programs as CUDA graphs give what eager gives, call after call, and keep to themselves."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import ingot

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
CALLS = 6
"""Enough to record, compile, warm up, capture and replay."""


@pytest.fixture(autouse=True)
def without_gradients_or_trials(no_eager_comparison: None):
    with torch.no_grad():
        yield


def network() -> nn.Sequential:
    layers = [nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]
    return nn.Sequential(*layers).to(GPU).eval()


def replayed(subject: Any) -> Any:
    return ingot.jit(subject, mode="reduce-overhead")


def explained(subject: Any) -> str:
    called: Any = subject.forward if isinstance(subject, nn.Module) else subject
    return called.explain()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=GPU)


def test_models_are_replayed_and_give_what_eager_gives():
    model = network()
    compiled = replayed(model)
    given = [draw(16, 64) for _ in range(CALLS)]
    results = [compiled(x) for x in given]  # all of them held, so that none may be overwritten
    for x, result in zip(given, results, strict=True):
        torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-4)
    assert "replayed as 1 CUDA graph" in explained(compiled)


def test_weights_that_change_or_move_are_seen():
    model = network()
    compiled = replayed(model)
    x = draw(16, 64)
    for _ in range(CALLS):
        compiled(x)
    first: Any = model[0]
    first.weight.mul_(0.5)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    first.weight.data = first.weight.data * 2 + 0.1
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_seed_gives_eagers_numbers():
    def function(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(torch.relu(x @ x), 0.5, training=True) + torch.rand_like(x)

    compiled = replayed(function)
    x = draw(32, 32)
    for seed in range(CALLS):
        torch.manual_seed(seed)
        found = [compiled(x) for _ in range(3)]
        torch.manual_seed(seed)
        for one in found:
            torch.testing.assert_close(one, function(x), rtol=1e-4, atol=1e-4)
    assert "replayed as" in explained(compiled)


def test_streams_and_threads_do_not_disturb_each_other():
    model = network()
    compiled = replayed(model)
    for _ in range(CALLS):
        compiled(draw(16, 64))
    wrong: list[int] = []

    def work(seed: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for number in range(40):
                x = torch.full((16, 64), float(seed + number) / 50, device=GPU)
                if not torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-4):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_sizes_have_graphs_of_their_own():
    model = network()
    compiled = replayed(model)
    for rows in (16, 24, 40, 16, 24, 40) * CALLS:
        x = draw(rows, 64)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_inside_a_graph_of_the_users_the_program_is_captured_there():
    model = network()
    compiled = replayed(model)
    x = draw(16, 64)
    for _ in range(CALLS):
        compiled(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compiled(x)
    x.copy_(draw(16, 64))
    graph.replay()
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_captured_runs_and_says_why():
    def function(x: torch.Tensor) -> torch.Tensor:
        here = torch.sort(x * 2).values.cpu()
        return here + 1

    compiled = replayed(function)
    for _ in range(CALLS):
        x = draw(8, 8)
        torch.testing.assert_close(compiled(x), function(x))
    assert "not replayed as a CUDA graph: some of its tensors are on cpu" in explained(compiled)


def test_replays_leave_no_memory_behind():
    compiled = replayed(network())
    x = draw(16, 64)
    for _ in range(CALLS):
        compiled(x)
    before = torch.cuda.memory_allocated()
    for _ in range(500):
        compiled(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
