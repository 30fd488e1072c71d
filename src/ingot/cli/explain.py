"""`ingot explain`: what becomes of a function, without touching its source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
import torch

import ingot
from ingot.cli.named_functions import example_arguments, found_function
from ingot.cli.terminal import print_json


@click.command(name="explain")
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--input",
    "--inputs",
    "inputs",
    multiple=True,
    metavar="INPUT",
    help="an argument: a tensor as float32[64,128] or int64[8]@cuda, or a literal; once for each argument",
)
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="write the report into an HTML file")
@click.option("--calls", type=click.IntRange(2, 100_000), default=20, show_default=True, help="how often to call it")
@click.option("--gradients", is_flag=True, help="call it with gradients enabled, as in training")
@click.option("--json", "as_json", is_flag=True, help="print tier, kernels, costs and reasons for programs")
def explain_command(
    function: str, inputs: tuple[str, ...], html: str | None, calls: int, gradients: bool, as_json: bool
) -> None:
    """Call a function with example inputs, and tell what became of it.

    MODULE is imported from the current directory. FUNCTION may be a function, a module of torch's, or an attribute of
    one. Without --input the module's EXAMPLE_INPUTS, or what its example_inputs() returns, are the arguments.
    """
    module, subject = found_function(function)
    arguments = example_arguments(module, inputs)
    compiled: Any = ingot.jit(subject, config={"enable_profiling": html is not None or as_json})
    try:
        with torch.set_grad_enabled(gradients):
            for _ in range(calls):
                compiled(*arguments)
    except Exception as error:  # the user's own, or one of wrong inputs
        raise click.ClickException(f"{function} raised {type(error).__name__}: {error}") from error
    called: Any = compiled.forward if isinstance(compiled, torch.nn.Module) else compiled
    if html is not None:
        called.report(html)
        click.echo(f"wrote {html}", err=as_json)
    if as_json:
        print_json(_told(called))
    elif html is None:
        click.echo(called.explain())


def _told(called: Any) -> dict[str, Any]:
    stats = called.stats()
    stops = [
        asdict(stop) for function in ingot.summary().functions if function.name == stats.name for stop in function.stops
    ]
    data = asdict(stats) | {"device": str(stats.device), "stops": stops}
    return data | {"kernels": [asdict(kernel) for kernel in stats.kernels]}
