"""Products and convolutions on a GPU that take in the activation after them, where measuring finds that quicker.

    before   %3 = aten.addmm.default(%bias, %0, %weight)
             %4 = aten.view.default(%3, [4, 8, 16])                         if there is a view
             %5 = aten.relu.default(%4)                                     or gelu by tanh
    after    %3 = aten._addmm_activation.default(%bias, %0, %weight, use_gelu=False)
             %5 = aten.view.default(%3, [4, 8, 16])

    before   %3 = aten.convolution.default(%0, %weight, %bias, ...)
             %4 = aten.relu.default(%3)
    after    %4 = aten.cudnn_convolution_relu.default(%0, %weight, %bias, ...)

The results are the same within rounding. Both libraries, cuBLAS and cuDNN, apply the activation to what is still in
registers, which spares a kernel that reads and writes it all again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import is_clearly_quicker, stand_in
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import TensorMeta, Trace, TraceOp, TraceValue, replace_values

_aten: Any = torch.ops.aten
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})


@dataclass(frozen=True, slots=True)
class TakeInActivations:
    name: str = "take_in_activations"
    summary: str = "lets libraries of GPUs apply an activation to a product or a convolution before it is written"
    needs_frozen: bool = False
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        if trace.symbols or trace.device.type != "cuda":
            return rewriter.finish()
        for index, event in rewriter.operations():
            if event.target is _aten.addmm.default and not event.keywords:
                _take_into_product(rewriter, index, event)
            elif event.target is _aten.convolution.default:
                _take_into_convolution(rewriter, index, event)
        return rewriter.finish()


def _take_into_product(rewriter: TraceRewriter, index: int, event: TraceOp) -> None:
    reader = rewriter.only_reader(index, event.results)
    if reader is None or len(rewriter.note(event.arguments[0]).shape) != 1:
        return
    is_viewed = rewriter.operation(reader).target in _VIEWS
    activation = rewriter.only_reader(reader, rewriter.operation(reader).results) if is_viewed else reader
    uses_gelu = None if activation is None else _uses_gelu(rewriter.operation(activation))
    if activation is None or uses_gelu is None:
        return
    call = _aten._addmm_activation.default
    activate = (lambda made: torch.nn.functional.gelu(made, approximate="tanh")) if uses_gelu else torch.relu
    given, strides = _stand_ins(rewriter, event), rewriter.note(event.results).strides
    one, both = lambda: call(*given, use_gelu=uses_gelu), lambda: activate(torch.addmm(*given))
    if not _is_quicker(one, both, strides, (call, uses_gelu, *given)):
        return
    result = rewriter.operation(activation).results
    product = dataclasses.replace(event, target=call, keywords={"use_gelu": uses_gelu})
    if is_viewed:
        rewriter.put(reader, dataclasses.replace(rewriter.operation(reader), results=result))
        _join_storages(rewriter, rewriter.note(event.results).storage, rewriter.note(result).storage)
    else:
        product = dataclasses.replace(product, results=result)
    rewriter.put(index, product)
    rewriter.put(activation)


def _join_storages(rewriter: TraceRewriter, storage: int, other: int) -> None:
    """Move all registers of one storage to another."""
    for position, note in enumerate(rewriter.tensors):
        if note.storage == other:
            rewriter.change_note(TraceValue(position), storage=storage)


def _uses_gelu(event: TraceOp) -> bool | None:
    """Whether an event is the gelu that cuBLAS knows, or else a relu; None if it is neither."""
    if event.target is _aten.gelu.default and event.keywords.get("approximate") == "tanh":
        return True
    return False if event.target is _aten.relu.default else None


def _take_into_convolution(rewriter: TraceRewriter, index: int, event: TraceOp) -> None:
    source, weight, bias, stride, padding, dilation, is_transposed, _, groups = event.arguments
    follower = rewriter.rectifier(index, event.results)
    if follower is None or is_transposed or not torch.backends.cudnn.is_available():
        return
    call, arguments = _aten.cudnn_convolution_relu.default, (source, weight, bias, stride, padding, dilation, groups)
    given, strides = _stand_ins(rewriter, event), rewriter.note(event.results).strides
    settings = (*given[:3], stride, padding, dilation, groups)
    one, both = lambda: call(*settings), lambda: torch.convolution(*given).relu_()
    if _is_quicker(one, both, strides, (call, *settings)):
        rewriter.call_instead(index, call, arguments, follower)


def _stand_ins(rewriter: TraceRewriter, event: TraceOp) -> tuple[Any, ...]:
    """An event's arguments with tensors like those that it was given."""

    def like(note: TensorMeta) -> torch.Tensor:
        return stand_in(note.shape, note.strides, note.dtype, note.device)

    return replace_values(event.arguments, lambda register: like(rewriter.note(register)))


_MEASURED: dict[Hashable, bool] = {}
"""Earlier measurements, by everything they depend on: layers of a model are often alike."""


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
