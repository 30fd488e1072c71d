"""Convolutions on a GPU with channels last, all of a trace or none, where measuring finds that quicker.

    before   %2 = aten.convolution.default(%0, %weight, None, ...)
             %3, _, _ = aten.native_batch_norm.default(%2, ...)
             %4 = aten.relu.default(%3)
             %5 = aten.convolution.default(%4, %other, None, ...)
    after    %6 = aten.clone.default(%0, memory_format=torch.channels_last)
             %2 = aten.convolution.default(%6, %weight, None, ...)                    channels last, as all up to %5
             ...
             %7 = aten.clone.default(%5, memory_format=torch.contiguous_format)       where the recorded order is needed

cuDNN's kernels for tensor cores take channels last. Given anything else they turn every operand, and their result back.
Between convolutions the order is kept (channels_last.py): batch norms with running statistics, activations and sums are
generated, and write what order is asked for. Weights follow the operand: PyTorch turns them at each call, or they are
turned once where they are frozen. The results are the same within rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import CLEARLY, seconds_of, stand_in
from ingot.frontend.jit.rewrites.channels_last import (
    KEEPING_ON_GPUS,
    is_row_major,
    keep_channels_last,
    may_change_layout,
    strides_of,
)
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp, TraceValue, replace_values
from ingot.runtime.disk_cache.process import remembered

_aten: Any = torch.ops.aten
_KIND = "cuda"
"""The kind of devices whose convolutions are looked at."""
_TYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
_LIBRARYS = frozenset({_aten.convolution.default, _aten.max_pool2d_with_indices.default})
"""Operators of libraries whose time depends on the order of their operands."""
_MOST_COPIED = 0.25
"""The most bytes that are copied back into the recorded order, in parts of what convolutions give. If more are,
kernels in between would read what lies across, and are not measured."""


@dataclass(frozen=True, slots=True)
class KeepChannelsLast:
    name: str = "keep_channels_last"
    summary: str = "computes convolutions on GPUs, and all between them, channels last, where that is quicker together"
    needs_frozen: bool = False
    keeps_bits: bool = False
    is_frozen: bool = False
    """Whether weights keep their values, so that they are turned once."""

    def run(self, trace: Trace) -> TracePassResult:
        unchanged = TracePassResult(trace, 0)
        if trace.symbols or trace.device.type != "cuda":
            return unchanged
        rewriter = TraceRewriter(trace)
        found = {event.results for _, event in rewriter.operations() if _is_suitable(rewriter, event)}
        if not found:
            return unchanged
        changed = _with_operands(keep_channels_last(trace, found, KEEPING_ON_GPUS), found, self.is_frozen)
        return changed if _is_quicker(trace, changed.trace) else unchanged


def _is_suitable(rewriter: TraceRewriter, event: TraceOp) -> bool:
    """Whether an event is a convolution of images whose result may lie in another order."""
    if event.target is not _aten.convolution.default:
        return False
    weight, is_transposed, groups = event.arguments[1], event.arguments[6], event.arguments[8]
    note = rewriter.note(event.results)
    if is_transposed or groups != 1 or note.device.type != _KIND or note.dtype not in _TYPES or len(note.shape) != 4:
        return False
    if isinstance(weight, TraceValue) and rewriter.note(weight).storage in rewriter.written:
        return False
    is_plain = is_row_major(note) and note.strides != strides_of(note.shape) and note.shape[2:] != (1, 1)
    return is_plain and may_change_layout(rewriter.trace, event.results)


def _with_operands(trace: Trace, found: set[TraceValue], is_frozen: bool) -> TracePassResult:
    """The trace with the operands of these convolutions channels last, and weights where they stay as they are."""
    rewriter = TraceRewriter(trace)
    copies: dict[TraceValue, TraceValue] = {}
    for index, event in rewriter.operations():
        if event.target is not _aten.convolution.default or event.results not in found:
            continue
        source, weight, *others = event.arguments
        before: list[TraceOp] = []
        note = rewriter.note(source)
        if note.strides != strides_of(note.shape):
            if source not in copies or note.storage in rewriter.written:
                copies[source] = rewriter.new_value(note, strides=strides_of(note.shape))
                keywords = {"memory_format": torch.channels_last}
                before = [TraceOp(_aten.clone.default, (source,), keywords, copies[source], event.place)]
            source = copies[source]
        constant = rewriter.known(weight) if is_frozen or isinstance(weight, torch.Tensor) else None
        if constant is not None:
            rewriter.take(weight)
            weight = constant.detach().contiguous(memory_format=torch.channels_last)
        rewriter.put(index, *before, dataclasses.replace(event, arguments=(source, weight, *others)))
    return rewriter.finish()


# --- measuring --------------------------------------------------------------------------------------------------------


def _is_quicker(plain: Trace, changed: Trace) -> bool:
    """Whether what libraries do takes clearly less time in the changed trace, copies included. Calls that are alike are
    measured once."""
    copies = [event for event in changed.events if any(made.index >= len(plain.tensors) for made in event.products)]
    results = [event.results for event in plain.events if event.target is _aten.convolution.default]
    copied = [event.results for event in copies if event.keywords["memory_format"] is torch.contiguous_format]
    if sum(changed.note(one).nbytes for one in copied) > _MOST_COPIED * sum(plain.note(one).nbytes for one in results):
        return False
    pairs = zip(_librarys(changed), _librarys(plain), strict=True)
    try:
        taken = [_seconds(*pair) for pair in pairs if pair[0].key != pair[1].key]
        extra = [_seconds(_Call(changed, event)) for event in copies]
    except RuntimeError:  # the library does not have it for these sizes or types
        return False
    spent, allowed = (sum(pair[side] for pair in taken) for side in (0, 1))
    return spent + sum(seconds for (seconds,) in extra) < CLEARLY * allowed


@dataclass(frozen=True, slots=True)
class _Call:
    """An event with tensors like those that it is given."""

    trace: Trace
    event: TraceOp

    @property
    def key(self) -> str:
        """All that its time depends on, but for the machine."""
        return repr(_described(self.trace, (str(self.event.target), self.event.arguments, self.event.keywords)))

    @property
    def device(self) -> torch.device:
        return self.trace.note(self.event.products[0]).device

    def stand_in(self) -> Callable[[], Any]:
        def like(value: TraceValue) -> torch.Tensor:
            note = self.trace.note(value)
            return stand_in(note.shape, note.strides, note.dtype, note.device)

        arguments = replace_values(self.event.arguments, like)
        return partial(self.event.target, *arguments, **self.event.keywords)


def _librarys(trace: Trace) -> Iterator[_Call]:
    return (_Call(trace, event) for event in trace.events if event.target in _LIBRARYS)


def _described(trace: Trace, value: Any) -> Any:
    """Arguments with what is known of tensors in their place."""
    if isinstance(value, TraceValue):
        note = trace.note(value)
        return str(note.dtype), note.shape, note.strides
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.stride()
    if isinstance(value, list | tuple):
        return [_described(trace, element) for element in value]
    if isinstance(value, dict):
        return {name: _described(trace, element) for name, element in value.items()}
    return value


_MEASURED: dict[tuple[Any, ...], list[float]] = {}
"""What was measured so far: layers of a model are often alike."""


def _seconds(*calls: _Call) -> list[float]:
    """How long calls take that do the same."""
    cudnn, device = torch.backends.cudnn, calls[0].device
    settings = (cudnn.version(), cudnn.conv.fp32_precision, cudnn.enabled, cudnn.benchmark, cudnn.deterministic)
    what = (torch.cuda.get_device_name(device), torch.version.cuda, *settings, *(call.key for call in calls))
    if what not in _MEASURED:
        measure = lambda: list(seconds_of(*(call.stand_in() for call in calls), device=device))
        _MEASURED[what] = remembered("channels last", what, measure)
    return _MEASURED[what]
