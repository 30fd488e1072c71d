"""`ingot tune`: find schedules for the kernels of a function, and keep them for the processes to come.

In: `module:function`, and texts that describe arguments. Out: a table, or the same for programs. What always holds:
`ingot.jit(function, tune=True)` uses what is found here, without measuring anything.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
import torch
from rich.markup import escape
from rich.table import Table

import ingot
from ingot.base.config import Config
from ingot.base.environment_variables import environment
from ingot.cli.named_functions import example_arguments, found_function
from ingot.cli.terminal import console, print_json
from ingot.runtime.kernels import TunedKernel

_DEFAULTS = Config()
_CALLS = 20
"""Enough for a function to be recorded, followed and compiled."""


@click.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--input",
    "--inputs",
    "inputs",
    multiple=True,
    metavar="INPUT",
    help="an argument: a tensor as float32[64,128] or int64[8], or a literal; once for each argument",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=_DEFAULTS["kernel_tuning_steps"],
    show_default=True,
    help="candidates that are measured for each kernel at most",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=_DEFAULTS["kernel_tuning_seconds"],
    show_default=True,
    help="how long each kernel may take at most",
)
@click.option("--gradients", is_flag=True, help="call it with gradients enabled, as in training")
@click.option("--json", "as_json", is_flag=True, help="print what was found for programs")
@click.pass_context
def tune(
    context: click.Context,
    function: str,
    inputs: tuple[str, ...],
    steps: int,
    seconds: float,
    gradients: bool,
    as_json: bool,
) -> None:
    """Find quicker schedules for the kernels of a function by measuring them, and keep them.

    MODULE is imported from the current directory. Without --input the module's EXAMPLE_INPUTS, or what its
    example_inputs() returns, are the arguments. Interrupted, it keeps the best so far. Exits with 1 if there is no
    kernel to tune, or if a search ended before its time.
    """
    module, subject = found_function(function)
    arguments = example_arguments(module, inputs)
    compiled: Any = ingot.jit(subject, tuning_steps=steps, config={"kernel_tuning_seconds": seconds})
    called: Any = compiled.forward if isinstance(compiled, torch.nn.Module) else compiled
    is_interrupted = False
    try:
        with torch.set_grad_enabled(gradients):
            for _ in range(_CALLS):
                compiled(*arguments)
    except KeyboardInterrupt:
        is_interrupted = True
    except Exception as error:  # the user's own, or one of wrong inputs
        raise click.ClickException(f"{function} raised {type(error).__name__}: {error}") from error
    found = called.stats().tuned
    _tell(function, found, as_json)
    if not found and not is_interrupted:
        click.echo(f"no kernel of {function} was tuned:\n{called.explain()}", err=True)
    context.exit(130 if is_interrupted else 0 if found and not any(one.stopped for one in found) else 1)


def _tell(function: str, found: tuple[TunedKernel, ...], as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in found])
        return
    if not found:
        return
    listing = Table(title=f"Schedules for {function}")
    for heading in ("kernel", "sizes", "chosen", "speedup", "candidates", ""):
        listing.add_column(heading, overflow="fold")
    for one in found:
        sizes = " x ".join(map(str, one.sizes))
        note = one.stopped or ("known" if one.is_from_disk else "")
        chosen = one.chosen or "the default"
        listing.add_row(one.kernel, sizes, escape(chosen), f"{one.speedup:.2f}x", str(one.candidates), escape(note))
    console().print(listing)
    folder = environment().cache_directory
    kept = "nothing is kept: INGOT_CACHE_DIR is set to nothing" if folder is None else f"kept in {folder}"
    console().print(escape(f"{kept}; ingot.jit(..., tune=True) uses it"), soft_wrap=True)
