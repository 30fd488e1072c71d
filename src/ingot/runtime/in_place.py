"""Results that are written into inputs: straight there, where no other operation can notice.

    add_output(p - step, alias_input=p)      the kernel that computes the result writes it over p, element by element

Otherwise a result gets memory of its own and is copied over its input when everything else is done, which moves half as
many bytes again. The shortcut is taken where nothing reads the input afterwards, nothing afterwards can fail, and each
element is read, if at all, when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ingot.base import sizes
from ingot.fusion.placement import shape_of
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ops import Kind
from ingot.runtime.kernels import Kernel
from ingot.runtime.overlaps import addresses_of, do_overlap

Steps = Sequence[Kernel | Node]


def writers_last(graph: Graph, steps: Steps) -> tuple[Kernel | Node, ...]:
    """Steps in an order where kernels that overwrite inputs come last, as far as nothing needs what they compute."""
    aliased = {output.node for output in graph.outputs if output.alias_input is not None}
    read = {node for step in steps for node in (step.cluster.inputs if isinstance(step, Kernel) else step.operands)}

    def is_writer(step: Kernel | Node) -> bool:
        return isinstance(step, Kernel) and not aliased.isdisjoint(step.cluster.outputs)

    def can_wait(step: Kernel | Node) -> bool:
        return isinstance(step, Kernel) and is_writer(step) and read.isdisjoint(step.cluster.outputs)

    return (*(step for step in steps if not can_wait(step)), *(step for step in steps if can_wait(step)))


def results_in_place(
    graph: Graph,
    kernel: Kernel,
    later: Steps,
    values: Mapping[Node, Any],
    bound: Mapping[str, int],
) -> dict[int, torch.Tensor]:
    """Which results of a kernel may be written straight into which input, given the steps that follow it."""
    others = [value for value in values.values() if isinstance(value, torch.Tensor)]
    found = inputs_overwritten(graph, kernel, later, values, bound)
    targets = {index: values[graph.inputs[position]] for index, position in found.items()}
    return {index: target for index, target in targets.items() if stands_alone(target, others)}


def inputs_overwritten(
    graph: Graph,
    kernel: Kernel,
    later: Steps,
    values: Mapping[Node, Any],
    bound: Mapping[str, int],
    is_private: bool = False,
) -> dict[int, int]:
    """The same as positions of inputs, provided that these share no memory with other values.

    An input that nothing reads may be written by any kernel. `is_private` says that no code looks at the inputs if a
    later step fails.
    """
    cannot_fail = is_private or all(isinstance(step, Kernel) and not picks(step) for step in later)
    if not cannot_fail:
        return {}
    found: dict[int, int] = {}
    for output in graph.outputs:
        is_unique = sum(other.node is output.node for other in graph.outputs) == 1
        if output.alias_input is None or output.node not in kernel.cluster.outputs or not is_unique:
            continue
        node = graph.inputs[output.alias_input]
        if any(_memory_of(other.node) is node for other in graph.outputs):  # returned as it was, or part of it
            continue
        target = values.get(node)
        shape = tuple(sizes.evaluate(size, bound) for size in shape_of(output.node))
        if not isinstance(target, torch.Tensor) or tuple(target.shape) != shape or _is_read_by(later, node):
            continue
        is_read = _is_read_by([kernel], node)
        if is_read and (kernel.program.has_rows or not _is_read_where_written(kernel, output.node, node)):
            continue
        found[kernel.cluster.outputs.index(output.node)] = output.alias_input
    return found


def picks(kernel: Kernel) -> bool:
    """Whether a kernel reads at indices that are values, which may be out of range."""
    return any(statement.is_row_gather for statement in kernel.program.statements)


def _is_read_by(steps: Steps, node: Node) -> bool:
    """Whether steps read a value or a view of it. A view that is yet to be made is read later, or copies it."""
    reads = (step.cluster.inputs if isinstance(step, Kernel) else step.operands for step in steps)
    return any(_memory_of(operand) is node for operands in reads for operand in operands)


def _is_read_where_written(kernel: Kernel, result: Node, target: Node) -> bool:
    place = kernel.cluster.places[result]
    reads = [read for read in kernel.lowered.tensors if _memory_of(read.node) is target]
    return all(read.node is target and read.place == place for read in reads)


def _memory_of(node: Node) -> Node:
    """The value in whose memory a value may lie: itself, unless it is a view."""
    while node.op.kind is Kind.VIEW and len(node.operands) == 1:
        (node,) = node.operands
    return node


def stands_alone(target: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether no two elements of a tensor share memory, and no other value lies in it: no view, and not the tensor
    itself once more, as the argument for another input."""
    span = 1
    for stride, size in sorted(zip(target.stride(), target.shape, strict=True)):
        if size > 1 and stride < span:
            return False
        span += (size - 1) * stride
    memory = addresses_of(target)
    return sum(other is target or do_overlap(addresses_of(other), memory) for other in others) <= 1
