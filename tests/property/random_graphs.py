"""Random graphs over the whole op table, with arguments to call them with.

A graph is drawn from a list of integers, one per step: each seeds the choices of its own step, so that leaving one out
leaves the others nearly as they were and Hypothesis shrinks a failure by dropping steps. The same integers give the
same graph in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies

from ingot.ir.graph import Graph
from tests.property.random_values import LAYOUTS, laid_out
from tests.property.recipes import RECIPES
from tests.property.sketch import PUBLIC, Sketch

MOST_CALLS = 30
UNIFORM = 35.0
"""Weight of a uniformly chosen operator, against the weights of the recipes."""


@dataclass(frozen=True)
class Drawn:
    """A random graph and what to run it with."""

    graph: Graph
    arguments: tuple[Any, ...]
    operators: tuple[str, ...]
    """Every operator that was called, composites by their own names."""

    def __repr__(self) -> str:
        return f"Drawn(\n{self.graph.text}\n)"


def draw_graph(steps: Sequence[int]) -> Drawn:
    """The graph these integers stand for; the first decides the inputs, the last the outputs."""
    sketch = Sketch(Random(steps[0]))
    for _ in range(sketch.random.randint(1, 3)):
        sketch.new_input(sketch.new_shape(), sketch.new_dtype())
    if sketch.chance(0.3):
        sketch.new_scalar()
    weights = [UNIFORM, *(weight for weight, _ in RECIPES)]
    for step in steps[1:-1]:
        if len(sketch.operators) >= MOST_CALLS:
            break
        sketch.random = Random(step)
        chosen = sketch.random.choices(range(len(weights)), weights)[0]
        if chosen == 0:
            sketch.call_sample(sketch.random.choice(PUBLIC))
        else:
            RECIPES[chosen - 1][1](sketch)
    sketch.random = Random(steps[-1])
    _choose_outputs(sketch)
    arguments = [laid_out(argument, _layout(sketch)) for argument in sketch.arguments]
    return Drawn(sketch.builder.build(), tuple(arguments), tuple(sketch.operators))


def _layout(sketch: Sketch) -> str:
    return sketch.random.choice(LAYOUTS) if sketch.chance(0.5) else "contiguous"


def _choose_outputs(sketch: Sketch) -> None:
    """Some values are results, some of those are written into inputs; whatever remains may be dead."""
    chosen = sketch.random.choices(sketch.values, k=sketch.random.randint(1, 4))
    if sketch.chance(0.75):
        # What nothing else uses: every value then shows in some result, and rules about values used once still apply.
        chosen = [value for value in sketch.unused_values() if sketch.chance(0.9)] or chosen
    for value in chosen:
        order = sketch.random.sample(range(len(value.shape)), len(value.shape)) if sketch.chance(0.05) else None
        sketch.builder.add_output(value.handle, stride_order=order)
    if sketch.scalars and sketch.chance(0.3):
        sketch.builder.add_output(sketch.random.choice(sketch.scalars))
    graph = sketch.builder.build()
    written = [graph.inputs[o.alias_input] for o in graph.outputs if o.alias_input is not None]  # batch_norm's doing
    targets = [value for value in sketch.inputs if value.handle.node not in written]
    sketch.random.shuffle(targets)
    for target in targets[: sketch.random.choice((0, 0, 0, 1, 1, 2))]:
        value = sketch.pick(lambda value, target=target: (value.dtype, value.shape) == (target.dtype, target.shape))
        if value is not None:
            sketch.builder.add_output(value.handle, alias_input=target.handle)


def seeded_graph(seed: int) -> Drawn:
    """A graph of ordinary length from a single number."""
    random = Random(seed)
    return draw_graph([random.getrandbits(32) for _ in range(random.randint(4, 24))])


_STEP = strategies.integers(0, 2**32 - 1)


def drawn_graphs() -> strategies.SearchStrategy[Drawn]:
    """Graphs of up to 30 calls, short and long ones alike."""
    short = strategies.lists(_STEP, min_size=3, max_size=10)
    long = strategies.lists(_STEP, min_size=10, max_size=MOST_CALLS)
    return strategies.one_of(short, long).map(draw_graph)
