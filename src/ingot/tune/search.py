"""The search: from the default schedule to one that is clearly quicker, candidate by candidate.

In: a search space, a workbench, what is known so far. Out: the finding, kept up to date. What always holds: the best so
far has won against the default schedule in rounds of its own, and once more when the search ends: who wins one of many
races may have been lucky.

    candidates differ from the best so far in one figure; the one that should be quickest is measured first
    one that is clearly quicker becomes the best, and the candidates around it come next
    the search ends where none around the best is left, at the number of candidates or at the time that it may take
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ingot.base.errors import CodegenError
from ingot.tune.cost import predicted_seconds
from ingot.tune.findings import Finding
from ingot.tune.measurement import FIRST_ROUNDS, LAST_ROUNDS, ROUNDS, Workbench, is_clearly_quicker, speedup
from ingot.tune.search_space import Candidate, SearchSpace


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search may go."""

    steps: int
    seconds: float


def search(
    space: SearchSpace, bench: Workbench, finding: Finding, limits: Limits, changed: Callable[[Finding], None]
) -> None:
    """Search until nothing is left to try or a limit is reached; `changed` is called after every candidate."""
    begun = time.perf_counter()
    tried = {space.default.signature, *finding.tried}
    best = space.candidate(finding.changes) or space.default
    waiting = _waiting(space, best, tried)
    while waiting and len(finding.tried) < limits.steps and time.perf_counter() - begun < limits.seconds:
        candidate = waiting.pop(0)
        gained = _gain(bench, space.default, best, candidate)
        tried.add(candidate.signature)
        finding.tried.append(candidate.signature)
        bench.forget(candidate if gained is None else best)
        if gained is not None:
            best = candidate
            finding.changes, finding.speedup = dict(candidate.changes), gained
            waiting = _waiting(space, best, tried)
        changed(finding)
    finding.is_exhausted = not waiting
    _confirm(space, bench, best, finding)
    finding.steps, finding.seconds = max(finding.steps, limits.steps), max(finding.seconds, limits.seconds)
    changed(finding)


def _waiting(space: SearchSpace, best: Candidate, tried: Collection[str]) -> list[Candidate]:
    """The candidates around the best so far that were not measured yet."""
    return ordered(space, [one for one in space.around(best.changes) if one.signature not in tried])


def ordered(space: SearchSpace, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, the one that should be quickest first."""
    return sorted(candidates, key=lambda one: predicted_seconds(space.kernel.program, one))


def _gain(bench: Workbench, default: Candidate, best: Candidate, candidate: Candidate) -> float | None:
    """How many times as fast as by default a candidate is; None if it is not clearly quicker than the best so far."""
    try:
        ours, theirs = bench.seconds([candidate, best], FIRST_ROUNDS)
        if min(ours) < min(theirs):
            ours, theirs, plain = bench.seconds([candidate, best, default], ROUNDS)
            if is_clearly_quicker(ours, theirs) and is_clearly_quicker(ours, plain):
                return speedup(ours, plain)
    except CodegenError:  # there is no machine code for it
        return None
    return None


def _confirm(space: SearchSpace, bench: Workbench, best: Candidate, finding: Finding) -> None:
    """Let the best race the default once more, and keep the default if that is not clearly slower."""
    if best.signature == space.default.signature:
        finding.changes, finding.speedup = {}, 1.0
        return
    ours, plain = bench.seconds([best, space.default], LAST_ROUNDS)
    if is_clearly_quicker(ours, plain):
        finding.speedup = speedup(ours, plain)
    else:
        finding.changes, finding.speedup = {}, 1.0
