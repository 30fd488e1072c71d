"""What ingot wants to reach here, and whether it does: from the figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.capture.calls import SMALL_CALL
from benchmarks.capture.contests import Row
from benchmarks.capture.functions import PLAIN
from benchmarks.capture.models import over_least
from benchmarks.capture.slow_cases import CASES
from benchmarks.groups import ONE_ADDITION
from benchmarks.results import EAGER, JIT
from benchmarks.targets import Target, worst

SPEED_WITHOUT = 0.8
"""Of the speed of the same function without the thing in the way."""
MOST_TIMES, MOST_EXTRA = 1.05, 1e-6
"""Times eager's seconds, and seconds on top, that a call may take where there is nothing to gain."""
MODELS_OVER_EAGER = 0.97
MOST_OF_LEAST = 1.15
"""Times what following would take if it cost nothing itself."""
MOST_RECORDINGS = 3

Sections = Mapping[str, Sequence[Row]]


def share_of_limit(row: Row) -> float | None:
    """How much of what a slow case may take it takes; None if it was not measured."""
    if EAGER not in row.seconds or JIT not in row.seconds:
        return None
    return row.seconds[JIT] / (MOST_TIMES * row.seconds[EAGER] + MOST_EXTRA)


def targets(sections: Sections) -> list[Target]:
    """The targets of what was measured; wrong results are one, whatever was."""
    rows = sections.get("functions", ())
    found = worst(
        "functions, speed of the same without it", ((row.name, row.over(PLAIN, JIT)) for row in rows), SPEED_WITHOUT
    )
    found += _slow(sections.get("slow", ()))
    rows = sections.get("models", ())
    found += worst("models, over eager", ((row.name, row.over(EAGER, JIT)) for row in rows), MODELS_OVER_EAGER)
    least = ((row.name, over_least(row)) for row in rows)
    found += worst("models, following over Python alone + kernels, in one call", least, MOST_OF_LEAST, at_most=True)
    rows = sections.get("lengths", ())
    recordings = [("all lengths", float(row.recordings)) for row in rows if row.recordings is not None]
    found += worst("lengths, recordings", recordings, MOST_RECORDINGS, "", at_most=True)
    small = [row for row in sections.get("calls", ()) if row.name == SMALL_CALL]
    found += worst("a small call, over one eager add", ((row.name, row.over(ONE_ADDITION, JIT)) for row in small), 1.0)
    wrong = [row.name for rows in sections.values() for row in rows if not row.is_equal]
    return [*found, Target("results or effects that differ", len(wrong), 0, "", at_most=True, where=", ".join(wrong))]


def _slow(rows: Sequence[Row]) -> list[Target]:
    wanted = {case.name: case.wanted_over_eager for case in CASES if case.wanted_over_eager is not None}
    text = f"slow cases, share of {MOST_TIMES:g}x eager + {MOST_EXTRA * 1e6:g} us"
    found = worst(text, ((row.name, share_of_limit(row)) for row in rows), 1.0, at_most=True)
    for row in rows:
        if row.name in wanted:
            found += worst("much to gain, over eager", [(row.name, row.over(EAGER, JIT))], wanted[row.name])
            if row.recordings is not None:
                late = [(row.name, float(row.recordings))]
                found += worst("much to gain, recordings after the third call", late, 0.0, "", at_most=True)
    return found
