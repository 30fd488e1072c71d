"""What is pending: the steps since the last flush, the tensors they name, and the numbers they were given.

In: tensors and numbers, as calls bring them. Native code adds to the lists of tensors and numbers; everything else is
found out from them and from the node reached, when Python has to look.

A tensor is numbered when it first appears; those from outside are only read or written in place, those that steps gave
are shells or views of shells.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ingot.frontend.jit.follow.steps.step_tree import Metadata, StepNode, metadata_of


@dataclass(slots=True)
class Pending:
    """Everything between two flushes."""

    node: StepNode
    values: list[torch.Tensor | None] = field(default_factory=list)
    """Tensors by number; None for one that is no longer needed."""
    numbers: list[int | float] = field(default_factory=list)
    metadata: list[Metadata | None] = field(default_factory=list)
    """Metadata of the tensors that Python has looked at; None for those that were dropped before."""
    index: dict[int, int] = field(default_factory=dict)
    """Their numbers, by identity."""

    def catch_up(self, node: StepNode) -> None:
        """Look at the tensors that native code has added on its way to a node."""
        self.node = node
        for number in range(len(self.metadata), len(self.values)):
            tensor = self.values[number]
            self.metadata.append(None if tensor is None else metadata_of(tensor))
            if tensor is not None:
                self.index[id(tensor)] = number

    def add(self, tensor: torch.Tensor) -> int:
        """The number of a tensor that appears for the first time."""
        number = len(self.values)
        self.values.append(tensor)
        self.metadata.append(metadata_of(tensor))
        self.index[id(tensor)] = number
        return number

    def return_to(self, node: StepNode, count: int, numbers: int) -> None:
        """Be as before a call that was interrupted."""
        self.node = node
        self.forget_after(count)
        del self.numbers[numbers:]

    def forget_after(self, count: int) -> None:
        """Leave only the first tensors: the last call is no step."""
        for tensor in self.values[count:]:
            self.index.pop(id(tensor), None)
        del self.values[count:], self.metadata[count:]
