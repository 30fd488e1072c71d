"""Figures as pictures: SVG written by hand, because a bar and a line need no library.

In: labels and numbers. Out: the text of an SVG file with a background of its own, readable on light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from benchmarks.results import COMPILE, EAGER, INGOT, JIT

COLOURS = {EAGER: "#9aa5b1", COMPILE: "#e09f3e", INGOT: "#1f6f8b", JIT: "#1f6f8b"}
INK, PALE, PAPER = "#22313f", "#d9dee4", "#ffffff"
WIDTH = 860


@dataclass
class Drawing:
    """Shapes on paper, from top left."""

    height: float
    shapes: list[str] = field(default_factory=list)

    def rectangle(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        self._add("rect", x=left, y=top, width=width, height=height, fill=colour, rx=1.5)

    def line(self, points: Sequence[tuple[float, float]], colour: str, thickness: float) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", points=places, fill="none", stroke=colour, stroke_width=thickness)

    def dot(self, x: float, y: float, colour: str) -> None:
        self._add("circle", cx=x, cy=y, r=3, fill=colour)

    def text(self, x: float, y: float, content: str, anchor: str = "start", size: int = 13, bold: bool = False) -> None:
        weight = "bold" if bold else "normal"
        attributes = _attributes(x=x, y=y, fill=INK, text_anchor=anchor, font_size=size, font_weight=weight)
        self.shapes.append(f"<text {attributes}>{escape(content)}</text>")

    def legend(self, left: float, top: float, names: Sequence[str]) -> None:
        for name in names:
            self.rectangle(left, top - 10, 12, 12, COLOURS[name])
            self.text(left + 17, top, name)
            left += 34 + 8 * len(name)

    def svg(self) -> str:
        head = _attributes(
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {self.height:g}",
            width=WIDTH,
            height=self.height,
            font_family="Helvetica, Arial, sans-serif",
        )
        paper = f"<rect {_attributes(width=WIDTH, height=self.height, fill=PAPER)}/>"
        return "\n".join([f"<svg {head}>", paper, *self.shapes, "</svg>"]) + "\n"

    def _add(self, shape: str, **attributes: object) -> None:
        self.shapes.append(f"<{shape} {_attributes(**attributes)}/>")


def bars(title: str, groups: Mapping[str, Mapping[str, Mapping[str, float]]], unit: str) -> str:
    """Bars to the right: groups of labels, and for each label a number per contestant. A line marks 1."""
    names = list(dict.fromkeys(name for group in groups.values() for bar in group.values() for name in bar))
    thickness, gap, left, right = 11, 9, 190, 60
    lines = sum(len(group) * (thickness * len(names) + gap) + 34 for group in groups.values())
    drawing = Drawing(80 + lines)
    drawing.text(20, 28, title, size=16, bold=True)
    drawing.legend(20, 54, names)
    largest = max((value for group in groups.values() for bar in group.values() for value in bar.values()), default=1.0)
    scale = (WIDTH - left - right) / max(largest, 1.0)
    top = 70.0
    for group_name, group in groups.items():
        top += 22
        drawing.text(20, top, group_name, bold=True)
        top += 12
        for label, values in group.items():
            drawing.text(left - 8, top + thickness * len(names) / 2 + 4, label, anchor="end")
            for name in names:
                if name in values:
                    drawing.rectangle(left, top, values[name] * scale, thickness - 1, COLOURS[name])
                    figure = f"{values[name]:.1f}{unit}"
                    drawing.text(left + values[name] * scale + 4, top + thickness - 2, figure, size=10)
                top += thickness
            top += gap
    drawing.line([(left + scale, 70), (left + scale, top)], INK, 1)
    return drawing.svg()


def curves(title: str, horizontal: str, vertical: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Lines on two logarithmic axes, one per contestant."""
    left, right, top, bottom, height = 80, 30, 80, 60, 440
    points = [point for curve in series.values() for point in curve]
    across = _Axis(min(x for x, _ in points), max(x for x, _ in points), left, WIDTH - right)
    upward = _Axis(min(y for _, y in points), max(y for _, y in points), height - bottom, top)
    drawing = Drawing(height)
    drawing.text(20, 28, title, size=16, bold=True)
    drawing.legend(20, 54, list(series))
    for power, place in across.powers():
        drawing.line([(place, top), (place, height - bottom)], PALE, 1)
        drawing.text(place, height - bottom + 18, _power_of_ten(power), anchor="middle")
    for power, place in upward.powers():
        drawing.line([(left, place), (WIDTH - right, place)], PALE, 1)
        drawing.text(left - 8, place + 4, _power_of_ten(power), anchor="end")
    drawing.text((left + WIDTH - right) / 2, height - 16, horizontal, anchor="middle")
    drawing.text(left, top - 8, vertical)
    for name, curve in series.items():
        places = [(across.place(x), upward.place(y)) for x, y in curve]
        drawing.line(places, COLOURS[name], 2)
        for x, y in places:
            drawing.dot(x, y, COLOURS[name])
    return drawing.svg()


class _Axis:
    """Whole powers of ten around all values, from one place on the paper to another."""

    def __init__(self, smallest: float, largest: float, first: float, last: float):
        self._low = math.floor(math.log10(smallest) + 1e-9)
        self._high = max(math.ceil(math.log10(largest) - 1e-9), self._low + 1)
        self._first, self._last = first, last

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def powers(self) -> Iterator[tuple[int, float]]:
        for power in range(self._low, self._high + 1):
            yield power, self.place(10.0**power)


def _power_of_ten(power: int) -> str:
    if 3 <= power < 9:
        return f"{10 ** (power % 3)}{'KM'[power // 3 - 1]}"
    return f"{10.0**power:g}"


def _attributes(**attributes: object) -> str:
    return " ".join(
        f"{name.replace('_', '-')}={quoteattr(f'{value:.1f}' if isinstance(value, float) else str(value))}"
        for name, value in attributes.items()
    )
