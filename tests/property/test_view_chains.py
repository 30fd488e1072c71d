"""Chains of views around pointwise operations and reductions: what the passes that move views are made for.

Random graphs over the whole op table rarely meet a value that is taken apart, split into heads or joined. Here most
steps do that, with sizes that have many divisors, fixed or symbolic. Every pass must keep every bit, the pipeline must
settle, and nothing may be computed for more elements than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from hypothesis import given, settings, strategies

import ingot
from ingot.base.sizes import Size, evaluate, product
from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.handles import Handle
from ingot.ir.verifier import verify
from ingot.ops import Kind
from ingot.passes.dead_code import DeadCode
from ingot.passes.graph_passes import PASSES, optimize
from tests.property.outcomes import difference, first_wrong_value, run

PROFILE = settings.get_profile("random graphs")
UNARY = ("exp", "neg", "sigmoid", "sinh", "reciprocal", "abs")
BINARY = ("add", "mul", "sub", "maximum")
REDUCTIONS = ("sum", "amax", "mean")


@dataclass(frozen=True)
class Chain:
    graph: Graph
    arguments: tuple[torch.Tensor, ...]
    sizes: dict[str, int]

    def __repr__(self) -> str:
        return f"Chain(\n{self.graph.text}\n)"


class Drawing:
    """A graph that grows by steps, each of which takes values drawn before and adds new ones."""

    def __init__(self, random: Random):
        self.random = random
        self.builder = ingot.GraphBuilder()
        self.values: list[Handle] = []
        self.arguments: list[torch.Tensor] = []
        self.sizes: dict[str, int] = {}
        shape = [random.choice((1, 2, 4, 6, 12)) for _ in range(random.randint(1, 3))]
        self._declared = [self._declare(size) for size in shape]
        self._shape = shape
        for _ in range(random.randint(1, 3)):
            self.new_input()

    def _declare(self, size: int) -> int | str:
        if size == 1 or self.random.random() < 0.6:
            return size
        name = f"length{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def new_input(self) -> Handle:
        """A tensor of the first shape, or one that is repeated to it."""
        kept = range(self.random.choice((0, 0, 0, self.random.randrange(len(self._shape)))), len(self._shape))
        ones = {axis for axis in kept if self.random.random() < 0.15}
        # Another name for a size is assumed to mean the same number.
        renamed = {axis for axis in kept if self.random.random() < 0.1}
        declared = [
            self._declare(self._shape[a]) if a in renamed else self._declared[a] for a in range(len(self._shape))
        ]
        shape = [1 if axis in ones else declared[axis] for axis in kept]
        generator = torch.Generator().manual_seed(self.random.getrandbits(32))
        argument = torch.randn([1 if axis in ones else self._shape[axis] for axis in kept], generator=generator)
        if argument.dim() > 1 and self.random.random() < 0.3:
            argument = argument.transpose(0, 1).contiguous().transpose(0, 1)
        self.arguments.append(argument)
        self.values.append(self.builder.input(shape))
        return self.values[-1]

    def step(self) -> None:
        actions: Sequence[tuple[int, Callable[[Handle], Any]]] = (
            (6, self.compute),
            (6, self.combine),
            (2, self.reshape),
            (5, self.work_in_another_shape),
            (2, self.slice),
            (5, self.take_apart),
            (3, self.join),
            (2, self.permute),
            (2, self.reduce),
            (1, self.repeat),
        )
        action = self.random.choices([action for _, action in actions], [weight for weight, _ in actions])[0]
        recent = self.values[-4:] if self.random.random() < 0.7 else self.values
        try:
            found = action(self.random.choice(recent))
        except ingot.IngotError:
            return
        for value in found if isinstance(found, list) else [found]:
            # Nothing can be reduced to a largest element, and computing nothing is always less.
            if isinstance(value, Handle) and 0 < self._count(value) <= 2000:
                self.values.append(value)

    def _count(self, value: Handle) -> int:
        return evaluate(product(value.shape), self.sizes)

    # --- steps ------------------------------------------------------------------------------------------------------

    def compute(self, x: Handle) -> Any:
        return getattr(self.builder.ops, self.random.choice(UNARY))(x)

    def combine(self, x: Handle) -> Any:
        alike = [value for value in self.values if value is not x and self._meets(value, x)]
        other = self.random.choice(alike) if alike and self.random.random() < 0.9 else 0.75
        operands = [x, other] if self.random.random() < 0.5 else [other, x]
        return getattr(self.builder.ops, self.random.choice(BINARY))(*operands)

    def _meets(self, first: Handle, second: Handle) -> bool:
        """Whether two values broadcast, given what their sizes will be."""
        pairs = zip(reversed(first.shape), reversed(second.shape), strict=False)
        return all(
            evaluate(left, self.sizes) == evaluate(right, self.sizes) or left == 1 or right == 1
            for left, right in pairs
        )

    def reshape(self, x: Handle) -> Any:
        """Split an axis, merge two, add or remove one of size 1, or several of these."""
        shape: list[Any] = list(x.shape)
        for _ in range(self.random.randint(1, 2)):
            axis = self.random.randrange(len(shape) + 1)
            if axis + 1 < len(shape) and self.random.random() < 0.5:
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            elif axis < len(shape) and isinstance(shape[axis], int) and shape[axis] > 1:
                part = self.random.choice([part for part in (2, 3, 4) if shape[axis] % part == 0] or [1])
                shape[axis : axis + 1] = [part, shape[axis] // part]
            elif axis < len(shape) and shape[axis] == 1:
                del shape[axis]
            else:
                shape.insert(axis, 1)
        others = [list(value.shape) for value in self.values if product(value.shape) == product(x.shape)]
        return self.builder.ops.reshape(x, self.random.choice([shape, shape, *others[:4]]))

    def work_in_another_shape(self, x: Handle) -> Any:
        """Compute, reshape, compute or reduce, and perhaps come back, as norms over groups and attention heads do."""
        inside = self.combine(self.reshape(self.combine(x)))
        if self.random.random() < 0.4:
            found = self.reduce(inside)
            inside = found[1] if isinstance(found, list) else found
        if self.random.random() < 0.5 and product(inside.shape) == product(x.shape):
            return self.combine(self.builder.ops.reshape(inside, list(x.shape)))
        return inside

    def slice(self, x: Handle) -> Any:
        starts, stops, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        for axis in range(len(x.shape)):
            if self.random.random() < 0.5:
                starts[axis], steps[axis] = self.random.randint(0, 1), self.random.choice((1, 1, 2))
                stops[axis] = self.random.choice((x.shape[axis], 1, 2, 3))
        return self.builder.ops.slice(x, starts, stops, steps)

    def take_apart(self, x: Handle) -> Any:
        """Chunks, or every n-th element; all of them or some, of a value that is perhaps used for nothing else."""
        x = self.combine(x) if self.random.random() < 0.7 else x
        if not x.shape:
            return x
        axis, parts = self.random.randrange(len(x.shape)), self.random.randint(2, 3)
        size, apart = x.shape[axis], self.random.random() < 0.25
        found = []
        for part in range(parts):
            starts: list[Size] = [0] * len(x.shape)
            stops, steps = list(x.shape), [1] * len(x.shape)
            if apart:
                starts[axis], steps[axis] = part, parts
            else:
                starts[axis], stops[axis] = size // parts * part, size // parts * (part + 1)
            found.append(self.builder.ops.slice(x, starts, stops, steps))
        if self.random.random() < 0.7:
            found = [self.compute(part) for part in found]
        return found if self.random.random() < 0.8 else found[:1]

    def join(self, x: Handle) -> Any:
        if not x.shape:
            return x
        axis = self.random.randrange(len(x.shape))
        around = [size for place, size in enumerate(x.shape) if place != axis]
        alike = [
            value
            for value in self.values
            if len(value.shape) == len(x.shape)
            and [size for place, size in enumerate(value.shape) if place != axis] == around
        ]
        return self.builder.ops.cat(self.random.sample(alike, min(len(alike), self.random.randint(2, 3))), axis)

    def permute(self, x: Handle) -> Any:
        return self.builder.ops.permute(x, self.random.sample(range(len(x.shape)), len(x.shape)))

    def reduce(self, x: Handle) -> Any:
        if not x.shape:
            return x
        axis = self.random.randrange(len(x.shape))
        reduced = getattr(self.builder.ops, self.random.choice(REDUCTIONS))(x, axis, keepdim=self.random.random() < 0.8)
        return [reduced, x - reduced] if self.random.random() < 0.5 and len(reduced.shape) == len(x.shape) else reduced

    def repeat(self, x: Handle) -> Any:
        axis = self.random.randint(0, len(x.shape))
        shape = [*x.shape[:axis], self.random.choice((1, 2)), *x.shape[axis:]]
        return self.builder.ops.broadcast_in_dim(x, shape, [place + (place >= axis) for place in range(len(x.shape))])

    def finish(self) -> Chain:
        used = {operand for value in self.values for operand in value.node.operands}
        ends = [value for value in self.values if value.node not in used and self.random.random() < 0.9]
        chosen = ends or self.values[-1:]
        if self.random.random() < 0.2:
            chosen.append(self.random.choice(self.values))
        for value in chosen:
            self.builder.add_output(value)
        return Chain(self.builder.build(), tuple(self.arguments), self.sizes)


def draw_chain(steps: Sequence[int]) -> Chain:
    """The graph these integers stand for: each seeds its own step, so that leaving one out changes little."""
    drawing = Drawing(Random(steps[0]))
    for step in steps[1:-1]:
        drawing.random = Random(step)
        drawing.step()
    drawing.random = Random(steps[-1])
    return drawing.finish()


_STEP = strategies.integers(0, 2**32 - 1)
CHAINS = strategies.lists(_STEP, min_size=4, max_size=22).map(draw_chain)


def computed_elements(chain: Chain, graph: Graph) -> int:
    """For how many elements pointwise operations are computed."""
    return sum(
        evaluate(product(node.type.shape), chain.sizes)
        for node in DeadCode().run(graph).graph.nodes
        if node.op.kind is Kind.POINTWISE and isinstance(node.type, TensorType)
    )


def _check(name: str, rewrite: Callable[[Graph], Graph], chain: Chain) -> Graph:
    rewritten = rewrite(chain.graph)
    verify(rewritten)
    if difference(run(chain.graph, chain.arguments), run(rewritten, chain.arguments)) is not None:
        part = first_wrong_value(
            chain.graph,
            lambda graph: difference(run(graph, chain.arguments), run(rewrite(graph), chain.arguments)) is not None,
        )
        found = difference(run(part, chain.arguments), run(rewrite(part), chain.arguments))
        raise AssertionError(f"{name}: {found}\nbefore:\n{part.text}\nafter:\n{rewrite(part).text}")
    return rewritten


@settings(PROFILE)
@given(CHAINS)
def test_each_pass_alone_keeps_every_bit(chain: Chain) -> None:
    for pass_ in PASSES:
        rewritten = _check(pass_.name, lambda graph, pass_=pass_: pass_.run(graph).graph, chain)
        again = pass_.run(rewritten).graph
        if pass_.name in ("slices", "reshapes", "sink_cat"):
            assert again.text == rewritten.text, f"{pass_.name} has not settled:\n{rewritten.text}\nthen:\n{again.text}"
            assert computed_elements(chain, rewritten) <= computed_elements(chain, chain.graph), rewritten.text


@settings(PROFILE)
@given(CHAINS)
def test_pipeline_keeps_every_bit_and_settles(chain: Chain) -> None:
    optimized = _check("the pipeline", lambda graph: optimize(graph).graph, chain)
    again = optimize(optimized).graph
    assert again.text == optimized.text, f"not settled:\n{optimized.text}\nthen:\n{again.text}"
    assert computed_elements(chain, optimized) <= computed_elements(chain, chain.graph), optimized.text


def test_chains_move_every_kind_of_view() -> None:
    """The graphs drawn here do give the passes something to do."""
    changed = dict.fromkeys(("slices", "reshapes", "sink_cat"), 0)
    for seed in range(60):
        random = Random(seed)
        chain = draw_chain([random.getrandbits(32) for _ in range(16)])
        for report in optimize(chain.graph).reports:
            if report.name in changed:
                changed[report.name] += report.changed > 0
    assert min(changed.values()) >= 5, changed
