"""Masks of dropout: the numbers that PyTorch draws, and its generator left as PyTorch leaves it, bit for bit."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Queue
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import ingot
from ingot.runtime.cpu import random_numbers
from ingot.runtime.cpu.random_numbers import FEWEST_ELEMENTS, bernoulli_

SIZES = (0, 1, 311, 312, 313, 623, 624, 625, 10_000)
PROBABILITIES = (0.0, 1e-9, 0.1, 0.5, 0.9999999999999999, 1.0)
OTHER_DRAWS: tuple[Callable[[], object], ...] = (
    lambda: None,
    lambda: torch.rand(1),
    lambda: torch.randn(3),
    lambda: torch.randn((), dtype=torch.float64),
    lambda: torch.randperm(5),
    lambda: torch.rand(623),
)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        yield


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No other thread counts, whatever runs the tests. The numbers of elements that generated code drew."""
    assert random_numbers._agrees() or not _draws_singly(), "the check must not refuse what it can draw"
    drawn, draw = [], random_numbers._draw

    def noted(tensor: torch.Tensor, p: float, generator: torch.Generator) -> bool:
        is_drawn = draw(tensor, p, generator)
        drawn.extend([tensor.numel()] * is_drawn)
        return is_drawn

    monkeypatch.setattr(random_numbers, "_is_alone", lambda: True)
    monkeypatch.setattr(random_numbers, "_draw", noted)
    return drawn


def _draws_singly() -> bool:
    """Whether PyTorch takes two words from its generator for every element, not one in all to seed MKL's."""
    generator = torch.Generator()
    torch.empty(10).bernoulli_(0.5, generator=generator)
    return generator.get_state()[16].item() == 20


def _compare(tensor: torch.Tensor, p: float) -> None:
    before = torch.get_rng_state()
    expected = torch.empty_like(tensor).bernoulli_(p)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    version = tensor._version
    assert bernoulli_(tensor, p) is tensor
    assert torch.equal(tensor, expected), (tensor.shape, p)
    assert torch.equal(torch.get_rng_state(), after), (tensor.shape, p)
    assert tensor._version == version + 1


def test_masks_and_the_generator_are_pytorchs(alone: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(random_numbers, "FEWEST_ELEMENTS", 1)
    for other in OTHER_DRAWS:
        for size in SIZES:
            for p in PROBABILITIES:
                other()
                _compare(torch.empty(size), p)
    _compare(torch.empty(1_000_003), 0.1)
    if _draws_singly():
        assert alone[-1] == 1_000_003 and len(alone) == len(OTHER_DRAWS) * len(SIZES[1:]) * len(PROBABILITIES) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_types_and_tensors_that_begin_anywhere(alone: list[int], dtype: torch.dtype):
    torch.rand(1)
    whole = torch.full((5003,), 7.0, dtype=dtype)
    _compare(whole[1:-1].view(3, 1667), 0.3)
    assert whole[0] == whole[-1] == 7
    assert alone == [5001] * _draws_singly()


def test_what_is_left_to_pytorch(alone: list[int]):
    large = torch.empty(64, 64)
    for tensor in (torch.empty(FEWEST_ELEMENTS - 1), large.t()[1:], large.int(), large[:, ::2]):
        _compare(tensor, 0.25)
    own = [torch.Generator().manual_seed(3) for _ in range(2)]
    assert torch.equal(bernoulli_(large, 0.5, generator=own[0]), torch.empty(64, 64).bernoulli_(0.5, generator=own[1]))
    with pytest.raises(RuntimeError, match="expects p to be in"):
        bernoulli_(large, 1.5)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        bernoulli_(torch.empty(64, 64, requires_grad=True), 0.5)
    with torch.inference_mode():
        assert bernoulli_(torch.empty(64, 64), 1.0).sum() == 4096
    assert alone == []


def test_a_state_that_torch_does_not_arrive_at_is_left_to_pytorch(alone: list[int]):
    torch.rand(5)
    state = torch.get_rng_state()
    state[16] += 1  # the next place, which no longer agrees with the countdown
    torch.set_rng_state(state)
    _compare(torch.empty(2000), 0.5)
    assert alone == []


def test_a_difference_is_found_and_pytorchs_call_stays(alone: list[int], monkeypatch: pytest.MonkeyPatch):
    before = torch.get_rng_state()
    monkeypatch.setattr(random_numbers, "_BITS", 52)
    random_numbers._agrees.cache_clear()
    try:
        assert not random_numbers._agrees()
        assert torch.equal(torch.get_rng_state(), before)
        alone.clear()
        _compare(torch.empty(5000), 0.5)
        assert alone == []
    finally:
        random_numbers._agrees.cache_clear()


def test_other_threads_keep_pytorchs_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(random_numbers, "_thread", SimpleNamespace(_count=lambda: 0))
    answers = [random_numbers._is_alone()]
    thread = threading.Thread(target=lambda: answers.append(random_numbers._is_alone()))
    thread.start()
    thread.join()
    assert answers == [True, False]
    monkeypatch.setattr(random_numbers, "_thread", SimpleNamespace(_count=lambda: 1))
    assert not random_numbers._is_alone()
    queue = Queue()  # sends what it is given from a thread of its own, which draws nothing
    queue.put(1)
    assert random_numbers._is_alone()
    assert queue.get() == 1
    queue.close()
    queue.join_thread()


class _Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(32, 64), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(torch.relu(self.linear(x))) * 2


@pytest.mark.parametrize("needs_gradients", [False, True])
def test_dropout_in_a_compiled_module_is_eagers(alone: list[int], needs_gradients: bool):
    module, x = _Dropping(), torch.randn(64, 32)
    compiled = ingot.jit(copy.deepcopy(module))
    for seed in range(20):
        expected, result = (_outcome(called, x, seed, needs_gradients) for called in (module, compiled))
        torch.testing.assert_close(result, expected)
        assert torch.equal(result[0] == 0, expected[0] == 0)
        assert torch.equal(result[1], expected[1])
    if _draws_singly():
        assert alone.count(64 * 64) >= 5


def _outcome(called: nn.Module, x: torch.Tensor, seed: int, needs_gradients: bool) -> list[torch.Tensor]:
    """The result, the generator's state after it, what is drawn next, and gradients."""
    torch.manual_seed(seed)
    with torch.set_grad_enabled(needs_gradients):
        result = called(x)
    state, following = torch.get_rng_state(), torch.randn(2)
    gradients = torch.autograd.grad(result.sum(), list(called.parameters())) if needs_gradients else ()
    return [result.detach(), state, following, *gradients]
