"""Products and convolutions on a GPU that take in the activation after them, where measuring finds that quicker.

    addmm -> relu, or gelu by tanh             one call of cuBLAS's
    addmm -> view -> relu, or gelu by tanh     the same, and the view after it
    convolution -> relu                        one call of cuDNN's

In: a trace. Out: a trace that gives the same results within rounding. Both libraries apply the activation to what is
still in registers, which spares a kernel that reads and writes it all again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import is_clearly_quicker
from ingot.frontend.jit.rewrites.frozen import FrozenTrace
from ingot.frontend.jit.trace.trace import TensorMeta, Trace, TraceOp, replace_values

_aten: Any = torch.ops.aten
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})
_TAKING_IN = frozenset({_aten.addmm.default, _aten.convolution.default})


def take_in_activations(trace: Trace) -> Trace:
    """The trace with activations taken into the calls before them."""
    if trace.symbols or trace.device.type != "cuda" or not any(event.target in _TAKING_IN for event in trace.events):
        return trace
    found = FrozenTrace.of(dataclasses.replace(trace, tensors=list(trace.tensors)))
    for index, event in enumerate(found.events):
        if event is None:
            continue
        if event.target is _aten.addmm.default and not event.keywords:
            _take_into_product(found, index, event)
        elif event.target is _aten.convolution.default:
            _take_into_convolution(found, index, event)
    return found.finish()


def _take_into_product(found: FrozenTrace, index: int, event: TraceOp) -> None:
    reader = found.only_reader(index, event.results)
    if reader is None or len(found.note(event.arguments[0]).shape) != 1:
        return
    is_viewed = found.event(reader).target in _VIEWS
    activation = found.only_reader(reader, found.event(reader).results) if is_viewed else reader
    uses_gelu = None if activation is None else _uses_gelu(found.event(activation))
    if activation is None or uses_gelu is None:
        return
    call = _aten._addmm_activation.default
    activate = (lambda made: torch.nn.functional.gelu(made, approximate="tanh")) if uses_gelu else torch.relu
    given, strides = _stand_ins(found, event), found.note(event.results).strides
    one, both = lambda: call(*given, use_gelu=uses_gelu), lambda: activate(torch.addmm(*given))
    if not _is_quicker(one, both, strides, (call, uses_gelu, *given)):
        return
    result = found.event(activation).results
    product = dataclasses.replace(event, target=call, keywords={"use_gelu": uses_gelu})
    if is_viewed:
        found.events[reader] = dataclasses.replace(found.event(reader), results=result)
        _join_storages(found.trace, found.note(event.results).storage, found.note(result).storage)
    else:
        product = dataclasses.replace(product, results=result)
    found.events[index], found.events[activation] = product, None


def _join_storages(trace: Trace, storage: int, other: int) -> None:
    """Let all that lies in one memory lie in another."""
    for position, note in enumerate(trace.tensors):
        if note.storage == other:
            trace.tensors[position] = dataclasses.replace(note, storage=storage)


def _uses_gelu(event: TraceOp) -> bool | None:
    """Whether an event is the gelu that cuBLAS knows, or else a relu; None if it is neither."""
    if event.target is _aten.gelu.default and event.keywords.get("approximate") == "tanh":
        return True
    return False if event.target is _aten.relu.default else None


def _take_into_convolution(found: FrozenTrace, index: int, event: TraceOp) -> None:
    source, weight, bias, stride, padding, dilation, is_transposed, _, groups = event.arguments
    follower = found.rectifier(index, event.results)
    if follower is None or is_transposed or not torch.backends.cudnn.is_available():
        return
    call, arguments = _aten.cudnn_convolution_relu.default, (source, weight, bias, stride, padding, dilation, groups)
    given, strides = _stand_ins(found, event), found.note(event.results).strides
    settings = (*given[:3], stride, padding, dilation, groups)
    one, both = lambda: call(*settings), lambda: torch.convolution(*given).relu_()
    if _is_quicker(one, both, strides, (call, *settings)):
        found.replace(index, call, arguments, follower)


def _stand_ins(found: FrozenTrace, event: TraceOp) -> tuple[Any, ...]:
    """An event's arguments with tensors like those that it was given."""

    def like(note: TensorMeta) -> torch.Tensor:
        return torch.empty_strided(note.shape, note.strides, dtype=note.dtype, device=note.device).normal_()

    return replace_values(event.arguments, lambda register: like(found.note(register)))


_MEASURED: dict[Hashable, bool] = {}
"""By what was measured: layers of a model are often alike."""


def _is_quicker(
    candidate: Callable[[], torch.Tensor],
    plain: Callable[[], torch.Tensor],
    strides: Sequence[int],
    what: Sequence[Any],
) -> bool:
    """Whether one call is quicker than two, and its result lies as theirs; `what` is all that they depend on."""
    tensors = [value for value in what if isinstance(value, torch.Tensor)]
    key = tuple(_described(value) for value in what)
    if key not in _MEASURED:
        try:
            is_alike = candidate().stride() == strides
            _MEASURED[key] = is_alike and is_clearly_quicker(candidate, plain, tensors[0].device)
        except RuntimeError:  # the library does not have it for these sizes or types
            _MEASURED[key] = False
    return _MEASURED[key]


def _described(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.device
    return repr(value)
