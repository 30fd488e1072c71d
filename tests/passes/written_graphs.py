"""Graphs written as text for the tests of passes: what goes in, and the lines that come out of one pass and dead-code
elimination."""

import textwrap

from ingot.ir.parser import parse
from ingot.passes.graph_passes import PASSES

BY_NAME = {pass_.name: pass_ for pass_ in PASSES}


def body(inputs: str, text: str) -> str:
    return f"graph({inputs}) {{\n{textwrap.indent(textwrap.dedent(text).strip(), '  ')}\n}}"


def after(pass_name: str, inputs: str, text: str) -> list[str]:
    """The lines of a graph after one pass, without what nothing uses."""
    graph = BY_NAME["dead_code"].run(BY_NAME[pass_name].run(parse(body(inputs, text))).graph).graph
    return [line.strip() for line in graph.text.splitlines()[1:-1]]


def unary(dtype: str, expression: str, result: str | None = None) -> str:
    """A graph that applies one expression of %0 and returns it."""
    return f"%9 = {expression}: {result or dtype}[4]\nreturn %9"
