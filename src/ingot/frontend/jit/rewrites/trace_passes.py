"""The trace passes: which there are, in which order they run, and what each of them did.

In: a trace. Out: a trace whose operations suit generated code and libraries better. `TRACE_PASSES` is all there is:
a new pass is a module of its own and a line here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ingot.base.dumping import dump, dump_pass
from ingot.base.stages import declare_passes, refuse_unknown_passes
from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.rewrites.aliases import DropAliases
from ingot.frontend.jit.rewrites.aligned_products import AlignProducts
from ingot.frontend.jit.rewrites.epilogues import TakeInActivations
from ingot.frontend.jit.rewrites.foreach import ExpandLists
from ingot.frontend.jit.rewrites.freezing import FoldNormalizations
from ingot.frontend.jit.rewrites.gpu_convolutions import KeepChannelsLast
from ingot.frontend.jit.rewrites.pooling import SimplifyPooling
from ingot.frontend.jit.rewrites.products import FindLinears, JoinProducts
from ingot.frontend.jit.rewrites.trace_rewriting import TracePass, TracePassResult
from ingot.frontend.jit.rewrites.weight_packing import PackConvolutions, PackProducts
from ingot.frontend.jit.trace.trace import Trace

TRACE_PASSES: tuple[TracePass, ...] = declare_passes(
    ExpandLists(),
    DropAliases(),
    FoldNormalizations(),
    PackConvolutions(),
    KeepChannelsLast(),
    TakeInActivations(),
    AlignProducts(),
    FindLinears(),
    JoinProducts(),
    PackProducts(),
    SimplifyPooling(),
)
_ON_FROZEN_WEIGHTS: dict[str, TracePass] = {"keep_channels_last": KeepChannelsLast(is_frozen=True)}
"""Passes that do more where weights are frozen."""
_ON_CHECKED_WEIGHTS: dict[str, TracePass] = {
    "pack_convolutions": PackConvolutions(),
    "pack_products": PackProducts(fewest_rows=64),  # with fewer, comparing weights takes as long as multiplying
}
"""Passes that need frozen weights, and how they run where weights are compared at every call instead. Folding is left
out: it changes more than the order of sums."""
_HALVES = frozenset({torch.float16, torch.bfloat16})


def rewrite_trace(
    trace: Trace, is_frozen: bool = False, disabled: Collection[str] = (), numerics: str = "fast"
) -> Trace:
    """Run the passes once each, in order; those that need frozen weights if they are. Where half types are to be
    rounded as eager rounds them, traces with half types keep every bit."""
    if is_frozen:
        passes = [_ON_FROZEN_WEIGHTS.get(pass_.name, pass_) for pass_ in TRACE_PASSES]
    else:
        passes = [pass_ for pass_ in TRACE_PASSES if not pass_.needs_frozen]
    return _run(passes, trace, disabled, numerics).trace


def rewrite_on_checked_weights(trace: Trace, disabled: Collection[str] = (), numerics: str = "fast") -> TracePassResult:
    """Run the passes for a program that compares the weights which its packed ones were made of at every call."""
    passes = [_ON_CHECKED_WEIGHTS.get(pass_.name, pass_) for pass_ in TRACE_PASSES]
    passes = [pass_ for pass_ in passes if pass_.name in _ON_CHECKED_WEIGHTS or not pass_.needs_frozen]
    return _run(passes, trace, disabled, numerics)


def _run(passes: Sequence[TracePass], trace: Trace, disabled: Collection[str], numerics: str) -> TracePassResult:
    refuse_unknown_passes(disabled)
    keeps_bits = numerics == "eager" and any(note.dtype in _HALVES for note in trace.tensors)
    changed, taken = 0, frozenset[int]()
    for pass_ in passes:
        if pass_.name in disabled or (keeps_bits and not pass_.keeps_bits):
            continue
        result = without_gradients(pass_.run, trace)
        trace, changed, taken = result.trace, changed + result.changed, taken | result.taken
        dump("passes", f"{pass_.name}: changed {result.changed}")
        dump_pass(pass_.name, result.changed, trace)
    return TracePassResult(trace, changed, taken)
