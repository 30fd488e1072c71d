"""How numbers, bytes, times and places are written for people.

In: numbers and places. Out: short texts, the same wherever ingot reports something.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def indented(lines: Iterable[str]) -> list[str]:
    """Lines two columns further in; empty ones stay empty."""
    return [f"  {line}" if line else "" for line in lines]


def counted(number: int, noun: str, ending: str = "s") -> str:
    """A number of things: `1 kernel`, `2 kernels`."""
    return f"{number} {noun}{'' if number == 1 else ending}"


def byte_count(number: float) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit in ("bytes", "KB", "MB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GB"


def duration(seconds: float) -> str:
    """Seconds in the unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def short_place(place: str) -> str:
    """A place as file:line, its path relative to the working directory where it lies inside."""
    path, _, line = place.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return place


def text_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows under a header, columns as wide as their widest text: the first to the left, the others to the right."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        aligned = [
            row[0].ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(aligned).rstrip())
    return lines
