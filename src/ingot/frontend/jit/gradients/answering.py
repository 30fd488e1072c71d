"""Answering one call that needs gradients.

In: a call, and what calls of its kind have become. Out: eager's results with gradients. The ways a call takes:

    plain      the function, while something is there that only eager serves: anomaly detection, hooks of saved tensors
    inside     the function, with PyTorch's graph kept inside an autograd.Function; once its backward pass is recorded
    compiled   two programs; in the first calls they take turns with the way before, and the quicker one is kept

A compiled call whose backward pass is not the recorded one, because other outputs are differentiated or gradients of
gradients are wanted, runs the function again and lets PyTorch differentiate it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import torch
from torch._C import _functorch as functorch  # pyright: ignore[reportAttributeAccessIssue]

from ingot.base.errors import IngotError
from ingot.frontend.jit.arguments.structure import Shape, put_together, take_apart
from ingot.frontend.jit.arguments.supported_tensors import refused_tensor
from ingot.frontend.jit.autotune.timing import combined, stopwatch
from ingot.frontend.jit.gradients.autograd_functions import (
    Differentiated,
    gradients_inside,
    has_python,
    hooked,
    is_observed,
    keeps_graph,
)
from ingot.frontend.jit.gradients.eligibility import leaf_tensors
from ingot.frontend.jit.gradients.gradient_calls import GradientCalls, GradientPrograms
from ingot.frontend.jit.gradients.joint_trace import JointTrace, storages_written
from ingot.frontend.jit.gradients.rerunning import Moment
from ingot.frontend.jit.gradients.standing_apart import (
    NOT_APART,
    Apart,
    StandIns,
    are_apart,
    replaced,
    stand_ins,
    without_hooks,
)
from ingot.frontend.jit.guards.environment import KnownTensors
from ingot.frontend.jit.trace.comparing import first_difference
from ingot.frontend.jit.trace.questions import has_other_answers
from ingot.frontend.jit.trace.recorder import Recording
from ingot.frontend.jit.trace.results import take_results
from ingot.frontend.jit.trace.trace import Trace, TraceValue


@dataclass(frozen=True, slots=True)
class Call:
    """A function and what it is called with."""

    function: Callable[..., Any]
    shape: Shape
    """How its arguments are nested."""
    leaves: Sequence[Any]
    tensors: Sequence[torch.Tensor]
    """Those among the leaves."""
    started: float = 0.0
    """When it began, by the clock."""

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword ones."""
        return put_together(self.shape, iter(self.leaves))

    def run(self) -> Any:
        args, kwargs = self.arguments
        return self.function(*args, **kwargs)

    def given(self, found: StandIns) -> Call:
        """The same call with stand-ins in the places of some arguments."""
        return dataclasses.replace(self, leaves=replaced(self.leaves, found), tensors=replaced(self.tensors, found))


def answer(calls: GradientCalls, call: Call) -> Any:
    """Answer a call of a kind in the way that suits it now."""
    calls.calls += 1
    if calls.refused is not None or is_observed():
        return call.run()
    programs = calls.prepare()
    if programs is None:
        return _record(calls, call)
    joint = programs.joint
    inputs = leaf_tensors(joint.trace, call.tensors, joint.inputs)
    if calls.eager_comparison.is_eagers_turn and not hooked(inputs):
        found = stand_ins(inputs, call.tensors)
        return call.run() if found is None else _GraphInside(calls, call, inputs, found).result()
    compiled = _Compiled(calls, programs, call, inputs)
    try:
        outputs = Differentiated.apply(compiled, *inputs)
        compiled.note_forward(call.started)
    except IngotError as error:
        if programs.forward.has_effects:
            raise
        calls.refuse(f"{type(error).__name__}: {error}")
        return call.run()
    found = dict(zip(joint.outputs, outputs, strict=True))
    return calls.build_result([found[one] if isinstance(one, TraceValue) else one for one in joint.trace.results])


def _record(calls: GradientCalls, call: Call) -> Any:
    """Run a call with its graph inside, and record it where that is due."""
    if not calls.is_recorded_next():
        return call.run()
    inputs = [one for one in leaf_tensors(calls.trace, call.tensors) if one.requires_grad]
    if hooked(inputs) or (found := stand_ins(inputs, call.tensors)) is None:
        return call.run()
    around = KnownTensors(tensors={id(tensor): tensor for tensor in calls.trace.environment_tensors})
    arguments = replaced(call.tensors, found)
    recording = Recording(arguments, around, allows_questions=bool(calls.trace.questions))
    return _GraphInside(calls, call, inputs, found, recording).result()


