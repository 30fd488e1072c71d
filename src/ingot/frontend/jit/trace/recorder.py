"""Recording a call: the user's function runs eagerly on its own arguments while its operations are noted down.

In: a function, its arguments, and the tensors its environment holds. Out: eager's own result, and either a trace or the
reason why there is none. Nothing runs twice and nothing is simulated: what cannot be recorded has been computed all the
same. Two modes of torch watch (`attachment.py`). The dispatch mode sees every operation; the function mode sees what
Python asks of tensors without an operation: their sizes, their memory, their values as numbers.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base.errors import CaptureError
from ingot.frontend.jit.arguments.structure import take_apart
from ingot.frontend.jit.arguments.supported_tensors import is_lazy
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.python_code.library_code import is_librarys
from ingot.frontend.jit.python_code.source_lines import definition_of, user_place
from ingot.frontend.jit.trace.attachment import Attachment, mode_counts
from ingot.frontend.jit.trace.effects import EffectMonitor
from ingot.frontend.jit.trace.index_bounds import slice_bounds
from ingot.frontend.jit.trace.queries import READS_MEMORY, READS_SIZES, SAYS_SIZES, is_oblivious
from ingot.frontend.jit.trace.questions import ASKS, READS_VALUE
from ingot.frontend.jit.trace.refusals import given_offset, refusal, turned_view
from ingot.frontend.jit.trace.registers import Registers
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    GradientOf,
    Made,
    Question,
    SizeQuery,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    all_of,
    is_mutable,
    tags_of,
    written_arguments,
)
from ingot.frontend.jit.trace.training_calls import BACKWARD, GRAD, TrainingCalls
from ingot.runtime.torch_state import state_of_torch

_MOST_EVENTS = 100_000
"""A longer recording is a loop that should not be unrolled."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a call could not be recorded, and the line of the user's code where that was found."""

    reason: str
    place: str
    is_for_now: bool = False
    """Whether the next call like it can be recorded, as far as is known."""


