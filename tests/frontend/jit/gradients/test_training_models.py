"""Whole models that are trained for some steps: losses and weights follow eager's, with the model compiled and the step
around it not, and with the whole step compiled. INGOT_TEST_EXAMPLES asks for long trainings."""

from __future__ import annotations

import copy
import io
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from benchmarks.training.cases import CASES, Batch, TrainingCase, whole_step
from torch import nn

import ingot
from tests.frontend.jit.gradients.comparing_gradients import is_compiled, same

STEPS = 50 if "INGOT_TEST_EXAMPLES" in os.environ else 4
_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    # The bias of keys moves all scores of a row alike, which softmax takes away again: its gradient is nothing but
    # roundings, and Adam makes steps of full size of them unless they are small beside its epsilon.
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-3, eps=1e-5),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9),
}
_DISTINCT = [case for case in CASES if case.name not in ("GPT-2 4x128 h256", "BERT 4x128 h256, padded")]
"""Small, the two models of the first name are one; models with masks are in deciding/."""


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """Threads of models this small do little but wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _batch_like(batch: Batch) -> Batch:
    """Another batch, with labels that all cases have."""
    return {
        name: torch.randn_like(one) if one.is_floating_point() else torch.randint_like(one, high=10)
        for name, one in batch.items()
    }


def _train_both(models: list[nn.Module], steps: list[Callable[[Batch], Any]], batch: Batch) -> None:
    for number in range(STEPS):
        torch.manual_seed(number)
        given = _batch_like(batch)
        losses = []
        for step in steps:
            torch.manual_seed(1000 + number)
            losses.append(step(given))
        same(losses[0], losses[1])
    for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        same(one, other)


@pytest.mark.parametrize("name", _OPTIMIZERS)
@pytest.mark.parametrize("case", _DISTINCT, ids=lambda case: case.name)
def test_compiled_model(case: TrainingCase, name: str):
    model, batch = case.make(True)
    models = [model, copy.deepcopy(model)]
    optimizers = [_OPTIMIZERS[name](one.parameters()) for one in models]
    compiled = ingot.jit(model)
    steps = [whole_step(*each, case.loss) for each in zip((compiled, models[1]), optimizers, strict=True)]
    _train_both(models, steps, batch)
    assert is_compiled(compiled)


@pytest.mark.parametrize("name", _OPTIMIZERS)
@pytest.mark.parametrize("case", _DISTINCT, ids=lambda case: case.name)
def test_compiled_step(case: TrainingCase, name: str):
    model, batch = case.make(True)
    models = [model, copy.deepcopy(model)]
    optimizers = [_OPTIMIZERS[name](one.parameters()) for one in models]
    steps = [whole_step(*each, case.loss) for each in zip(models, optimizers, strict=True)]
    compiled: Any = ingot.jit(steps[0])
    _train_both(models, [compiled, steps[1]], batch)
    assert compiled.tier == "skipping", compiled.explain()
    assert compiled.recordings == 2


def test_groups_schedules_and_clipped_gradients():
    """As people train: no decay for biases and norms, a rate that rises first, and gradients that are clipped."""
    case = next(case for case in CASES if case.name.startswith("GPT-2"))
    model, batch = case.make(True)
    models = [model, copy.deepcopy(model)]

    def write(model: nn.Module) -> Callable[[Batch], Any]:
        decayed = [one for one in model.parameters() if one.dim() > 1]
        others = [one for one in model.parameters() if one.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, 1e-3, eps=1e-5)
        schedules.append(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 10)))

        def step(batch: Batch) -> Any:
            optimizer.zero_grad()
            loss = case.loss(model, batch)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach(), norm

        return step

    schedules: list[Any] = []
    eager = [write(one) for one in models]
    compiled: Any = ingot.jit(eager[0])

    def scheduled(step: Callable[[Batch], Any], schedule: Any) -> Callable[[Batch], Any]:
        return lambda batch: (step(batch), schedule.step())[0]

    _train_both(models, [scheduled(*each) for each in zip((compiled, eager[1]), schedules, strict=True)], batch)
    assert compiled.tier == "skipping", compiled.explain()


def test_a_warning_told_once_is_no_effect():
    """GPT-2 tells at its first loss, and by a function that keeps what it has told, that it takes the usual one."""
    case = next(case for case in CASES if case.name.startswith("GPT-2"))
    model, batch = case.make(True)
    compiled: Any = ingot.jit(whole_step(model, _OPTIMIZERS["SGD"](model.parameters()), case.loss))
    logger, told = logging.getLogger("transformers"), io.StringIO()
    handler = logging.StreamHandler(told)
    logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        for _ in range(4):
            compiled(batch)
    finally:
        logger.removeHandler(handler)
    assert told.getvalue().count("loss_type") == 1
    assert compiled.tier == "skipping", compiled.explain()
