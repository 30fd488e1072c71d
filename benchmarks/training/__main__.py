"""`python -m benchmarks.training`: measure, print tables, save what was asked for; status 1 if a loss is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import benchmarks.training
from benchmarks.capture.contests import Job
from benchmarks.command_line import add_compile, compile_works, effort_of, parsed, parser_of, run
from benchmarks.training.optimizers import optimizers
from benchmarks.training.report import sheets
from benchmarks.training.steps import Settings, steps

TABLE_WIDTH = 210
QUICK_ROUNDS, ROUNDS = 3, 15
SHORTEST_TURN = 0.02
"""Seconds: a single step of a millisecond says little."""
SECTIONS: dict[str, Callable[[Settings], list[Job]]] = {"steps": steps, "optimizers": optimizers}


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("benchmarks.training", benchmarks.training.__doc__, list(SECTIONS), ROUNDS)
    add_compile(parser)
    return parsed(parser, arguments)


def settings(chosen: argparse.Namespace) -> Settings:
    effort = effort_of(chosen, QUICK_ROUNDS, ROUNDS, SHORTEST_TURN)
    return Settings(effort, chosen.size == "small", compile_works(chosen.compile))


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)

    def make_jobs() -> dict[str, list[Job]]:
        how = settings(chosen)
        return {name: SECTIONS[name](how) for name in chosen.only or SECTIONS}

    return run(chosen, make_jobs, sheets, TABLE_WIDTH)


if __name__ == "__main__":
    sys.exit(main())
