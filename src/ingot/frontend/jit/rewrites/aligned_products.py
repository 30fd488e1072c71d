"""Products on a GPU whose rows begin at odd addresses, with padded matrices where measuring finds that quicker.

    before   %4 = aten.mm.default(%2, %3)                                           # bfloat16[4096, 50257]
             %5 = aten._unsafe_view.default(%4, [4, 1024, 50257])
    after    %4 = ingot.padded_product.default(%2, %3, None, 'rows', False)         in rows of 50264
             %5 = aten._unsafe_view.default(%4, [4, 1024, 50257])

cuBLAS stores 16 bytes at a time, but where rows begin anywhere it falls back to kernels that take several times as
long: the logits of a language model with an odd vocabulary are such a product. Generated code reads the padded rows as
they are. Where anything else can tell, a result of the call or a library, a copy lies as was recorded, and measuring
counts that copy, too. The results are the same within rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.aten import lowering_for
from ingot.frontend.jit.rewrites import padded_products
from ingot.frontend.jit.rewrites.padded_products import PADDED_PRODUCT, MatrixLayout, aligned_length, axes_off
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp, TraceValue, is_mutable, values_in

_aten: Any = torch.ops.aten
_PRODUCTS = frozenset({_aten.mm.default, _aten.bmm.default, _aten.addmm.default})
_TYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
_KIND = "cuda"
"""The kind of devices whose products are looked at."""
_FEWEST_MULTIPLICATIONS = 1 << 26
"""Smaller products take a GPU as long as the copies around them."""


@dataclass(frozen=True, slots=True)
class AlignProducts:
    name: str = "align_products"
    summary: str = "computes products on GPUs whose rows are off the library's alignment with padded matrices"
    needs_frozen: bool = False
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        if trace.symbols or trace.device.type != "cuda":
            return rewriter.finish()
        for index, event in rewriter.operations():
            if event.target in _PRODUCTS and not event.keywords and rewriter.uses[event.results]:
                _align(rewriter, index, event)
        return rewriter.finish()


def _align(rewriter: TraceRewriter, index: int, event: TraceOp) -> None:
    (*bias, x, matrix) = event.arguments
    result = rewriter.note(event.results)
    layouts = [MatrixLayout.of(rewriter.note(one)) for one in (x, matrix, event.results)]
    multiplications = math.prod(result.shape) * layouts[0].shape[-1]
    is_suitable = result.device.type == _KIND and result.dtype in _TYPES
    if not is_suitable or multiplications < _FEWEST_MULTIPLICATIONS or not axes_off(*layouts):
        return
    if any(rewriter.note(one).shape != result.shape[-1:] for one in bias):
        return
    strides = {}
    for strategy in padded_products.STRATEGIES:
        changed = _strides(layouts, strategy)
        strides[strategy] = _strides_of_views(rewriter, event.results, changed)
    is_dense = any(found is None for found in strides.values())
    strategy = padded_products.quickest(layouts[0], layouts[1], bool(bias), is_dense, result.device)
    if strategy is None:
        return
    arguments = (x, matrix, bias[0] if bias else None, strategy, is_dense)
    rewriter.put(index, dataclasses.replace(event, target=PADDED_PRODUCT, arguments=arguments))
    for value, changed in (strides[strategy] or {}).items():
        if rewriter.note(value).strides != changed:
            rewriter.change_note(value, strides=changed)


def _strides(layouts: Sequence[MatrixLayout], strategy: str) -> tuple[int, ...]:
    """How a result lies that is not dense."""
    x, matrix, result = layouts
    axes = axes_off(x, matrix, result)
    *batches, rows, columns = result.shape
    is_wider = result.is_off if strategy == "rows" else 2 in axes
    is_longer = strategy == "sizes" and 0 in axes
    rows = aligned_length(rows, result.dtype) if is_longer else rows
    columns = aligned_length(columns, result.dtype) if is_wider else columns
    return torch.empty((*batches, rows, columns), device="meta").stride()


def _strides_of_views(
    rewriter: TraceRewriter, product: TraceValue, strides: tuple[int, ...]
) -> dict[TraceValue, tuple[int, ...]] | None:
    """How a product and the views of it lie, if the product has other strides; None where they must be as recorded."""
    trace = rewriter.trace
    storage = trace.note(product).storage
    if storage in rewriter.written:
        return None
    found = {product: strides}
    for event in trace.events:
        read = [value for value in event.operands if value in found]
        if not read:
            continue
        made = [value for value in event.products if trace.note(value).storage == storage]
        if made:
            views = _views(trace, event, found[read[0]])
            if views is None or len(event.operands) != 1:
                return None
            found |= dict(zip(event.products, views, strict=True))
        elif is_mutable(event.target) or lowering_for(event.target) is None:
            return None
    return None if any(trace.note(value).storage == storage for value in values_in(trace.results)) else found


def _views(trace: Trace, event: TraceOp, strides: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """The strides of the views that an operation makes of a tensor with these strides; None if it cannot."""
    (source,) = set(event.operands)
    note = trace.note(source)
    stand_in = torch.empty_strided(note.shape, strides, dtype=note.dtype, device="meta")
    arguments = [stand_in if value == source else value for value in event.arguments]
    try:
        made = event.target(*arguments, **event.keywords)
    except RuntimeError:  # rows that are apart cannot be joined without a copy
        return None
    return [view.stride() for view in (made if isinstance(made, list | tuple) else [made])]
