"""Printing what INGOT_DUMP names, to standard error, and keeping what INGOT_KEEP_INTERM asks for, as it comes about.

In: what stages and passes made. Out: text on standard error, and files. A text that is not asked for is not made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from ingot.base.environment_variables import environment
from ingot.base.errors import IngotError
from ingot.base.working_directory import keep_stage


class Printable(Protocol):
    @property
    def text(self) -> str: ...


def dump(word: str, *lines: str) -> None:
    """Print lines if INGOT_DUMP names the word."""
    if word in environment().dump:
        print("\n".join(lines), file=sys.stderr)


def dump_stage(name: str, text: Callable[[], str], folder: Callable[[], str]) -> None:
    """Print the text of what a stage gave, if INGOT_DUMP names the stage; or why there is none, as for machine code of
    GPUs without the tools that show it. `folder` is where it is kept inside the working directory, if stages are."""
    variables = environment()
    if name not in variables.dump and not variables.keeps_stages:
        return
    try:
        found = text()
    except IngotError as error:
        found = f"no text: {error}"
    dump(name, f"# {name}", found, "")
    if variables.keeps_stages:
        keep_stage(name, folder(), found)


def dump_pass(name: str, changed: int, made: Printable) -> None:
    """Print what a pass has made of a trace or a graph, if it has changed something and INGOT_DUMP names it."""
    if changed and name in environment().dump:
        dump(name, f"# after {name}, which changed {changed} operation{'s' if changed > 1 else ''}", made.text, "")
