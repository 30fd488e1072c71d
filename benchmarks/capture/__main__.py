"""`python -m benchmarks.capture`: measure, print tables, save what was asked for; status 1 if a result is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import benchmarks.capture
from benchmarks.capture.contests import Job, Settings
from benchmarks.capture.report import sheets
from benchmarks.capture.sections import SECTIONS
from benchmarks.command_line import compile_works, effort_of, parsed, parser_of, run

TABLE_WIDTH = 190
QUICK_ROUNDS, ROUNDS = 5, 15
SHORTEST_TURN = 0.01
"""Seconds: a single call of a millisecond says little."""
ELEMENTS = 1_000_000
"""Of the tensors of the functions."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("benchmarks.capture", benchmarks.capture.__doc__, list(SECTIONS), ROUNDS)
    parser.add_argument(
        "--compile",
        choices=("none", "functions", "all"),
        nargs="?",
        const="all",
        default="functions",
        help="where torch.compile takes part: in the functions alone, or in the models as well, which takes minutes",
    )
    parser.add_argument("--size", choices=("small", "medium"), default="small", help="of the models")
    return parsed(parser, arguments)


def settings(chosen: argparse.Namespace) -> Settings:
    works = compile_works(chosen.compile != "none")
    return Settings(
        ELEMENTS,
        effort_of(chosen, QUICK_ROUNDS, ROUNDS, SHORTEST_TURN),
        compile_functions=works,
        compile_models=works and chosen.compile == "all",
        small_models=chosen.size == "small",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)

    def make_jobs() -> dict[str, list[Job]]:
        how = settings(chosen)
        return {name: SECTIONS[name](how) for name in chosen.only or SECTIONS}

    return run(chosen, make_jobs, sheets, TABLE_WIDTH)


if __name__ == "__main__":
    sys.exit(main())
