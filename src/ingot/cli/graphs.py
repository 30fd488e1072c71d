"""Commands that work on graphs in files."""

from __future__ import annotations

from typing import TextIO

import click
from rich.console import Console
from rich.table import Table

from ingot.ir.graph import Graph
from ingot.ir.parser import parse
from ingot.passes.graph_passes import Optimized, optimize


@click.command(name="verify")
@click.argument("file", type=click.File("r"))
def verify_command(file: TextIO) -> None:
    """Check the text of a graph ("-" reads standard input)."""
    graph = parse(file.read())
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    click.echo(f"correct: {inputs} inputs, {len(graph.nodes)} operations, {outputs} outputs, digest {graph.digest}")


@click.command(name="optimize")
@click.argument("file", type=click.File("r"))
@click.option("--level", type=click.IntRange(0, 3), default=3, show_default=True, help="graph_opt_level")
@click.option("--disable", multiple=True, metavar="PASS", help="leave a pass out; may be given several times")
@click.option("--report/--no-report", default=True, help="print what each pass did, to standard error")
def optimize_command(file: TextIO, level: int, disable: tuple[str, ...], report: bool) -> None:
    """Optimise the text of a graph ("-" reads standard input) and print the result."""
    graph = parse(file.read())
    optimized = optimize(graph, level, disable)
    click.echo(optimized.graph.text)
    if report:
        Console(stderr=True, highlight=False).print(report_table(graph, optimized))


def report_table(before: Graph, optimized: Optimized) -> Table:
    """What each pass did, as a table."""
    title = f"{len(before.nodes)} operations became {len(optimized.graph.nodes)}"
    listing = Table("pass", "changed", "nodes fewer", "milliseconds", title=title)
    for report in optimized.reports:
        listing.add_row(report.name, str(report.changed), str(report.removed), f"{report.seconds * 1e3:.2f}")
    return listing
