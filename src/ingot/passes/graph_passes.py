"""The pipeline: which passes there are, in which order they run, and what each of them did.

graph_opt_level selects them: 0 none; 1 local arithmetic; 2 and above the whole-graph passes too.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from ingot.base.dumping import dump_pass
from ingot.base.stages import declare_passes, refuse_unknown_passes
from ingot.ir.graph import Graph
from ingot.passes.algebraic_simplification import AlgebraicSimplification
from ingot.passes.common_subexpressions import CommonSubexpressions
from ingot.passes.constant_folding import ConstantFolding
from ingot.passes.dead_code import DeadCode
from ingot.passes.graph_rewriting import Pass
from ingot.passes.layout import Layout
from ingot.passes.reshapes import Reshapes
from ingot.passes.sink_cat import SinkCat
from ingot.passes.slices import Slices
from ingot.passes.strength_reduction import StrengthReduction

PASSES: tuple[Pass, ...] = declare_passes(
    ConstantFolding(),
    AlgebraicSimplification(),
    StrengthReduction(),
    Layout(),
    Slices(),
    Reshapes(),
    SinkCat(),
    CommonSubexpressions(),
    DeadCode(),
)

MAX_ROUNDS = 8
"""Passes open opportunities for each other; real graphs settle within three rounds."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did over all rounds."""

    name: str
    changed: int
    """Nodes it replaced or removed."""
    nodes_before: int
    """Nodes in the graph when it first ran."""
    removed: int
    """By how many nodes the graph shrank through it."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Optimized:
    graph: Graph
    reports: tuple[PassReport, ...]


def optimize(graph: Graph, level: int = 3, disabled: Collection[str] = ()) -> Optimized:
    """Run the passes of a level, in rounds, until none of them finds anything to do."""
    refuse_unknown_passes(disabled)
    chosen = [pass_ for pass_ in PASSES if pass_.level <= level and pass_.name not in disabled]
    reports: dict[str, PassReport] = {}
    idle = 0  # passes that have found nothing to do in this very graph
    for pass_ in chosen * MAX_ROUNDS:
        if idle == len(chosen):
            break
        start, before = time.perf_counter(), len(graph.nodes)
        result = pass_.run(graph)
        graph = result.graph
        dump_pass(pass_.name, result.changed, graph)
        idle = 0 if result.changed else idle + 1
        report = reports.get(pass_.name, PassReport(pass_.name, 0, before, 0, 0.0))
        reports[pass_.name] = PassReport(
            pass_.name,
            report.changed + result.changed,
            report.nodes_before,
            report.removed + before - len(graph.nodes),
            report.seconds + time.perf_counter() - start,
        )
    return Optimized(graph, tuple(reports.values()))