def leaf_of(trace: Trace, value: TraceValue, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor that a leaf of a trace stands for in a call."""
    return leaf_tensors(trace, tensors, [value])[0]


def _tensors_among(leaves: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors in a result, each once."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}.values())


class _TimedCall:
    """A call whose two passes are timed, and which can be run again."""

    def __init__(self, calls: GradientCalls, call: Call, inputs: Sequence[torch.Tensor]):
        trace = calls.trace
        self.calls, self._call, self._inputs = calls, call, inputs
        self._device = trace.device
        self._forward: SupportsFloat | None = None
        written = leaf_tensors(trace, call.tensors, calls.written)
        self._moment = Moment(leaf_tensors(trace, call.tensors), written, calls.draws)

    def _again(self, tangents: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """The gradients by PyTorch, of the function run again."""
        if torch.is_grad_enabled() and not are_apart(self._inputs):
            return self._differentiable(tangents)
        found = stand_ins(self._inputs, self._call.tensors) if not torch.is_grad_enabled() else {}
        if found is None:
            raise RuntimeError(NOT_APART)
        inputs = replaced(self._inputs, found)
        with without_hooks(inputs):
            return gradients_inside(self._run_again(found), inputs, tangents, keep=torch.is_grad_enabled())

    def _differentiable(self, tangents: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """Gradients that can be differentiated themselves, of inputs that were made of each other."""
        inputs, count = self._inputs, len(self._inputs)
        if stand_ins(inputs, self._call.tensors) is None:
            raise RuntimeError(NOT_APART)
        there = [position for position, tangent in enumerate(tangents) if tangent is not None]

        def make(operands: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
            found = {id(one): operand for one, operand in zip(inputs, operands[:count], strict=True)}
            outputs = self._run_again(found)
            given = operands[:count]
            with without_hooks(given):
                return gradients_inside([outputs[one] for one in there], given, operands[count:], keep=True)

        return Apart.apply(make, *inputs, *(tangents[one] for one in there))

    def _run_again(self, found: StandIns) -> Sequence[torch.Tensor]:
        """The outputs of the function run again with stand-ins in the places of some arguments."""
        result = self._moment.again(self._call.given(found).run, self.calls.state, self.calls.still_holds)
        leaves: list[Any] = []
        take_apart(result, leaves)
        return _tensors_among(leaves)

    def _timed_forward(self, run: Callable[[], Any]) -> Any:
        if self.calls.eager_comparison.is_settled:
            return run()
        watch = stopwatch(self._device)
        result = run()
        self._forward = watch.stop()
        return result

    def note_forward(self, started: float) -> None:
        """What was done around a compiled call counts as well, since eager does without it: the processor's time, or
        that of a GPU where it takes longer."""
        if self._forward is not None:
            self._forward = combined(max, self._forward, time.perf_counter() - started)

    def _timed_backward(self, run: Callable[[], Any], is_eager: bool) -> Any:
        forward, self._forward = self._forward, None
        if forward is None:
            return run()
        watch = stopwatch(self._device)
        result = run()
        self.calls.note(combined(sum, forward, watch.stop()), is_eager)
        return result


class _GraphInside(_TimedCall):
    """A call of the function as it is, with the graph that PyTorch makes of it kept inside, and recorded if asked."""

    def __init__(
        self,
        calls: GradientCalls,
        call: Call,
        inputs: Sequence[torch.Tensor],
        found: StandIns,
        recording: Recording | None = None,
    ):
        super().__init__(calls, call, inputs)
        self._apart, self._inner = call.given(found), replaced(inputs, found)
        """The call with stand-ins for arguments that were made of anything, and its inputs."""
        self._recording = recording
        self._outputs: list[torch.Tensor] = []
        """With their history, each once."""
        self._leaves: list[Any] = []
        self._shape: Any = None
        self._forward_events = 0

    def result(self) -> Any:
        outputs = Differentiated.apply(self, *self._inputs)
        leaves, self._leaves = self._leaves, []
        found = {id(inner): one for inner, one in zip(self._outputs, outputs, strict=True)}
        return put_together(self._shape, iter([found.get(id(leaf), leaf) for leaf in leaves]))

    def forward(self) -> tuple[Sequence[torch.Tensor], Sequence[bool], Sequence[torch.Tensor]]:
        with torch.enable_grad():
            result = self._timed_forward(self._run)
        self._shape = take_apart(result, self._leaves)
        self._outputs = _tensors_among(self._leaves)
        if self._recording is not None:
            self._check(self._recording, result)
        return [one.detach() for one in self._outputs], [one.requires_grad for one in self._outputs], ()

    def _run(self) -> Any:
        if self._recording is None:
            return self._apart.run()
        args, kwargs = self._apart.arguments
        return self._recording.run(self._call.function, args, kwargs, is_alone=False)

    def _check(self, recording: Recording, result: Any) -> None:
        """See that the call was like the first of its kind, and that its backward pass can be recorded."""
        take_results(recording, result)
        self._forward_events = len(recording.trace.events)
        different = first_difference(self.calls.trace, recording.trace)
        if recording.broken is None and different is not None and has_other_answers(self.calls.trace, recording.trace):
            self._recording = None  # a value at the edge of a decision: another path was taken than was found
            return
        reason = recording.broken.reason if recording.broken is not None else different and different.text
        reason = reason or has_python(self._outputs, self._inner)
        if reason:
            self.calls.refuse(reason)
            self._recording = None

    def backward(
        self, kept: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        if torch.is_grad_enabled():  # what is made of this graph now would use it up when it is differentiated itself
            return self._again(tangents)
        keep, recording, self._recording = keeps_graph(), self._recording, None
        are_as_before = all(one.requires_grad for one in self._inner)
        if recording is not None and are_as_before and not _are_unusual(tangents):
            return self._recorded(recording, tangents, keep)
        run = lambda: self._gradients(tangents, keep)
        return self._timed_backward(run, is_eager=True)

    def _gradients(self, tangents: Sequence[torch.Tensor | None], keep: bool) -> Sequence[torch.Tensor | None]:
        with without_hooks(self._inner):  # there were none when the call began
            return gradients_inside(self._outputs, self._inner, tangents, keep)

    def _recorded(
        self, recording: Recording, tangents: Sequence[torch.Tensor | None], keep: bool
    ) -> Sequence[torch.Tensor | None]:
        given = [
            None if tangent is None else _like(tangent, torch.empty_like(tangent).stride()).detach()
            for tangent in tangents  # dense, and objects of their own
        ]
        known = [None if tangent is None else recording.add_argument(tangent) for tangent in given]
        run = lambda: self._gradients(given, keep)
        gradients = recording.run_more(run)
        results = [None if one is None else recording.value_of(one) for one in gradients]
        if recording.broken is None and any(
            one is not None and result is None for one, result in zip(gradients, results, strict=True)
        ):
            recording.stop("a gradient is made outside PyTorch's operators")
        if recording.broken is not None:
            self.calls.refuse(recording.broken.reason)
            return gradients
        outputs, inputs = map(recording.value_of, self._outputs), map(recording.value_of, self._inner)
        joint = JointTrace(
            recording.trace,
            self._forward_events,
            tuple(one for one in outputs if one is not None),
            tuple(one.requires_grad for one in self._outputs),
            tuple(known),
            tuple(one for one in inputs if one is not None),
            tuple(results),
        )
        if storages_written(joint.trace, joint.backward) & {note.storage for note in _before_backward(joint)}:
            self.calls.refuse("its backward pass writes into what the call has made")
        else:
            self.calls.take(joint)
        return gradients


def _before_backward(joint: JointTrace) -> list[Any]:
    trace = joint.trace
    return [note for index, note in enumerate(trace.tensors) if not joint.is_of_backward(TraceValue(index))]


class _Compiled(_TimedCall):
    """A call that two programs answer."""

    def __init__(self, calls: GradientCalls, programs: GradientPrograms, call: Call, inputs: Sequence[torch.Tensor]):
        super().__init__(calls, call, inputs)
        self._programs = programs

    def forward(self) -> tuple[Sequence[torch.Tensor], Sequence[bool], Sequence[torch.Tensor]]:
        programs, tensors = self._programs, self._call.tensors
        trace, count = programs.joint.trace, len(programs.joint.outputs)
        run = lambda: programs.forward.function(tensors, trace.environment_tensors, ())
        results = self._timed_forward(run)
        made = dict(zip(programs.split.made, results[count:], strict=True))
        moments = programs.split.moments
        kept = [
            made[one]
            if one in made
            else leaf_of(trace, moments[one], tensors).detach()
            if one in moments
            else leaf_of(trace, one, tensors)
            for one in programs.split.kept
        ]
        outputs = [one.detach() if one._is_view() else one for one in results[:count]]
        return outputs, programs.joint.is_differentiable, kept

    def backward(
        self, kept: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        joint = self._programs.joint
        pattern = [tangent is not None for tangent in tangents]
        is_known = pattern == [tangent is not None for tangent in joint.tangents]
        if torch.is_grad_enabled() or not is_known or _are_unusual(tangents):
            return self._again(tangents)
        given = [
            _like(tangent, joint.trace.note(known).strides)
            for tangent, known in zip(tangents, joint.tangents, strict=True)
            if tangent is not None and known is not None
        ]
        try:
            program = self.calls.backward_program(self._programs)
            referenced = leaf_tensors(joint.trace, self._call.tensors, self._programs.split.referenced)
            run = lambda: program.function((*kept, *referenced, *given), joint.trace.environment_tensors, ())
            return self._timed_backward(run, is_eager=False)
        except IngotError as error:
            self.calls.refuse(f"{type(error).__name__}: {error}")
            return self._again(tangents)


def _are_unusual(tangents: Sequence[torch.Tensor | None]) -> bool:
    """Whether gradients that come in are such as generated code is not made for."""
    return any(
        tangent is not None and (refused_tensor(tangent) is not None or any(test(tangent) for test in _WRAPPED))
        for tangent in tangents
    )


_WRAPPED = (functorch.is_functorch_wrapped_tensor, functorch.is_legacy_batchedtensor)
"""Tests for tensors that stand for many, or for one and its derivative."""


def _like(tangent: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A gradient that lies in memory as the one that was recorded did."""
    if tangent.stride() == tuple(strides):
        return tangent
    return torch.empty_strided(tangent.shape, strides, dtype=tangent.dtype, device=tangent.device).copy_(tangent)
