"""What `INGOT_LOGS` can show, on standard error."""

from __future__ import annotations

import sys

from ingot.base.environment_variables import environment


def log(subject: str, text: str) -> None:
    """Print a line if its subject was asked for."""
    if subject in environment().logs:
        print(f"ingot {subject}: {text}", file=sys.stderr)
