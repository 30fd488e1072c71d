"""Rules: how far fusion goes. The legality of a cluster is not theirs; they only ever say no.

none           every operation is a kernel of its own
conservative   operations on elements join; reductions stay alone
default        reductions join what feeds them and, along the same axes, what uses them
aggressive     and kernels that share an input but do not need each other become one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.fusion.groups import Conflict, Group


@dataclass(frozen=True, slots=True)
class Pattern:
    """A custom rule: operators that may be fused with each other, up to a number of them."""

    name: str
    operators: frozenset[str]
    max_size: int = 64
    priority: int = 0
    """Of several patterns that know all operators of a kernel, the one of highest priority bounds its size."""


@dataclass(frozen=True, slots=True)
class FusionRules:
    """What may become one kernel."""

    strategy: str = "default"
    max_size: int = 64
    """Operations a kernel may hold. Changes of type do not count: where half types are computed there are as many; nor
    does taking complex numbers apart and joining them."""
    max_buffers: int = 32
    """Tensors a kernel may read and write."""
    level: int = 3
    """0 fuses nothing, 1 operations on elements, 2 also what feeds a reduction, 3 also what uses its result."""
    reductions: bool = True
    patterns: tuple[Pattern, ...] = ()
    """Where there are any, kernels hold only what one of them lists."""

    @staticmethod
    def of(config: Mapping[str, Any], patterns: Iterable[Pattern] = ()) -> FusionRules:
        """The rules that a configuration asks for."""
        level = config["kernel_fusion_level"]
        return FusionRules(
            strategy=config["fusion_strategy"],
            max_size=config["max_fusion_size"],
            level=3 if level is None else level,
            reductions=config["fuse_reductions"],
            patterns=tuple(patterns),
        )

    def check(self, source: Group, reader: Group, merged: Group) -> None:
        """Conflict, with the reason, if these two groups must stay apart."""
        if len(merged.operations) in (len(reader.operations), len(source.operations)):
            return  # a view joins: it costs nothing
        self._check_reductions(source, reader)
        self.check_whole(merged)

    def check_whole(self, merged: Group) -> None:
        """Conflict if a group of several operations is too much, wherever they come from."""
        if self.strategy == "none" or self.level == 0:
            raise Conflict("fusion is switched off")
        count = len(merged.operations)
        if count > self.max_size and _count_operations(merged) > self.max_size:
            raise Conflict(f"a kernel holds at most {self.max_size} operations")
        if len(merged.inputs) + count > self.max_buffers and _count_buffers(merged) > self.max_buffers:
            raise Conflict(f"a kernel reads and writes at most {self.max_buffers} tensors")
        self._check_patterns(merged)

    def _check_reductions(self, source: Group, reader: Group) -> None:
        if not source.reduction_inputs and not reader.reduction_inputs:
            return
        if self.strategy == "conservative" or not self.reductions or self.level < 2:
            raise Conflict("reductions are kernels of their own")
        if self.level < 3 and source.reduction_inputs:
            raise Conflict("what uses a reduction is a kernel of its own")

    def _check_patterns(self, merged: Group) -> None:
        if not self.patterns:
            return
        names = {node.op.name for node in merged.operations}
        matching = [pattern for pattern in self.patterns if names <= pattern.operators]
        if not matching:
            raise Conflict("no pattern lists these operators together")
        pattern = max(matching, key=lambda candidate: candidate.priority)
        if _count_operations(merged) > pattern.max_size:
            raise Conflict(f"the pattern {pattern.name} takes {pattern.max_size} operations at most")


_UNCOUNTED = frozenset({"cast", "real", "imag", "complex"})
"""Operations that only say what others compute on."""


def _count_operations(group: Group) -> int:
    return len([node for node in group.operations if node.op.name not in _UNCOUNTED])


def _count_buffers(group: Group) -> int:
    """At least so many tensors: every input, and every value that nothing in the group reads."""
    unread = set(group.operations).difference(*[node.operands for node in group.nodes])
    return len(group.inputs) + len(unread)
