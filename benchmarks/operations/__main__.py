"""`python -m benchmarks.operations`: measure, print tables, save what was asked for; status 1 if a result is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import benchmarks.operations
from benchmarks.capture.contests import Job
from benchmarks.command_line import add_compile, compile_works, effort_of, parsed, parser_of, run
from benchmarks.operations.contests import SECTIONS, jobs
from benchmarks.operations.report import sheets

TABLE_WIDTH = 150
QUICK_ROUNDS, ROUNDS = 5, 15
SHORTEST_TURN = 0.01
"""Seconds: a single call of a millisecond says little."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("benchmarks.operations", benchmarks.operations.__doc__, list(SECTIONS), ROUNDS)
    add_compile(parser)
    return parsed(parser, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)

    def make_jobs() -> dict[str, list[Job]]:
        effort = effort_of(chosen, QUICK_ROUNDS, ROUNDS, SHORTEST_TURN)
        how = effort, compile_works(chosen.compile), chosen.size == "small"
        return {name: jobs(SECTIONS[name], *how) for name in chosen.only or SECTIONS}

    return run(chosen, make_jobs, sheets, TABLE_WIDTH)


if __name__ == "__main__":
    sys.exit(main())
