"""Calls that train: what a recording notes of backward passes, of `zero_grad` and of optimizers' steps.

In: a recording in progress, and the calls of these functions as Python's profiling hook and the function mode see them.
Out: events and a `Training` in the trace. A backward pass is recorded operation by operation, as PyTorch runs it. Steps
of optimizers and `zero_grad` are known calls: what they do inside is not recorded (optimizer_calls.py). What always
holds: a call that is not understood in every detail ends the recording.
"""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend import optimizers
from ingot.frontend.jit.python_code.library_code import is_librarys
from ingot.frontend.jit.python_code.source_lines import user_place
from ingot.frontend.jit.trace.optimizer_calls import OptimizerCalls
from ingot.frontend.jit.trace.trace import (
    GradientOf,
    GradientUpdate,
    TraceOp,
    Training,
    draws_numbers,
    written_arguments,
)
from ingot.runtime.overlaps import are_joined

if TYPE_CHECKING:
    from ingot.frontend.jit.trace.recorder import Recording


BACKWARD: Any = torch.Tensor.backward
GRAD: Any = torch.autograd.grad
"""The functions that run a backward pass."""
_ARGUMENTS = ("gradient", "retain_graph", "create_graph", "inputs")
"""Arguments of backward that are not compiled."""


class TrainingCalls:
    """What one recording has seen of such calls."""

    def __init__(self, recording: Recording):
        self._recording: Recording = weakref.proxy(recording)  # which holds this object
        self._training = Training()
        self._is_active = False
        """Whether the call differentiates, or does what only training does."""
        self.is_within = False
        """Whether a known call runs: what it does inside is not recorded."""
        self._is_backward = False
        """Whether a backward pass runs."""
        self._had_threads: bool | None = None
        """While one runs: whether PyTorch may use several threads for it otherwise."""
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        """Tensors that may accumulate gradients, and what they had accumulated when the call began."""
        self._gradients: dict[int, torch.Tensor] = {}
        """Those gradients, by identity: the tensors that have them."""
        self._cleared: set[int] = set()
        """Tensors whose gradients were set to None before anything was accumulated."""
        self._cleared_first: set[int] = set()
        """Those of them for which that was so before any operation ran."""
        self._read: set[int] = set()
        """Tensors whose gradients a step has looked at."""
        self._roots: list[Any] = []
        """The nodes that backward passes began with."""
        self._asked_of: set[Any] = set()
        """The nodes that `torch.autograd.grad` began with, where it has used them up."""
        self._inputs: list[torch.Tensor] = []
        """Tensors from before the call that it was asked for the gradients of."""
        self._scheduled_at: int | None = None
        """How many operations came before the first step of a schedule."""
        self._finish: Callable[[], None] | None = None
        self._optimizers = OptimizerCalls(self._recording, weakref.proxy(self), self._training)

    def begin(self, tensors: Sequence[torch.Tensor]) -> None:
        """Note the gradients that tensors have before the call."""
        for tensor in tensors:
            # A view that others have written into cannot be asked, and accumulates nothing.
            if tensor.requires_grad and not tensor._is_view() and tensor.is_leaf:
                self._note_before(tensor)

    def _note_before(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._before:
            self._before[id(tensor)] = (tensor, tensor.grad)
            if tensor.grad is not None:
                self._gradients[id(tensor.grad)] = tensor

    def know(self, parameter: torch.Tensor) -> bool:
        """Take note of a parameter of an optimizer or a module; whether it can be one of the trace's tensors."""
        self._note_before(parameter)
        return self._recording.add_found(parameter) is not None

    def owner_of(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """The tensor that had a gradient in its `.grad` when the call began."""
        owner = self._gradients.get(id(gradient))
        return owner if owner is not None and self._before[id(owner)][1] is gradient else None

    def reads_gradient(self, tensor: Any) -> bool:
        """Python asks a tensor for its gradient: whether it is one whose gradients are known."""
        if id(tensor) not in self._before:
            return False
        self._is_active = True
        if id(tensor) not in self._cleared:
            self._read.add(id(tensor))
        return True

    # --- backward passes ----------------------------------------------------------------------------------------------

    def begin_backward(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._is_active = self._is_backward = True
        unusual = len(args) > 1 or any(kwargs.get(key) for key in _ARGUMENTS)
        root = args[0] if args else None
        if unusual or not isinstance(root, torch.Tensor):
            self._recording.stop("it calls backward with arguments that are not compiled")
        elif root.grad_fn is not None:
            self._roots.append(root.grad_fn)
            self._stay_on_this_thread([root])

    def begin_grad(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """`torch.autograd.grad` is about to run, which accumulates nothing."""
        self._is_active = self._is_backward = True
        given = inspect.signature(torch.autograd.grad).bind(*args, **kwargs).arguments
        inputs, outputs = _flat(given["inputs"]), _flat(given["outputs"])
        if given.get("is_grads_batched") or not all(isinstance(one, torch.Tensor) for one in (*inputs, *outputs)):
            self._recording.stop("it calls torch.autograd.grad with arguments that are not compiled")
            return
        self._inputs += [one for one in inputs if not self._recording.has_made(one)]
        is_kept = given.get("retain_graph")
        if not (given.get("create_graph") if is_kept is None else is_kept):
            self._asked_of.update(one.grad_fn for one in outputs)
        self._stay_on_this_thread(outputs)

    def _stay_on_this_thread(self, roots: Sequence[torch.Tensor]) -> None:
        """Have backward passes of GPUs run here, where their Python code is seen, and not on threads of their own."""
        if not all(one.is_cpu for one in roots):
            self._had_threads = torch._C._is_multithreading_enabled()
            torch._C._set_multithreading_enabled(False)

    def end_backward(self) -> None:
        self._is_backward = False
        had_threads, self._had_threads = self._had_threads, None
        if had_threads is not None:
            torch._C._set_multithreading_enabled(had_threads)

    def see(self, frame: types.FrameType) -> None:
        """Python code begins to run."""
        if frame.f_code in optimizers.SCALER_CODES:
            self._optimizers.see_scaler(frame)
        elif self._is_backward and not _is_pytorchs(frame.f_globals.get("__name__")):
            self._recording.stop("its backward pass runs Python code: a hook, a Function of one's own or a checkpoint")

    # --- known calls --------------------------------------------------------------------------------------------------

    def is_known(self, code: types.CodeType) -> bool:
        return code in optimizers.KNOWN_CODES

    def begin_known(self, frame: types.FrameType) -> bool:
        self._is_active = self.is_within = True
        if frame.f_code is optimizers.STEP_CODE:
            given, keywords = frame.f_locals["args"], frame.f_locals["kwargs"]
            self._finish = self._optimizers.begin_step(given, keywords)
        elif frame.f_code is optimizers.SCALED_STEP:
            self._finish = self._optimizers.begin_unless_skipped(frame)
        elif frame.f_code in optimizers.SCHEDULE_CODES:
            self._begin_schedule(frame.f_locals["self"], frame.f_locals["epoch"])
        else:
            owner, to_none = frame.f_locals["self"], frame.f_locals["set_to_none"]
            self._begin_zeroing(optimizers.parameters_of(owner), to_none)
        return self._recording.broken is None

    def end_known(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None and self._recording.broken is None:
            finish()
        self.is_within = False

    def _begin_schedule(self, schedule: Any, epoch: Any) -> None:
        """A schedule takes a step, which will be taken in Python at the end of every call."""
        if epoch is not None or not optimizers.is_known_schedule(schedule):
            self._recording.stop("it calls a step of a schedule that is not known, or gives it an epoch")
        self._training.schedules.append(schedule)
        if self._scheduled_at is None:
            self._scheduled_at = len(self._recording.trace.events)

    def _begin_zeroing(self, parameters: Sequence[torch.Tensor], to_none: bool) -> None:
        recording = self._recording
        for parameter in parameters:
            gradient = parameter.grad
            if not self.know(parameter):
                recording.stop("it sets gradients of a tensor that is not understood")
                return
            if to_none:
                if not self._roots and id(parameter) not in self._read:
                    self._cleared.add(id(parameter))
                    if not recording.trace.events:
                        self._cleared_first.add(id(parameter))
            elif gradient is not None:
                value = recording.value_of(gradient)
                if value is None or gradient.grad_fn is not None:
                    recording.stop("it sets a gradient to zero that was made where ingot cannot see it")
                    return
                self._add(torch.ops.aten.zero_.default, (value,), value)

    def _add(self, target: Any, arguments: tuple[Any, ...], results: Any) -> None:
        self._recording.trace.events.append(TraceOp(target, arguments, {}, results, user_place()))

    # --- the end ------------------------------------------------------------------------------------------------------

    def conclude(self, results: Sequence[Any]) -> None:
        """Note what the call has left in `.grad`, and which of its results have no history any more that could be
        differentiated; called when the results have been noted."""
        recording = self._recording
        if not self._is_active or recording.broken is not None:
            return
        trace, training = recording.trace, self._training
        self._optimizers.conclude()
        if len({note.device for note in trace.tensors if note.device.type != "cpu"}) > 1:
            recording.stop("whole training steps are compiled for one GPU alone")
            return
        gradients = [one for _, one in self._before.values() if one is not None and one.layout is torch.strided]
        if are_joined([(_extent(one), number) for number, one in enumerate(gradients) if one.nbytes]):
            reason = "gradients of several tensors share memory, as they need not at later calls"
            recording.stop(reason, is_for_now=True)
        used = {note.origin.position for note in trace.tensors if isinstance(note.origin, GradientOf)}
        for tensor, before in self._before.values():
            after = tensor.grad
            is_cleared = id(tensor) in self._cleared
            position = recording.position_of(tensor)
            if position is None:
                if after is not before:
                    recording.stop("a tensor accumulates gradients that ingot cannot see, or an argument does")
                continue
            is_read = position in used or id(tensor) in self._read
            if id(tensor) in self._cleared_first and not is_read:
                training.cleared.append(position)
            if is_read or (after is not before and not is_cleared):
                expected = None if before is None else recording.note_of(before)
                if before is not None and expected is None:
                    recording.stop("a gradient is replaced that was not made by PyTorch's operators")
                training.expected.append((position, expected))
            if after is not before or is_cleared:
                value = None if after is None else recording.value_of(after)
                if after is not None and value is None:
                    recording.stop("a gradient is made outside PyTorch's operators")
                training.updates.append(GradientUpdate(position, value))
        positions = [recording.position_of(one) for one in self._inputs]
        if None in positions:
            recording.stop("it differentiates by an argument")
        if self._scheduled_at is not None and any(map(_has_effect, trace.events[self._scheduled_at :])):
            recording.stop("it draws random numbers or writes after a schedule has taken a step")
        training.inputs = tuple(one for one in positions if one is not None)
        training.spent = tuple(self._spent(results))
        trace.training = training

    def _spent(self, results: Sequence[Any]) -> list[int]:
        consumed = _reachable(self._roots) | self._asked_of
        return [
            place
            for place, result in enumerate(results)
            if isinstance(result, torch.Tensor) and result.requires_grad and result.grad_fn in consumed
        ]


def _is_pytorchs(module: str | None) -> bool:
    """Whether code belongs to PyTorch, or wraps a deprecated function of it: what that calls is seen as well."""
    return is_librarys(module) or module == "typing_extensions"


def _extent(tensor: torch.Tensor) -> range:
    """The addresses from a tensor's first element to its last."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return range(tensor.data_ptr(), tensor.data_ptr() + (steps + 1) * tensor.element_size())


def _has_effect(event: TraceOp) -> bool:
    return draws_numbers(event.target) or bool(written_arguments(event.target, event.arguments, event.keywords))


def _flat(tensors: Any) -> Sequence[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _reachable(roots: Sequence[Any]) -> set[Any]:
    """The nodes of a graph."""
    seen: set[Any] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += [following for following, _ in node.next_functions if following is not None]
    return seen
