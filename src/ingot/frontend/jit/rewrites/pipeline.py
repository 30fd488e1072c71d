"""The trace passes: which there are, in which order they run, and what each of them did.

In: a trace. Out: a trace whose operations suit generated code and libraries better. `TRACE_PASSES` is all there is:
a new pass is a module of its own and a line here.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from ingot.base.dumping import dump, dump_pass
from ingot.base.pipeline import declare_passes, refuse_unknown_passes
from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.rewrites.aliases import DropAliases
from ingot.frontend.jit.rewrites.epilogues import TakeInActivations
from ingot.frontend.jit.rewrites.foreach import ExpandLists
from ingot.frontend.jit.rewrites.freezing import FoldNormalizations
from ingot.frontend.jit.rewrites.pooling import SimplifyPooling
from ingot.frontend.jit.rewrites.products import FindLinears, JoinProducts
from ingot.frontend.jit.rewrites.rewriting import TracePass
from ingot.frontend.jit.rewrites.weight_packing import PackConvolutions, PackProducts
from ingot.frontend.jit.trace.trace import Trace

TRACE_PASSES: tuple[TracePass, ...] = declare_passes(
    ExpandLists(),
    DropAliases(),
    FoldNormalizations(),
    PackConvolutions(),
    TakeInActivations(),
    FindLinears(),
    JoinProducts(),
    PackProducts(),
    SimplifyPooling(),
)
_HALVES = frozenset({torch.float16, torch.bfloat16})


def rewrite_trace(
    trace: Trace, is_frozen: bool = False, disabled: Collection[str] = (), numerics: str = "fast"
) -> Trace:
    """Run the passes once each, in order; those that need frozen weights if they are. Where half types are to be
    rounded as eager rounds them, traces with half types keep every bit."""
    refuse_unknown_passes(disabled)
    keeps_bits = numerics == "eager" and any(note.dtype in _HALVES for note in trace.tensors)
    for pass_ in TRACE_PASSES:
        if pass_.name in disabled or (keeps_bits and not pass_.keeps_bits):
            continue
        if is_frozen or not pass_.needs_frozen:
            result = without_gradients(pass_.run, trace)
            trace = result.trace
            dump("passes", f"{pass_.name}: changed {result.changed}")
            dump_pass(pass_.name, result.changed, trace)
    return trace
