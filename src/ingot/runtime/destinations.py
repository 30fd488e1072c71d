"""Where results of kernels belong: in part of another tensor, or in another order than row-major, without a copy.

    p = kernel(...); q = kernel(...); cat(p, q)      both kernels write into slices of one new tensor
    p = kernel(...); return permute(p)               the kernel writes into the permuted tensor

In: the steps of a plan. Out: for each concatenation whose parts are all results of kernels that nothing else reads, and
for each permuted result of the graph, the place of what it is made of. The tensor is made when the first part is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ir.torch_types import to_torch
from ingot.ops.attributes import AxisAttributes, PermuteAttributes
from ingot.runtime.kernels import Kernel

Empty = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Destinations:
    """The concatenations and permutations of a plan that cost nothing."""

    parts: Mapping[Node, Node] = field(default_factory=dict)
    """What is written where it belongs, and the concatenation or permutation that it belongs to."""
    wholes: frozenset[Node] = frozenset()
    """The concatenations and permutations that kernels write into."""

    def __contains__(self, node: object) -> bool:
        return node in self.wholes

    def targets(
        self, kernel: Kernel, values: dict[Node, Any], bound: Mapping[str, int], make: Empty
    ) -> dict[int, torch.Tensor]:
        """Where results of a kernel belong, by their number; tensors that are still missing are made."""
        return {
            index: self._place(node, values, bound, make)
            for index, node in enumerate(kernel.cluster.outputs)
            if node in self.parts
        }

    def is_complete(self, whole: Node, values: Mapping[Node, Any]) -> bool:
        """Whether all parts lie where they belong."""
        made = values.get(whole)
        return made is not None and all(_share_memory(values[part], made) for part in whole.operands)

    def finish(self, whole: Node, values: dict[Node, Any], bound: Mapping[str, int], make: Empty) -> torch.Tensor:
        """The whole; parts that were not computed by a kernel after all are copied."""
        made = self._memory(whole, values, bound, make)
        for part in dict.fromkeys(whole.operands):
            if not _share_memory(values[part], made):
                self._place(part, values, bound, make).copy_(values[part])
        return made

    def _memory(self, node: Node, values: dict[Node, Any], bound: Mapping[str, int], make: Empty) -> torch.Tensor:
        """The memory of a whole, which may be part of another."""
        if node not in values:
            if node in self.parts:
                values[node] = self._place(node, values, bound, make)
            else:
                assert isinstance(node.type, TensorType)
                shape = tuple(sizes.evaluate(size, bound) for size in node.type.shape)
                values[node] = make(shape, to_torch(node.type.dtype))
        return values[node]

    def _place(self, part: Node, values: dict[Node, Any], bound: Mapping[str, int], make: Empty) -> torch.Tensor:
        whole = self.parts[part]
        made = self._memory(whole, values, bound, make)
        if isinstance(whole.attributes, PermuteAttributes):
            order = whole.attributes.order
            return made.permute(sorted(range(len(order)), key=lambda axis: order[axis]))
        return slices_of(whole, made, bound)[whole.operands.index(part)]


def find_destinations(graph: Graph, steps: Sequence[Kernel | Node]) -> Destinations:
    """The concatenations and permutations that kernels can write into."""
    made = {node for step in steps if isinstance(step, Kernel) for node in step.cluster.outputs}
    readers = Counter(
        node
        for step in steps
        for node in (dict.fromkeys(step.cluster.inputs) if isinstance(step, Kernel) else step.operands)
    )
    returned = Counter(output.node for output in graph.outputs)
    plain = {output.node for output in graph.outputs if output.alias_input is None and output.stride_order is None}
    single = {step: step for step in steps if not isinstance(step, Kernel)}
    parts: dict[Node, Node] = {}

    def take(whole: Node) -> bool:
        """Let what a concatenation or permutation is made of be written there, if all of it can be."""
        taken: dict[Node, Node] = {}
        for part in whole.operands:
            if readers[part] != 1 or part in returned:
                return False
            taken[part] = whole
            if part not in made and not (part in single and part.op.name in ("cat", "permute") and take(part)):
                return False
        parts.update(taken)
        return True

    for step in reversed(steps):
        if isinstance(step, Kernel) or step in parts:
            continue
        if step.op.name == "cat" or (step.op.name == "permute" and step in plain and returned[step] == 1):
            before = dict(parts)
            if not take(step):
                parts.clear()
                parts.update(before)
    return Destinations(parts, frozenset(parts.values()))


def empty_without_memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that stands for one of this shape where only sizes and strides count."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def slices_of(join: Node, whole: torch.Tensor, bound: Mapping[str, int]) -> list[torch.Tensor]:
    """Where the operands of a concatenation belong in the tensor that it makes."""
    assert isinstance(join.attributes, AxisAttributes)
    axis = join.attributes.axis
    lengths = []
    for part in join.operands:
        assert isinstance(part.type, TensorType)
        lengths.append(sizes.evaluate(part.type.shape[axis], bound))
    return list(whole.split(lengths, axis))
