"""Frozen weights: parameters and buffers taken as they are, so that work on them is done once.

    conv -> batch norm        conv with other weights
    conv -> relu              one call that does both, on the CPU with weights in the library's own order
    x times weights + bias    the same with weights in the library's own order

In: a tape. Out: a tape that gives the same results within rounding, as long as the weights keep their values. Weights
in the library's own order are used where measuring finds them quicker; they are part of the program, not read again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.racing import is_clearly_quicker
from ingot.frontend.jit.tape import Event, Made, Register, Surrounding, Tape, registers_in, renumbered

_aten: Any = torch.ops.aten
_CONVOLUTION = _aten.convolution.default
_NORMALIZATIONS = {"native_batch_norm": 5, "_native_batch_norm_legit_no_training": None}
"""Batch norms that use running statistics, and the position of the flag that says so where there is one."""


def freeze(tape: Tape) -> Tape:
    """The tape with its weights taken as they are."""
    with torch.no_grad():
        freezer = _Freezer(tape, list(tape.events), _weights(tape))
        freezer.fold_normalizations()
        freezer.pack()
    return renumbered(tape, [event for event in freezer.events if event is not None])


def _weights(tape: Tape) -> dict[Register, torch.Tensor]:
    """The surrounding tensors that no event writes into."""
    written = {
        tape.note(register).storage
        for event in tape.events
        if event.target._schema.is_mutable
        for register in event.operands()
    }
    return {
        Register(index): tape.surroundings[note.origin.position]
        for index, note in enumerate(tape.tensors)
        if isinstance(note.origin, Surrounding) and note.storage not in written
    }


@dataclass(slots=True)
class _Freezer:
    tape: Tape
    events: list[Event | None]
    """Events that were taken into others are None."""
    weights: dict[Register, torch.Tensor]
    uses: Counter[Register] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for event in self.tape.events:
            self.uses.update(event.operands())
        self.uses.update(registers_in(self.tape.results))
        for event in self.tape.events:
            if event.target is _aten.t.default and event.arguments[0] in self.weights:
                self.weights[event.results] = self.weights[event.arguments[0]].t()

    # --- batch norms --------------------------------------------------------------------------------------------------

    def fold_normalizations(self) -> None:
        for index, event in enumerate(self.events):
            if event is None or event.target is not _CONVOLUTION:
                continue
            follower = self._only_reader(index, event.results)
            if follower is not None and _uses_statistics(self._event(follower)):
                self._fold(index, follower)

    def _fold(self, index: int, follower: int) -> None:
        convolution, norm = self._event(index), self._event(follower)
        weight, bias = map(self._known, convolution.arguments[1:3])
        scale, shift, mean, variance = map(self._known, norm.arguments[1:5])
        is_transposed = convolution.arguments[6]
        if weight is None or mean is None or variance is None or is_transposed or weight.dtype is not mean.dtype:
            return
        if any(self._is_missing(given) for given in (convolution.arguments[2], *norm.arguments[1:5])):
            return
        if any(self.uses[other] for other in norm.results[1:]):
            return
        factor = (1.0 if scale is None else scale.double()) / torch.sqrt(variance.double() + norm.arguments[-1])
        offset = (0.0 if bias is None else bias.double()) - mean.double()
        folded = weight.double() * factor.view(-1, *[1] * (weight.dim() - 1))
        moved = offset * factor + (0.0 if shift is None else shift.double())
        constants = folded.to(weight.dtype), moved.to(weight.dtype)
        arguments = (convolution.arguments[0], *constants, *convolution.arguments[3:])
        self.events[index] = dataclasses.replace(convolution, arguments=arguments, results=norm.results[0])
        self.events[follower] = None

    # --- weights in the library's own order ---------------------------------------------------------------------------

    def pack(self) -> None:
        for index, event in enumerate(self.events):
            if event is None:
                continue
            if event.target is _CONVOLUTION:
                self._pack_convolution(index, event)
            elif event.target is _aten.addmm.default and not event.keywords:
                self._pack_product(index, event)

    def _pack_convolution(self, index: int, event: Event) -> None:
        source, weight, bias, stride, padding, dilation, is_transposed, _, groups = event.arguments
        weight, is_float = self._known(weight), self._note(event.results).dtype is torch.float32
        if weight is None or is_transposed or self._is_missing(bias) or weight.dim() != 4:
            return
        bias, shape = self._known(bias), self._note(source).shape
        follower = self._rectifier(index, event.results)
        if weight.device.type == "cuda":
            self._rectify(index, event, (source, weight, bias, stride, padding, dilation, groups), follower)
        if weight.device.type != "cpu" or not is_float:
            return
        pack = _find("mkldnn", "_reorder_convolution_weight")
        call = _find("mkldnn", "_convolution_pointwise")
        if pack is None or call is None:
            return
        activation = "none" if follower is None else "relu"

        def plain(given: torch.Tensor) -> torch.Tensor:
            made = torch.convolution(given, weight, bias, stride, padding, dilation, False, [0, 0], groups)
            return made if follower is None else made.relu_()

        try:
            packed = pack(weight, padding, stride, dilation, groups, list(shape))
            settings = (padding, stride, dilation, groups, activation, [], "")
            is_quicker = _is_quicker(lambda given: call(given, packed, bias, *settings), plain, shape)
        except RuntimeError:  # the library does not have it for these sizes
            return
        if is_quicker:
            self._replace(index, event, call, (source, packed, bias, *settings), follower)

    def _rectify(self, index: int, event: Event, arguments: tuple[Any, ...], follower: int | None) -> None:
        """Let one call of cuDNN's do a convolution and the relu after it."""
        call = _find("aten", "cudnn_convolution_relu")
        if follower is None or call is None or not torch.backends.cudnn.is_available():
            return
        (source, weight, bias, *settings), note = arguments, self._note(arguments[0])
        stride, padding, dilation, groups = settings
        given = torch.empty_strided(note.shape, note.strides, dtype=note.dtype, device=note.device).normal_()

        def plain() -> torch.Tensor:
            return torch.convolution(given, weight, bias, stride, padding, dilation, False, [0, 0], groups).relu_()

        try:
            is_quicker = is_clearly_quicker(lambda: call(given, weight, bias, *settings), plain, note.device)
        except RuntimeError:  # cuDNN does not have it for these sizes
            return
        if is_quicker:
            self._replace(index, event, call, (source, weight, bias, *settings), follower)

    def _pack_product(self, index: int, event: Event) -> None:
        bias, source, weight = event.arguments[:3]
        transposed = self._known(weight)
        if transposed is None or self._known(bias) is None or self._note(event.results).dtype is not torch.float32:
            return
        bias, weight, shape = self._known(bias), transposed.t(), self._note(source).shape
        if weight.device.type != "cpu":
            return
        pack, call = _find("mkldnn", "_reorder_linear_weight"), _find("mkldnn", "_linear_pointwise")
        if pack is None or call is None or bias is None or bias.dim() != 1 or not weight.is_contiguous():
            return
        try:
            packed = pack(weight, shape[0])
            is_quicker = _is_quicker(
                lambda given: call(given, packed, bias, "none", [], ""),
                lambda given: torch.addmm(bias, given, transposed),
                shape,
            )
        except RuntimeError:
            return
        if is_quicker:
            self._replace(index, event, call, (source, packed, bias, "none", [], ""), None)

    def _replace(self, index: int, event: Event, target: Any, arguments: tuple[Any, ...], follower: int | None) -> None:
        results = event.results if follower is None else self._event(follower).results
        self.events[index] = dataclasses.replace(
            event, target=target, arguments=arguments, keywords={}, results=results
        )
        if follower is not None:
            self.events[follower] = None

    # --- looking around -----------------------------------------------------------------------------------------------

    def _event(self, index: int) -> Event:
        event = self.events[index]
        assert event is not None
        return event

    def _note(self, register: Register) -> Any:
        return self.tape.note(register)

    def _known(self, value: Any) -> torch.Tensor | None:
        """The weight that an argument is; None for everything else."""
        return value if isinstance(value, torch.Tensor) else self.weights.get(value)

    def _is_missing(self, value: Any) -> bool:
        """Whether an argument is a tensor that is not a weight."""
        return isinstance(value, Register) and value not in self.weights

    def _only_reader(self, index: int, register: Register) -> int | None:
        """The one event that reads a register once; None if others do, too."""
        if self.uses[register] != 1:
            return None
        return self._next_reader(index, register)

    def _next_reader(self, index: int, register: Register) -> int | None:
        for later in range(index + 1, len(self.events)):
            event = self.events[later]
            if event is not None and register in event.operands():
                return later
        return None

    def _rectifier(self, index: int, register: Register) -> int | None:
        """The relu that is all that happens to a result, or that happens to it in place before anything else."""
        reader = self._next_reader(index, register)
        if reader is None or any(
            note.storage == self._note(register).storage and other != register.index
            for other, note in enumerate(self.tape.tensors)
            if isinstance(note.origin, Made) and note.origin.event <= reader
        ):
            return None
        target = self._event(reader).target
        if target is _aten.relu_.default or (target is _aten.relu.default and self.uses[register] == 1):
            return reader
        return None


def _uses_statistics(event: Event) -> bool:
    name = event.target.overloadpacket.__name__
    flag = _NORMALIZATIONS.get(name)
    return name in _NORMALIZATIONS and (flag is None or event.arguments[flag] is False)


def _find(namespace: str, name: str) -> Any:
    """An operator of torch's that only some builds have; None where it is missing."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, "default", None)


def _is_quicker(candidate: Callable[..., Any], plain: Callable[..., Any], shape: tuple[int, ...]) -> bool:
    """Whether one way clearly takes less time than the other on a float32 tensor of this shape."""
    given = torch.randn(shape)
    return is_clearly_quicker(lambda: candidate(given), lambda: plain(given))
