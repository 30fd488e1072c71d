"""What is pending: the steps since the last flush, the tensors they name, and the numbers they were given.

In: tensors and numbers, as calls bring them. Out: which of them are still needed when everything is to run. A tensor is
numbered when it first appears; those from outside are only read or written in place, those that steps gave are shells.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.follow.steps import Metadata, Node, metadata_of

_ALONE = 2
"""References to an object that only a list holds, while it is asked for them."""


@dataclass(slots=True)
class Pending:
    """Everything between two flushes."""

    node: Node
    values: list[torch.Tensor | None] = field(default_factory=list)
    """By number; None for one that nothing needs any more."""
    metadata: list[Metadata] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    """For each tensor: its own number if a step computes it, that of the tensor it is a view of, -1 from outside."""
    numbers: list[int | float] = field(default_factory=list)
    index: dict[int, int] = field(default_factory=dict)
    """The number of a tensor, by its identity."""
    unwritten: set[int] = field(default_factory=set)
    """Tensors whose memory does not hold what it should."""
    shell_bytes: int = 0
    begun: bool = False
    """Whether what writes tensors from outside may have begun to do so."""
    has_gradients: bool = False
    """Whether a tensor from outside requires gradients, which its steps do without in blocks without gradients."""

    def add(self, tensor: torch.Tensor, base: int | None, is_unwritten: bool) -> int:
        """A tensor that appears for the first time; `base` is -1 for one from outside, None for one of its own."""
        number = len(self.values)
        self.values.append(tensor)
        self.metadata.append(metadata_of(tensor))
        self.bases.append(number if base is None else base)
        self.index[id(tensor)] = number
        if is_unwritten:
            self.unwritten.add(number)
        return number

    def return_to(self, node: Node, count: int, numbers: int) -> None:
        """Be as before a call that was interrupted."""
        self.node = node
        self.forget_after(count)
        self.unwritten.difference_update([number for number in self.unwritten if number >= count])
        del self.numbers[numbers:]

    def forget_after(self, count: int) -> None:
        """Leave only the first tensors: the last call is no step."""
        for tensor in self.values[count:]:
            self.index.pop(id(tensor), None)
        del self.values[count:], self.metadata[count:], self.bases[count:]

    def drop_unneeded(self) -> None:
        """Let go of results that nothing else refers to; views go before what they are views of."""
        values, bases = self.values, self.bases
        for number in range(len(values) - 1, -1, -1):
            if bases[number] < 0 or values[number] is None:
                continue
            if sys.getrefcount(values[number]) <= _ALONE and _references_of_torch(values, number) == 1:
                self.index.pop(id(values[number]), None)
                values[number] = None

    def destinations(self) -> tuple[int, ...]:
        """The results to be written: those still needed that do not lie in memory which is written anyway."""
        return tuple(
            number
            for number, base in enumerate(self.bases)
            if base >= 0 and self.values[number] is not None and not self._is_within_another(number)
        )

    def _is_within_another(self, number: int) -> bool:
        base = self.bases[number]
        while base != number:
            if base < 0 or self.bases[base] < 0 or self.values[base] is not None:
                return True
            number, base = base, self.bases[base]
        return False

    @property
    def writes_operands(self) -> bool:
        """Whether a tensor from outside is to be written."""
        return any(self.bases[number] < 0 for number in self.unwritten)


def _references_of_torch(values: list[Any], number: int) -> int:
    """How many references C++ has to a tensor, that of its Python object among them."""
    return values[number]._use_count()
