"""Steps of optimizers and of gradient scalers within a recording: known calls, for which operations of ingot's stand.

In: a step that is about to run, or a method of a scaler, with the frame that runs it. Out: an operation for each group
of parameters, noted when the step has run (runtime/optimizers). A scaler's own operations are recorded as they run;
whether it has found infinities is an operand of the step, which does nothing then. What always holds: a step that is
not understood in every detail ends the recording.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD, AdamW, Optimizer

from ingot.frontend import optimizers
from ingot.frontend.jit.python_code.source_lines import user_place
from ingot.frontend.jit.trace.trace import SettingNumber, TraceOp, TraceValue, Training, Variable
from ingot.runtime.optimizers.steps import ADAM_STEP, SGD_STEP, UNSCALE_STEP
from ingot.runtime.optimizers.torch_steps import TORCH_STEP, Setting

if TYPE_CHECKING:
    from ingot.frontend.jit.trace.recorder import Recording
    from ingot.frontend.jit.trace.training_calls import TrainingCalls

_MAKES_STATE = "makes its state in this call"
"""What the first step of an optimizer does, and no other one."""
_UNSEEN_SCALER = "it uses a gradient scaler in a way that is not understood"


class _NotedGroup:
    """The tensors of a group of parameters before a step: parameters, gradients, and what is kept for them."""

    def __init__(self, group: dict[str, Any], columns: list[list[torch.Tensor]]):
        self.group, self.columns = group, columns
        self.versions = [column[0]._version for column in columns]
        """How often the first tensor of each column has been written; a step writes all of a column as often."""

    @property
    def moves(self) -> list[int]:
        """How often each column has been written since, gradients second."""
        return [column[0]._version - before for column, before in zip(self.columns, self.versions, strict=True)]


@dataclass(frozen=True)
class _Scaling:
    """What a scaler has to say about a step."""

    found_inf: TraceValue | None = None
    scale: TraceValue | None = None
    is_fused: bool = False
    """Whether the step itself is told of infinities, and counts its writes if there are some."""


class OptimizerCalls:
    """What one recording has seen of such calls."""

    def __init__(self, recording: Recording, calls: TrainingCalls, training: Training):
        self._recording, self._calls, self._training = recording, calls, training
        self._rates: list[torch.Tensor] = []
        """Settings that are tensors: they are read when a call begins."""
        self._scalers: dict[int, Any] = {}

    # --- steps --------------------------------------------------------------------------------------------------------

    def begin_step(self, given: Sequence[Any], keywords: dict[str, Any]) -> Callable[[], None] | None:
        """Note what a step will read; the events come after it, since eager's own step is what runs."""
        if len(given) != 1 or keywords.get("closure") is not None:
            self._recording.stop("it calls step with a closure")
            return None
        scaling = self._of_fused_step(given[0])
        return None if scaling is None else self._begin(given[0], scaling)

    def begin_unless_skipped(self, frame: types.FrameType) -> Callable[[], None] | None:
        """A scaler is about to take a step of an optimizer unless it has found infinities in the gradients."""
        given = frame.f_locals
        found = list(given["optimizer_state"]["found_inf_per_device"].values())
        noted = self._recording.value_of(found[0]) if len(found) == 1 else None
        if noted is None or given["args"] or given["kwargs"]:
            self._recording.stop(_UNSEEN_SCALER)
            return None
        if found[0].item():  # how often a step writes is not seen then
            self._recording.stop("a gradient scaler leaves a step out in this call", is_for_now=True)
            return None
        return self._begin(given["optimizer"], _Scaling(noted))

    def _of_fused_step(self, optimizer: Any) -> _Scaling | None:
        """What a scaler has told an optimizer whose fused kernel asks; None if that cannot be seen."""
        told = vars(optimizer)
        infinities, scale = told.get("found_inf"), told.get("grad_scale")
        if infinities is None and scale is None:
            return _Scaling()
        values = [None if one is None else self._recording.value_of(one) for one in (infinities, scale)]
        if values[0] is None or (scale is not None and values[1] is None):
            self._recording.stop(_UNSEEN_SCALER)
            return None
        return _Scaling(*values, is_fused=True)

    def _begin(self, optimizer: Any, scaling: _Scaling) -> Callable[[], None] | None:
        refused = optimizers.why_not(optimizer)
        if refused is not None:
            self._recording.stop(refused)
            return None
        assert isinstance(optimizer, Optimizer)
        noted: list[_NotedGroup] = []
        for group in optimizer.param_groups:
            reason = self._note_group(optimizer, group, noted)
            if reason is not None:
                self._recording.stop(reason, is_for_now=reason.endswith(_MAKES_STATE))
                return None
        events = self._recording.trace.events
        return lambda: events.extend(event for one in noted for event in self._events(optimizer, one, scaling))

    def _note_group(self, optimizer: Optimizer, group: dict[str, Any], noted: list[_NotedGroup]) -> str | None:
        """Note the tensors of one group of parameters, by their types and devices; why that cannot be done, if it
        cannot."""
        name = type(optimizer).__name__
        kept, counted = optimizers.kept_state(optimizer, group), optimizers.kept_counts(optimizer, group)
        alike: dict[Hashable, list[list[torch.Tensor]]] = {}
        for parameter in group["params"]:
            if not self._calls.know(parameter):
                return f"{name} has a parameter that is not understood"
            self._calls.reads_gradient(parameter)
            gradient = parameter.grad
            if gradient is None:
                continue
            state = dict.get(optimizer.state, parameter, {})
            if any(state.get(key) is None for key in (*kept, *counted)):
                return f"{name} {_MAKES_STATE}"
            tensors, counts = [gradient, *(state[key] for key in kept)], [state[key] for key in counted]
            if not all(optimizers.is_plain(one, parameter) for one in (parameter, *tensors)):
                return f"a parameter of {name}, its gradient or its state is not dense, or not of one type"
            if not optimizers.are_counts(counts, parameter):
                return f"the step count of {name} is not the usual one"
            if self._recording.value_of(gradient) is None:
                return f"{name} uses a gradient that ingot cannot see"
            places = (parameter.device, *(one.device for one in counts[:1]))
            if not optimizers.can_step_on(optimizer, group, *places):
                return f"{name} has its step counts on another device than the function that computes its steps wants"
            alike.setdefault((parameter.dtype, *places), []).append([parameter, *tensors, *counts])
        for rows in alike.values():
            noted.append(_NotedGroup(group, [list(column) for column in zip(*rows, strict=True)]))
        return None

    def _events(self, optimizer: Optimizer, noted: _NotedGroup, scaling: _Scaling) -> list[TraceOp]:
        """The operations that stand for what a step has done to the tensors of a group."""
        parameters, gradients, *state = map(self._values, noted.columns)
        target, given = self._step(optimizer, noted.group, parameters, gradients, state)
        given = (*given, noted.moves, scaling.found_inf, scaling.is_fused)
        found = [TraceOp(target, given, {}, None, user_place())]
        if scaling.scale is not None:
            unscaled = (gradients, scaling.scale, scaling.found_inf)
            found.insert(0, TraceOp(UNSCALE_STEP, unscaled, {}, None, user_place()))
        return found

    def _step(
        self,
        optimizer: Optimizer,
        group: dict[str, Any],
        parameters: list[TraceValue],
        gradients: list[TraceValue],
        state: list[list[TraceValue]],
    ) -> tuple[Any, tuple[Any, ...]]:
        """The operator that stands for a step, and its first arguments."""
        read: Callable[..., Variable] = lambda key, index=None: self._setting(group, (key, index))
        called = optimizers.torch_step_of(optimizer, group)
        if called is not None:
            name, step = called
            numbers = [self._setting(group, setting) for setting in step.numbers.values()]
            switches = [bool(group.get(switch, isinstance(optimizer, AdamW))) for switch in step.switches]
            flat = [value for column in state for value in column]
            return TORCH_STEP, (parameters, gradients, flat, name, step.names(group), numbers, switches)
        if isinstance(optimizer, SGD):
            numbers = [read(key) for key in ("lr", "momentum", "dampening", "weight_decay")]
            flags = bool(group["nesterov"]), bool(group["maximize"])
            return SGD_STEP, (parameters, gradients, state[0] if state else [], *numbers, *flags)
        is_decoupled = bool(group.get("decoupled_weight_decay", isinstance(optimizer, AdamW)))
        numbers = [read("lr"), read("betas", 0), read("betas", 1), read("weight_decay"), read("eps")]
        return ADAM_STEP, (parameters, gradients, *state, *numbers, is_decoupled, bool(group["maximize"]))

    def _values(self, tensors: Sequence[torch.Tensor]) -> list[TraceValue]:
        """The values of gradients, and of what counts as found around the function: parameters and their state."""
        values = [self._recording.value_of(one) or self._recording.add_found(one) for one in tensors]
        return [one for one in values if one is not None]

    def _setting(self, group: dict[str, Any], setting: Setting) -> Variable:
        if isinstance(group[setting[0]], torch.Tensor):
            self._rates.append(group[setting[0]])
        settings = self._training.settings
        settings.append(SettingNumber(group, *setting))
        return Variable(len(settings) - 1, float)

    # --- scalers ------------------------------------------------------------------------------------------------------

    def see_scaler(self, frame: types.FrameType) -> None:
        """A method of a scaler is about to run, whose operations are recorded."""
        scaler, optimizer = frame.f_locals.get("self"), frame.f_locals.get("optimizer")
        if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled():
            with torch._C.DisableTorchFunction():
                self._see(frame.f_code, scaler, optimizer)

    def _see(self, code: types.CodeType, scaler: torch.amp.GradScaler, optimizer: Any) -> None:
        if code is optimizers.SCALER_MAKES_STATE:
            self._recording.stop(f"a gradient scaler {_MAKES_STATE}", is_for_now=True)
        if id(scaler) not in self._scalers:
            self._scalers[id(scaler)] = scaler
            if scaler._per_optimizer_states:
                self._recording.stop("a gradient scaler has looked at gradients before the call")
            for tensor in (scaler._scale, scaler._growth_tracker):
                if tensor is not None:
                    self._recording.add_found(tensor)
        for parameter in optimizers.parameters_of(optimizer) if isinstance(optimizer, Optimizer) else ():
            self._calls.know(parameter)

    # --- the end ------------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Look at what must be so when the call has ended."""
        if any(scaler._per_optimizer_states for scaler in self._scalers.values()):
            self._recording.stop("it takes a step with a gradient scaler, and does not update it")
        if any(map(self._recording.has_touched, self._rates)):
            self._recording.stop("it uses a learning rate that is a tensor for something else, too")
