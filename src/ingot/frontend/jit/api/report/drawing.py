"""Boxes and arrows as an SVG picture, layer below layer.

In: boxes, and arrows between them that form no cycle. Out: SVG. Every box stands in the layer below the lowest one that
leads to it; an arrow that crosses layers gets a place in each, so that boxes make room for it. Within a layer the order
follows the middle of the neighbours, a few times down and up. Long layers are as wide as they need to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

_CHARACTER, _PADDING, _HEIGHT = 7.3, 20, 36
"""The width of a character of a label, what a box adds to it, and the height of a box, in pixels."""
_GAP, _LAYER = 18, 70
"""Between neighbours, and from one layer to the next."""
_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Box:
    label: str
    detail: str
    """A second, smaller line, such as a type."""
    colour: str
    """Fill, as CSS has it."""
    tooltip: str = ""

    @property
    def width(self) -> float:
        return _PADDING + _CHARACTER * max(len(self.label), 0.8 * len(self.detail))


@dataclass(slots=True)
class _Place:
    """A box in its layer, or where an arrow passes."""

    box: Box | None
    layer: int
    width: float
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    x: float = 0.0

    @property
    def y(self) -> float:
        return self.layer * _LAYER


def drawn(boxes: Sequence[Box], arrows: Sequence[tuple[int, int]], title: str) -> str:
    """The picture."""
    places = [_Place(box, layer, box.width) for box, layer in zip(boxes, _layers(len(boxes), arrows), strict=True)]
    paths = [_routed(places, *arrow) for arrow in dict.fromkeys(arrows)]
    layers = _ordered(places)
    _settle(places, layers)
    width = max((place.x + place.width / 2 for place in places), default=0) + _GAP
    height = len(layers) * _LAYER + _GAP
    lines = [_line([places[index] for index in path]) for path in paths]
    shapes = [_shape(place, place.box) for place in places if place.box is not None]
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}">{"".join(lines)}{"".join(shapes)}</svg>'
    )


def _layers(count: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below the lowest of those that lead to it; where none does, one above the highest that
    it leads to."""
    into: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    begins = set(range(count)) - {second for _, second in arrows}
    for first, second in arrows:
        into[first].append(second)
        waits[second] += 1
    found = [0] * count
    ready = [index for index in range(count) if waits[index] == 0]
    while ready:
        index = ready.pop()
        for target in into[index]:
            found[target] = max(found[target], found[index] + 1)
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)
    for index in begins:
        found[index] = max(0, min((found[target] for target in into[index]), default=1) - 1)
    return found


def _routed(places: list[_Place], first: int, second: int) -> list[int]:
    """The places that an arrow goes through; new ones in the layers between its ends."""
    path = [first]
    for layer in range(places[first].layer + 1, places[second].layer):
        places.append(_Place(None, layer, 4))
        path.append(len(places) - 1)
    path.append(second)
    for upper, lower in pairwise(path):
        places[upper].below.append(lower)
        places[lower].above.append(upper)
    return path


def _ordered(places: list[_Place]) -> list[list[int]]:
    """Layers of places, from left to right."""
    layers: list[list[int]] = [[] for _ in range(1 + max((place.layer for place in places), default=0))]
    for index, place in enumerate(places):
        layers[place.layer].append(index)
    rank = {index: float(number) for layer in layers for number, index in enumerate(layer)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for layer in layers if is_down else reversed(layers):
            middle = {}
            for index in layer:
                near = places[index].above if is_down else places[index].below
                middle[index] = sum(rank[other] for other in near) / len(near) if near else rank[index]
            layer.sort(key=middle.__getitem__)
            rank.update((index, float(number)) for number, index in enumerate(layer))
    return layers


def _settle(places: list[_Place], layers: list[list[int]]) -> None:
    """Where everything stands: as near to the middle of its neighbours as those beside it allow."""
    for layer in layers:
        _pack(places, layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = []
            for index in layer:
                near = [*places[index].above, *places[index].below]
                wanted.append(sum(places[other].x for other in near) / len(near) if near else places[index].x)
            _pack(places, layer, wanted)
    left = min((place.x - place.width / 2 for place in places), default=0.0)
    for place in places:
        place.x += _GAP - left


def _pack(places: list[_Place], layer: list[int], wanted: Sequence[float]) -> None:
    """Put a layer's places where they want to be, side by side without overlap, moved so that the average is met."""
    x, found = float("-inf"), []
    for index, want in zip(layer, wanted, strict=True):
        half = places[index].width / 2
        middle = max(want, x + half)
        found.append(middle)
        x = middle + half + _GAP
    shift = sum(want - middle for want, middle in zip(wanted, found, strict=True)) / max(1, len(layer))
    for index, middle in zip(layer, found, strict=True):
        places[index].x = middle + shift


def _line(path: Sequence[_Place]) -> str:
    """An arrow as a curve from the lower edge of a box to the upper edge of another."""
    points = [(place.x, place.y + _GAP / 2 + (_HEIGHT if number == 0 else 0)) for number, place in enumerate(path)]
    return f'<path class="arrow" d="{" ".join(_curve(points))}"/>'


def _curve(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    (x, y), *rest = points
    yield f"M{x:.0f},{y:.0f}"
    for right, down in rest:
        middle = (y + down) / 2
        yield f"C{x:.0f},{middle:.0f} {right:.0f},{middle:.0f} {right:.0f},{down:.0f}"
        x, y = right, down


def _shape(place: _Place, box: Box) -> str:
    left, top = place.x - place.width / 2, place.y + _GAP / 2
    return (
        f'<g><title>{escape(box.tooltip or box.label)}</title><rect x="{left:.0f}" y="{top:.0f}" rx="6" '
        f'width="{place.width:.0f}" height="{_HEIGHT}" fill="{escape(box.colour)}"/>'
        f'<text x="{place.x:.0f}" y="{top + 15:.0f}">{escape(box.label)}</text>'
        f'<text class="detail" x="{place.x:.0f}" y="{top + 29:.0f}">{escape(box.detail)}</text></g>'
    )
