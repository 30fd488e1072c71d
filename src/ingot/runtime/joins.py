"""Joined results: kernels write their parts of a concatenation where they belong, and nothing is copied.

    p = kernel(...); q = kernel(...); cat(p, q)      both kernels write into slices of one new tensor

In: the steps of a plan. Out: for each concatenation whose parts are all results of kernels that nobody else reads, the
slice of each part. The tensor is made when the first of its parts is due.
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
from ingot.ops.attributes import AxisAttributes
from ingot.runtime.kernels import Kernel

Empty = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Joins:
    """The concatenations of a plan that cost nothing."""

    parts: Mapping[Node, tuple[Node, int]] = field(default_factory=dict)
    """Per part, the concatenation it belongs to and its place there."""

    def __contains__(self, node: object) -> bool:
        return any(node is join for join, _ in self.parts.values())

    def targets(
        self, kernel: Kernel, values: dict[Node, Any], bound: Mapping[str, int], make: Empty
    ) -> dict[int, torch.Tensor]:
        """Where results of a kernel belong, by their number; tensors that are still missing are made."""
        found: dict[int, torch.Tensor] = {}
        for index, node in enumerate(kernel.cluster.outputs):
            if node in self.parts:
                join, place = self.parts[node]
                found[index] = _slices(join, self._whole(join, values, bound, make), bound)[place]
        return found

    def is_complete(self, join: Node, values: Mapping[Node, Any]) -> bool:
        """Whether all parts lie where they belong."""
        whole = values.get(join)
        if whole is None:
            return False
        memory = whole.untyped_storage()._cdata
        return all(values[part].untyped_storage()._cdata == memory for part in join.operands)

    def finish(self, join: Node, values: dict[Node, Any], bound: Mapping[str, int], make: Empty) -> torch.Tensor:
        """The joined tensor; parts that were not computed by a kernel after all are copied."""
        whole = self._whole(join, values, bound, make)
        memory = whole.untyped_storage()._cdata
        for part, slice_ in zip(join.operands, _slices(join, whole, bound), strict=True):
            if values[part].untyped_storage()._cdata != memory:
                slice_.copy_(values[part])
        return whole

    def _whole(self, join: Node, values: dict[Node, Any], bound: Mapping[str, int], make: Empty) -> torch.Tensor:
        if join not in values:
            assert isinstance(join.type, TensorType)
            shape = tuple(sizes.evaluate(size, bound) for size in join.type.shape)
            values[join] = make(shape, to_torch(join.type.dtype))
        return values[join]


def find_joins(graph: Graph, steps: Sequence[Kernel | Node]) -> Joins:
    """The concatenations whose parts can be written where they belong."""
    made = {node for step in steps if isinstance(step, Kernel) for node in step.cluster.outputs}
    readers = Counter(
        node
        for step in steps
        for node in (dict.fromkeys(step.cluster.inputs) if isinstance(step, Kernel) else step.operands)
    )
    returned = {output.node for output in graph.outputs}
    parts: dict[Node, tuple[Node, int]] = {}
    for step in steps:
        if isinstance(step, Kernel) or step.op.name != "cat":
            continue
        if all(part in made and readers[part] == 1 and part not in returned for part in step.operands):
            parts |= {part: (step, place) for place, part in enumerate(step.operands)}
    return Joins(parts)


def empty_without_memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that stands for one of this shape where only sizes and strides count."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _slices(join: Node, whole: torch.Tensor, bound: Mapping[str, int]) -> list[torch.Tensor]:
    assert isinstance(join.attributes, AxisAttributes)
    axis = join.attributes.axis
    lengths = []
    for part in join.operands:
        assert isinstance(part.type, TensorType)
        lengths.append(sizes.evaluate(part.type.shape[axis], bound))
    return list(whole.split(lengths, axis))
