"""Language models that are trained on batches with and without padding, which they tell apart by asking the mask.

Losses, weights and random numbers follow eager's, with the model compiled and with the whole step compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from benchmarks.training.cases import CASES, Batch, TrainingCase, own_loss, padded, whole_step
from torch import nn

import ingot
from tests.frontend.jit.gradients.comparing_gradients import same

STEPS = 50
_BERT, _LLAMA = (
    TrainingCase(name, padded(next(case for case in CASES if case.name == name).build), own_loss)
    for name in ("BERT 4x128 h256", "Llama 4x128 h256")
)
_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    # The bias of keys has gradients of nothing but roundings, which must be small beside Adam's epsilon.
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-3, eps=1e-5),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9),
}


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """Threads of models this small do little but wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _batch(like: Batch, lengths: list[int]) -> Batch:
    """Random words; sentences of the first batch end after so many."""
    words = torch.randint_like(like["input_ids"], high=50)
    mask = (torch.arange(words.shape[1]) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": words, "labels": words.masked_fill(mask == 0, -100), "attention_mask": mask}


def _either(number: int) -> list[int]:
    """Full and padded sentences, at random."""
    return [6, 6] if torch.rand(()) > 0.5 else [6, 1 + number % 5]


class _Training:
    """A model that is trained by a compiled step or as a compiled model, and an equal one that is trained eagerly."""

    def __init__(self, case: TrainingCase, optimizer: str, is_whole: bool):
        model, self.batch = case.make(True)
        self.models: list[nn.Module] = [model, copy.deepcopy(model)]
        self.optimizers = [_OPTIMIZERS[optimizer](one.parameters()) for one in self.models]
        self.compiled: Any = None if is_whole else ingot.jit(model)
        trained = [model if is_whole else self.compiled, self.models[1]]
        self._steps = [whole_step(*each, case.loss) for each in zip(trained, self.optimizers, strict=True)]
        if is_whole:
            self.compiled = self._steps[0] = ingot.jit(self._steps[0])

    @property
    def function(self) -> Any:
        return self.compiled.forward if isinstance(self.compiled, nn.Module) else self.compiled

    def train(self, number: int, lengths: list[int]) -> None:
        batch = _batch(self.batch, lengths)
        left = []
        for step in self._steps:
            torch.manual_seed(1000 + number)
            left.append((step(batch), torch.rand(())))
        same(left[0], left[1])

    def compare(self) -> None:
        same(self.models[0].state_dict(), self.models[1].state_dict())
        same(*([one.grad for one in model.parameters()] for model in self.models))
        same(*(one.state_dict()["state"] for one in self.optimizers))


@pytest.mark.parametrize("is_whole", [False, True], ids=["model", "step"])
@pytest.mark.parametrize("name", _OPTIMIZERS)
@pytest.mark.parametrize("case", [_BERT, _LLAMA], ids=lambda case: case.name)
def test_full_and_padded_batches_in_no_order(case: TrainingCase, name: str, is_whole: bool):
    training = _Training(case, name, is_whole)
    for number in range(STEPS):
        torch.manual_seed(number)
        training.train(number, _either(number))
    training.compare()
    assert training.function.tier == "skipping", training.function.explain()
    assert training.function.recordings <= 4


@pytest.mark.parametrize("is_whole", [False, True], ids=["model", "step"])
@pytest.mark.parametrize("case", [_BERT, _LLAMA], ids=lambda case: case.name)
def test_padding_that_first_comes_after_twenty_steps(case: TrainingCase, is_whole: bool):
    training = _Training(case, "AdamW", is_whole)
    for number in range(20):
        training.train(number, [6, 6])
    training.compare()
    before = training.function.recordings
    state = [one for kept in training.optimizers[0].state.values() for one in kept.values()]
    for number in range(20, 26):
        training.train(number, [6, 3])
        training.compare()
    assert training.function.recordings == before + 1
    assert training.function.tier == "skipping", training.function.explain()
    now = [one for kept in training.optimizers[0].state.values() for one in kept.values()]
    assert all(one is other for one, other in zip(state, now, strict=True))
