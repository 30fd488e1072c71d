"""What commands print with, and how they tell of faults."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console


def console() -> Console:
    """Made when it is needed, so that it writes to the standard output of that moment."""
    return Console(file=sys.stdout, highlight=False)


def print_json(data: Any) -> None:
    """Data for programs."""
    click.echo(json.dumps(data, indent=2))
