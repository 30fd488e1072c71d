"""The command `ingot`: its groups of commands, and how faults are told.

In: the arguments of a command line. Out: text, and 0; 1 where a command found a problem, 2 where it was called wrongly.
"""

from __future__ import annotations

import sys

import click

import ingot
from ingot.base.errors import IngotError
from ingot.cli.bench import bench
from ingot.cli.cache import cache
from ingot.cli.demo import demo
from ingot.cli.doctor import doctor
from ingot.cli.explain import explain_command
from ingot.cli.graphs import optimize_command, verify_command
from ingot.cli.listing import backends, flags, ops, passes
from ingot.cli.models import compile_command, run_command
from ingot.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ingot.__version__, prog_name="ingot")
def commands() -> None:
    """A just-in-time fusion compiler for PyTorch."""


for command in (ops, flags, passes, backends, verify_command, optimize_command, explain_command, bench, doctor, demo):
    commands.add_command(command)
for command in (cache, compile_command, run_command, tune):
    commands.add_command(command)


def main() -> None:
    """Entry point: faults of the user's become one message, not a traceback."""
    try:
        code = commands(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except IngotError as error:
        click.echo(f"ingot: {error}", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)


if __name__ == "__main__":
    main()
