"""Whole training steps: calls that differentiate within, and may update parameters, as one program.

In: the trace of such a call, with what it does to `.grad`. Out: a program that runs without gradients being recorded,
reads the settings of optimizers, leaves in `.grad` what eager leaves there, and reads numbers that are returned. What
always holds: gradients that nothing keeps are never made; a result whose history eager has used up cannot be
differentiated here either.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.arguments.structure import take_apart
from ingot.frontend.jit.gradients.autograd_functions import is_observed
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram
from ingot.frontend.jit.proof.domain.answers import expression
from ingot.frontend.jit.trace.trace import TensorMeta, Trace, Training


def needs_more_gradients(result: Any, training: Training) -> bool:
    """Whether a call has returned a tensor whose history it has not used up itself."""
    leaves: list[Any] = []
    take_apart(result, leaves)
    return any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad and place not in training.spent
        for place, leaf in enumerate(leaves)
    )


def with_more_results(trace: Trace) -> Trace:
    """The trace with more results after the others: the gradients that the call leaves behind, and tensors whose values
    it returns."""
    if trace.training is None:
        return trace
    left = [update.value for update in trace.training.updates if update.value is not None]
    return dataclasses.replace(trace, results=[*trace.results, *left, *(value for _, value in trace.training.read)])


def as_whole_step(program: RecordedProgram, trace: Trace, training: Training) -> RecordedProgram:
    """A program of `with_more_results(trace)`, with what has to be done around it."""
    step = _WholeStep(program, training, len(trace.results), torch.is_grad_enabled())
    return dataclasses.replace(program, function=step, is_whole_step=True)


class _WholeStep:
    """Called like the function of a program."""

    def __init__(self, program: RecordedProgram, training: Training, results: int, is_differentiated: bool):
        self._function = program.function
        self._settings = training.settings
        self._schedules = training.schedules
        self._cleared = training.cleared
        self._results = results
        self._spent = training.spent if is_differentiated else ()
        places = itertools.count(results)
        self._updates = [
            (update.position, None if update.value is None else next(places)) for update in training.updates
        ]
        self._read = [next(places) for _ in training.read]
        self._readings = [(place, expression(text)) for place, text in training.readings]

    def __call__(self, tensors: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        settings = [float(setting.read()) for setting in self._settings]
        for position in self._cleared:  # so that their memory is free during the step
            environment_tensors[position].grad = None
        results = without_gradients(self._function, tensors, environment_tensors, settings)
        for position, place in self._updates:
            gradient = None if place is None else results[place]
            if gradient is not None and gradient._is_view():
                gradient = gradient.detach()
            environment_tensors[position].grad = gradient
        values = [results[place].item() for place in self._read]
        for place, evaluate in self._readings:
            results[place] = evaluate(values)
        for schedule in self._schedules:
            schedule.step()
        del results[self._results :]
        for place in self._spent:
            results[place] = _Spent.apply(_anchor, results[place])
        return results


_anchor = torch.zeros((), requires_grad=True)
"""What makes a result of `_Spent` one that requires gradients."""


class _Spent(torch.autograd.Function):
    """The history of a result whose graph the call itself has differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the compiled step has differentiated this result "
            "already, and has freed what that needs"
        )


@dataclass(frozen=True, eq=False)
class GradientGuard:
    """What tensors that accumulate gradients must have in `.grad` when a call begins, and that no hooks look on."""

    tensors: tuple[torch.Tensor, ...]
    """All tensors that the call changes the gradients of, reads them, or is given them by `torch.autograd.grad`."""
    expected: tuple[tuple[torch.Tensor, TensorMeta | None], ...]
    text: str = "a gradient, or a hook of one"

    @staticmethod
    def of(trace: Trace, training: Training) -> GradientGuard:
        around = trace.environment_tensors
        positions = dict.fromkeys([update.position for update in training.updates])
        positions |= dict.fromkeys([position for position, _ in training.expected])
        positions |= dict.fromkeys(training.inputs)
        return GradientGuard(
            tuple(around[position] for position in positions),
            tuple((around[position], note) for position, note in training.expected),
        )

    @property
    def key(self) -> Hashable:
        """Guards with equal keys look at the same gradients, and expect the same of them."""
        expected = tuple((id(tensor), note) for tensor, note in self.expected)
        return GradientGuard, frozenset(map(id, self.tensors)), expected

    def holds(self) -> bool:
        if is_observed():
            return False
        for tensor in self.tensors:
            if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                return False
        return all(_is_like(tensor.grad, note) for tensor, note in self.expected)


def _is_like(gradient: torch.Tensor | None, note: TensorMeta | None) -> bool:
    if gradient is None or note is None:
        return gradient is None and note is None
    return (
        type(gradient) is torch.Tensor
        and gradient.dtype is note.dtype
        and gradient.shape == note.shape
        and gradient.layout is torch.strided
        and gradient.stride() == note.strides
        and gradient.device == note.device
        and gradient.grad_fn is None
    )
