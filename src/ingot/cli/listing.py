"""Commands that list what there is: operators, flags, stages and passes, backends."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from ingot.base.config import FLAGS
from ingot.base.dtypes import in_order
from ingot.base.environment_variables import CHECKS, LOGS, dump_words
from ingot.base.stages import STAGES
from ingot.cli.terminal import console, print_json
from ingot.frontend.jit.rewrites.trace_passes import TRACE_PASSES
from ingot.ops import Kind, Op, lookup, table
from ingot.passes.graph_passes import PASSES
from ingot.runtime.backends.interface import Backend
from ingot.runtime.backends.registry import registered


@click.command()
@click.argument("name", required=False)
def ops(name: str | None) -> None:
    """List all operators, or tell everything about one."""
    if name is not None:
        _describe_op(lookup(name))
        return
    listing = Table("operator", "arguments", "kind", "what it gives", title="Operators, as fd.ops.<operator>")
    for op in sorted(table().values(), key=lambda op: op.name):
        if op.is_public:
            summary = escape(op.summary.splitlines()[0])
            listing.add_row(op.name, escape(str(op.signature)), op.kind.name.lower(), summary)
    console().print(listing)


@click.command()
def flags() -> None:
    """List all configuration flags and environment variables."""
    listing = Table("flag", "default", "values", "meaning", title="Flags of ingot.Config")
    for flag in FLAGS:
        listing.add_row(flag.name, escape(repr(flag.default)), flag.accepts, flag.meaning)
    variables = Table("variable", "word", "meaning", title="Environment: words separated by commas")
    for name, verb, words in (
        ("INGOT_DUMP", "prints", dump_words()),
        ("INGOT_CHECK", "checks", CHECKS),
        ("INGOT_LOGS", "prints", LOGS),
        ("INGOT_DISABLE", "makes", {"1": "compiled functions call their originals"}),
        ("INGOT_WORKDIR", "names", {"a directory": "where files go that people read; ingot-work if it is not set"}),
        ("INGOT_KEEP_INTERM", "keeps", {"1": "the text of every stage in the working directory"}),
        ("INGOT_CACHE_DIR", "keeps", {"a directory": "compiled kernels there (~/.cache/ingot); empty: nowhere"}),
        ("INGOT_CACHE_LIMIT", "keeps", {"500MB, 2GB, ...": "at most so many bytes there (1GB)"}),
        ("INGOT_BACKEND", "uses", {each.name: f"the backend for {each.device_type} alone" for each in registered()}),
    ):
        for word, meaning in words.items():
            variables.add_row(name, word, f"{verb} {meaning}")
    console().print(listing, variables)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print the same as JSON")
def passes(as_json: bool) -> None:
    """List the stages from a call to machine code, and the passes of traces and graphs, in the order they run.

    INGOT_DUMP prints what it names of them; ingot.Config(disabled_passes=[...]) leaves passes out.
    """
    if as_json:
        print_json(_pipeline())
        return
    stages = Table("stage", "takes", "gives", "what that is", title="Stages, as INGOT_DUMP and inspect() name them")
    for stage in STAGES:
        names = stage.name if stage.other_name is None else f"{stage.name}, {stage.other_name}"
        stages.add_row(names, stage.takes, stage.gives, stage.summary)
    of_traces = Table("pass", "only with freeze", "keeps bits", "what it does", title="Passes of traces")
    for pass_ in TRACE_PASSES:
        flags = ("yes" if flag else "" for flag in (pass_.needs_frozen, pass_.keeps_bits))
        of_traces.add_row(pass_.name, *flags, pass_.summary)
    of_graphs = Table("pass", "from level", "what it does", title="Passes of graphs")
    for pass_ in PASSES:
        of_graphs.add_row(pass_.name, str(pass_.level), pass_.summary)
    console().print(stages, of_traces, of_graphs)


def _pipeline() -> dict[str, Any]:
    """Stages and passes as plain data."""
    return {
        "stages": [asdict(stage) for stage in STAGES],
        "trace_passes": [
            {
                "name": pass_.name,
                "needs_frozen": pass_.needs_frozen,
                "keeps_bits": pass_.keeps_bits,
                "summary": pass_.summary,
            }
            for pass_ in TRACE_PASSES
        ],
        "graph_passes": [{"name": pass_.name, "level": pass_.level, "summary": pass_.summary} for pass_ in PASSES],
    }


COLUMNS = ("platform", "reductions", "binary cache", "kernel reuse", "non-contiguous input", "available")
"""What `ingot backends` says of each."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print the same for programs")
def backends(as_json: bool) -> None:
    """List what can run kernels on this machine, and what it can do."""
    rows = {backend.name: dict(zip(COLUMNS, _row(backend), strict=True)) for backend in registered()}
    reasons = {backend.name: backend.why_unavailable() for backend in registered()}
    if as_json:
        told = {name: row | {"why not available": reasons[name]} for name, row in rows.items()}
        print_json(told)
        return
    listing = Table("backend", *COLUMNS, title="Backends; INGOT_BACKEND names those to use, separated by commas")
    for name, row in rows.items():
        listing.add_row(name, *(escape(text) for text in row.values()))
    console().print(listing)
    for name, reason in reasons.items():
        if reason is not None:
            click.echo(f"{name} is not available: {reason}")


def _row(backend: Backend) -> tuple[str, ...]:
    features = backend.features
    return (
        backend.platform,
        features.reductions,
        features.binary_cache,
        features.kernel_reuse,
        features.non_contiguous_input,
        "yes" if backend.why_unavailable() is None else "no",
    )


def _describe_op(op: Op) -> None:
    click.echo(f"{op.name}{op.signature or ''}\n")
    click.echo(f"{op.summary}\n")
    kind = "a composite of other operators" if op.kind is Kind.COMPOSITE else f"a primitive ({op.kind.name.lower()})"
    click.echo(f"It is {kind}.")
    if op.promotion is not None:
        click.echo(f"It computes in {', '.join(dtype.text for dtype in in_order(op.dtypes))}.")