class Recording:
    """A recording in progress, on one thread."""

    def __init__(
        self,
        arguments: Sequence[torch.Tensor],
        environment: Environment,
        strict: bool = False,
        reads_attributes: bool = True,
        allows_questions: bool = False,
        allows_constants: bool = False,
    ):
        """`arguments` are the tensors passed. A strict recording raises an error where others stop. Generated code
        reads no attributes that user code has given tensors. Where questions are allowed, a recording goes on after
        Python has decided by a tensor's value: it is then the recording of one path of several. Where constants are
        allowed, a small tensor that comes out of nowhere and is gone after the call is taken for one."""
        self.trace = Trace(casts=torch._C._is_any_autocast_enabled())
        self.broken: Broken | None = None
        self._environment = environment
        self._strict = strict
        self._reads_attributes = reads_attributes
        self._allows_questions = allows_questions
        self._allows_constants = allows_constants
        self._assumed: list[tuple[weakref.ref[Any], str]] = []
        """Tensors that were taken for constants, and the line where they were used."""
        self.asked_by = ""
        """The name of the function of torch that runs now."""
        self._registers = Registers(self.trace, self)
        self._arguments = arguments
        self._definition: str | None = None
        self.handed: frozenset[int] = frozenset()
        """The marked numbers that the function of torch which runs now was given."""
        self._constant: set[TraceValue] = set()
        """Registers that hold the same at every call like this: nothing that they are made of was passed or found."""
        self.ran: frozenset[types.CodeType] | None = None
        """The code that the call has run; None where that is not known."""
        self.training = TrainingCalls(self)
        """Backward passes and steps of optimizers within the call."""
        for position, tensor in enumerate(arguments):
            if self._registers.find(tensor) is None:
                self._registers.add_leaf(tensor, TraceArgument(position))

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], is_alone: bool = True
    ) -> Any:
        """Call the function and note down what it does. Unless it `is_alone`, what other threads may have done in the
        meantime is not taken for the function's doing."""
        before = state_of_torch()
        self.training.begin((*self._environment.tensors.values(), *self._arguments))
        parts_before = _parts(args, kwargs)
        modes_before = mode_counts()
        result = self._run_watched(function, args, kwargs, is_alone)
        if mode_counts() != modes_before:
            self.stop("it enters or leaves a mode of PyTorch that stays so after the call")
        self._definition = definition_of(function)
        if any(tensor() is not None for tensor, _ in self._assumed):
            self.stop(_FROM_NOWHERE)
        left_set = self._environment.sets_context()
        if left_set is not None:
            self.stop(f"it sets the context variable {left_set}")
        if self._reads_attributes and any(map(_own_attributes, self._arguments)):
            self.stop("a tensor that it was given has attributes of its own")
        if _parts(args, kwargs) != parts_before:
            self.stop("it changes a list, a dictionary or an object that it was given")
        if state_of_torch() != before:
            self.stop("it leaves a setting of PyTorch, such as the grad mode, other than it was")
        return result

    def run_more(self, function: Callable[[], Any]) -> Any:
        """Call a function that goes on with what was recorded and runs no Python code of the user's, and note down its
        operations."""
        monitor = EffectMonitor(self._saw, self._environment.touch_context, self.stop, self.training)

        def run() -> Any:
            with monitor.paused(), torch._C.DisableTorchFunction():
                return function()

        return self._attached(monitor, run)

    def add_argument(self, tensor: torch.Tensor) -> TraceValue:
        """Note a tensor that is passed after the others; no other object may be the same tensor."""
        self._arguments = [*self._arguments, tensor]
        return self._registers.add_leaf(tensor, TraceArgument(len(self._arguments) - 1))

    def _run_watched(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], is_alone: bool
    ) -> Any:
        monitor = EffectMonitor(self._saw, self._environment.touch_context, self.stop, self.training)

        def run() -> Any:
            result = function(*args, **kwargs)
            if is_alone:
                monitor.conclude()
            self.ran = monitor.ran
            return result

        return self._attached(monitor, run)

    def _attached(self, monitor: EffectMonitor, run: Callable[[], Any]) -> Any:
        """Call a function whose operations and questions are recorded.

        It is not a block for `with`: an interrupt between the end of `__enter__` and the block would leave everything
        attached."""
        attachment = Attachment(self, monitor)
        try:
            attachment.attach()
            return run()
        finally:
            try:
                attachment.detach()
            except KeyboardInterrupt:  # an interrupt came in the middle of it, or before it began
                attachment.detach()
                raise

    def _saw(self, frame: types.FrameType) -> None:
        if self.broken is None:
            reason = self._environment.saw(frame)
            if reason is not None:
                self.stop(reason)

    def stop(self, reason: str, is_for_now: bool = False) -> None:
        """Record no further; the call goes on."""
        if self.broken is None:
            self.broken = Broken(reason, self._definition or user_place(), is_for_now)
            if self._strict:
                raise CaptureError(f"{reason} ({self.broken.place})")

    def value_of(self, tensor: torch.Tensor) -> TraceValue | None:
        """The register of a tensor that the function returned; None if no operation made it."""
        return self._registers.find(tensor) or self._environment_tensor(tensor)

    # --- what the modes see -------------------------------------------------------------------------------------------

    def on_query(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Python is about to call a function or to read an attribute of tensors."""
        if function is BACKWARD or function is GRAD:
            return
        name = getattr(function, "__name__", "")
        if name in ("__get__", "__set__", "__delete__"):
            attribute = getattr(getattr(function, "__self__", None), "__name__", "")
            if name != "__get__":
                self.stop(f"the attribute {attribute} of a tensor is set")
            name = attribute
        if name == "grad" and args and self.training.reads_gradient(args[0]):
            return
        if name == "requires_grad" and not is_librarys(sys._getframe(2).f_globals.get("__name__")):
            self.stop("it asks whether a tensor requires gradients, which may be otherwise at the next call")
        if name in READS_MEMORY:
            self.stop(f"{name} looks at a tensor's memory, which generated code does not pass through Python")
        elif name in READS_SIZES or (isinstance(function, types.FunctionType) and not is_oblivious(name, args, kwargs)):
            self.trace.reads_sizes = True
            self._note_query(name, args)

    def _note_query(self, name: str, args: Sequence[Any]) -> None:
        tensor = args[0] if args else None
        if name not in SAYS_SIZES or not isinstance(tensor, torch.Tensor):
            self.trace.has_unseen_queries = True
            return
        register = self._registers.find(tensor)
        if register is not None and not isinstance(self.trace.note(register).origin, EnvironmentTensor):
            self.trace.size_queries.append(SizeQuery(name, register))

    def on_index(self, tensor: Any, index: Any) -> None:
        """Python is about to index a tensor."""
        register = self._registers.find(tensor) if isinstance(tensor, torch.Tensor) else None
        if register is None or self.broken is not None:  # tensors around the function have one size
            return
        self._note_query("__getitem__", [tensor])
        bounds = slice_bounds(register, tensor.dim(), index)
        if bounds is None:
            self.trace.reads_sizes = True
        else:
            self.trace.slices += bounds

    def operate(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One operation: run it, and note it down."""
        if self.training.is_within:
            return target(*args, **kwargs)
        if self.broken is None:
            if torch.Tag.data_dependent_output in tags_of(target) and self._is_constant(args, kwargs):
                self.trace.reads_constants = True
                return target(*args, **kwargs)
            if self._allows_questions and target is READS_VALUE and self.asked_by in ASKS:
                return self._ask(args[0])
            if given_offset(target, args, kwargs) is not None:
                args, kwargs = self._at_offset(target, args, kwargs)
            view = turned_view(target)
            if view is not None and self.has_made(args[0]):
                return self._turn(view, target(*args, **kwargs), args, kwargs)
            why_not = refusal(target, args, kwargs) or (
                len(self.trace.events) >= _MOST_EVENTS and "the call never ends"
            )
            if why_not:
                self.stop(why_not)
        if self.broken is not None or target.namespace == "profiler":
            return target(*args, **kwargs)
        if target.overloadpacket._qualified_op_name in _LIFTS:
            return self._lift(target(*args, **kwargs))
        given = self._encode(list(args)), self._encode(dict(kwargs))
        changeable = all_of(torch.Tensor, (args, kwargs)) if is_mutable(target) else []
        if any(map(is_lazy, all_of(torch.Tensor, written_arguments(target, args, dict(kwargs))))):
            self.stop(f"{target} writes into a tensor that PyTorch conjugates or negates when it is read")
        shapes = [(tensor, tensor.shape) for tensor in changeable]
        try:
            result = target(*args, **kwargs)
        except Exception:  # if the function catches it, what follows depends on values
            self.broken = Broken(f"{target} raises an error", user_place())
            raise
        if any(tensor.shape != shape for tensor, shape in shapes):
            self.stop(f"{target} changes the size of a tensor")
        if self.broken is None:
            operands = self._registers.by_memory((args, kwargs))
            results = self._registers.add_results(result, operands)
            keywords = _with_device(given[1], result)
            event = TraceOp(target, tuple(given[0]), keywords, results, user_place(), self.handed)
            self._note_constants(event, bool(written_arguments(target, event.arguments, event.keywords)))
            self.trace.events.append(event)
        return result

    def _ask(self, tensor: torch.Tensor) -> Any:
        """Python decides by the value of a tensor: what follows is the path for this answer."""
        answer, register = READS_VALUE(tensor), self._operand(tensor)
        if register is not None:
            asked = Question(register, len(self.trace.events), self.asked_by, answer, user_place())
            self.trace.questions.append(asked)
        return answer

    def _at_offset(
        self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of an operation that is told where in its memory to begin, as they hold at later calls: a
        tensor from before the call may begin elsewhere then, and of that nothing is recorded."""
        tensor, offset = args[0], given_offset(target, args, kwargs)
        is_from_before = self._registers.find(tensor) is None or self.has_touched(tensor)
        if self.asked_by.startswith("as_strided"):  # by Python, which has no way to know where the tensor begins
            if is_from_before and torch.is_grad_enabled() and tensor.requires_grad:
                self.stop(f"the gradient of {target} depends on where in its memory a tensor begins")
        elif offset == tensor.storage_offset():
            given = args[: len(target._schema.arguments) - 1]
            return given, {name: value for name, value in kwargs.items() if name != "storage_offset"}
        elif is_from_before:
            self.stop(f"{target} depends on where in its memory a tensor begins")
        return args, kwargs

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Whether the call itself has made a tensor."""
        register = self._registers.find(tensor)
        return register is not None and not self.trace.note(register).is_leaf

    def _turn(self, view: Any, tensor: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """A tensor that has been given another shape in place: from now on it is a view of what it was."""
        before = self._registers.find(tensor)
        assert before is not None
        made = self._registers.add(tensor, Made(len(self.trace.events)), self.trace.note(before).storage)
        event = TraceOp(view, (before, *args[1:]), dict(kwargs), made, user_place(), self.handed)
        self._note_constants(event, is_write=False)
        self.trace.events.append(event)
        return tensor

    def _lift(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that Python made of numbers: later calls copy what it held, as they may write into it."""
        if not tensor.untyped_storage().resizable():  # memory that is not torch's, such as a numpy array's
            self.stop("a tensor is made of memory that is not PyTorch's")
            return tensor
        constant = tensor.clone()
        self.trace.environment_tensors.append(constant)
        source = self._registers.add_leaf(constant, EnvironmentTensor(len(self.trace.environment_tensors) - 1))
        made = self._registers.add_made(tensor, {})
        self._constant.update((source, made))
        self.trace.events.append(TraceOp(torch.ops.aten.clone.default, (source,), {}, made, user_place()))
        return tensor

    # --- constants ----------------------------------------------------------------------------------------------------

    def _is_constant(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        tensors = all_of(torch.Tensor, (list(args), dict(kwargs)))
        return all(self._registers.find(tensor) in self._constant for tensor in tensors)

    def _note_constants(self, event: TraceOp, is_write: bool) -> None:
        """What is made of constants is constant, unless it is random or was never written."""
        target = event.target
        is_known = (
            torch.Tag.nondeterministic_seeded not in tags_of(target) and "empty" not in target.overloadpacket.__name__
        )
        if is_known and not is_write and all(operand in self._constant for operand in event.operands):
            self._constant.update(event.products)
        elif is_write:
            written = {self.trace.note(operand).storage for operand in event.operands}
            self._constant = {one for one in self._constant if self.trace.note(one).storage not in written}

    # --- tensors and their registers ----------------------------------------------------------------------------------

    def add_found(self, tensor: torch.Tensor) -> TraceValue | None:
        """The register of a tensor that a known call has found where the environment was not looked through."""
        self._environment.tensors.setdefault(id(tensor), tensor)
        return self.value_of(tensor)

    def has_touched(self, tensor: torch.Tensor) -> bool:
        """Whether the call has used the memory of a tensor that was there before."""
        return self._registers.has_memory_of(tensor)

    def position_of(self, tensor: torch.Tensor) -> int | None:
        """The position of a tensor among those of the environment that are used; None if it is none of these."""
        register = self._registers.find(tensor)
        origin = None if register is None else self.trace.note(register).origin
        return origin.position if isinstance(origin, EnvironmentTensor) else None

    def note_of(self, tensor: torch.Tensor) -> TensorMeta | None:
        register = self.value_of(tensor)
        return None if register is None else self.trace.note(register)

    def _gradient(self, tensor: torch.Tensor) -> TraceValue | None:
        """The register of what a tensor of the environment had in its `.grad` when the call began."""
        owner = self.training.owner_of(tensor)
        if owner is None or self.value_of(owner) is None:
            return None
        position = self.position_of(owner)
        return None if position is None else self._registers.add_leaf(tensor, GradientOf(position))

    def _environment_tensor(self, tensor: torch.Tensor) -> TraceValue | None:
        if id(tensor) not in self._environment.tensors:
            return self._gradient(tensor)
        self.trace.environment_tensors.append(tensor)
        return self._registers.add_leaf(tensor, EnvironmentTensor(len(self.trace.environment_tensors) - 1))

    def _operand(self, tensor: torch.Tensor) -> TraceValue | None:
        found = self.value_of(tensor)
        if found is None and self._may_be_constant(tensor):
            self._assumed.append((weakref.ref(tensor), user_place()))
            self.trace.assumes_constants = True
            self._lift(tensor)
            found = self._registers.find(tensor)
        if found is None:
            self.stop(_FROM_NOWHERE)
        return found

    def _may_be_constant(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor that is not known may be one that TorchScript made of a number; only a proof can tell."""
        is_usual = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
        return self._allows_constants and is_usual and tensor.dim() == 0 and not tensor.requires_grad

    def _encode(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._operand(value)
        if isinstance(value, list):
            return [self._encode(element) for element in value]
        if isinstance(value, tuple):
            return tuple(self._encode(element) for element in value)
        if isinstance(value, dict):
            return {name: self._encode(element) for name, element in value.items()}
        return value


def _with_device(keywords: dict[str, Any], result: Any) -> dict[str, Any]:
    """Keywords that name the very device a result is on: which one "cuda" is may change within a call."""
    if keywords.get("device") is None or not isinstance(result, torch.Tensor):
        return keywords
    return keywords | {"device": result.device}


_FROM_NOWHERE = "a tensor is used that was made outside PyTorch's operators, or is held where ingot cannot see it"
_LIFTS = frozenset({"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"})


def _parts(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """What nested arguments are made of, by identity."""
    leaves: list[Any] = []
    shape = take_apart((tuple(args), dict(kwargs)), leaves)
    return [shape, *map(id, leaves)]


def _own_attributes(tensor: torch.Tensor) -> list[str]:
    """The attributes that user code has given a tensor, apart from the marks of torch's own tracing compiler."""
    return [name for name in vars(tensor) if not name.startswith("_dynamo_")]
