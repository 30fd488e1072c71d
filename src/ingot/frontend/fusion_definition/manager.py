"""FusionManager: the one place where compiled fusions are kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.base.errors import DefinitionError
from ingot.base.forks import new_lock
from ingot.ir.graph import Graph
from ingot.runtime.compiler import JitCompiler

if TYPE_CHECKING:
    from ingot.frontend.fusion_definition.definition import FusionDefinition


class FusionManager:
    """Keeps compiled fusions and executes the one defined last. There is one manager: `FusionManager.get()`."""

    _instance: FusionManager | None = None
    _instance_lock = new_lock()

    compiler: JitCompiler
    _last: threading.local
    _numbers: dict[str, int]

    def __init__(self) -> None:
        raise DefinitionError("there is one FusionManager for everything; get it with FusionManager.get()")

    @classmethod
    def get(cls, max_fusions: int = 8192) -> FusionManager:
        """The manager. `max_fusions`, the number of compiled fusions kept, counts at the first call."""
        with cls._instance_lock:
            if cls._instance is None:
                manager = object.__new__(cls)
                manager.compiler = JitCompiler({"cache_capacity": max_fusions})
                manager._last = threading.local()
                manager._numbers = {}
                cls._instance = manager
            return cls._instance

    def execute(self, inputs: Sequence[Any], *, device: torch.device | str | None = None) -> list[Any]:
        """Results of the fusion that this thread defined last."""
        return self._last_definition().execute(inputs, device=device)

    def print_ir(self) -> None:
        """Print the graph of the fusion that this thread defined last."""
        self._last_definition().print_ir()

    def __len__(self) -> int:
        """Number of compiled fusions kept."""
        return len(self.compiler)

    def reset(self) -> None:
        """Forget all compiled fusions. Definitions in use go on working."""
        self.compiler.clear()

    def remember(self, definition: FusionDefinition) -> None:
        """Note which fusion this thread defined last; threads do not see each other's."""
        self._last.definition = definition

    def number_of(self, graph: Graph) -> int:
        """A number for each graph that was asked about; equal graphs have the same."""
        with self._instance_lock:
            return self._numbers.setdefault(graph.digest, len(self._numbers))

    def _last_definition(self) -> FusionDefinition:
        definition = getattr(self._last, "definition", None)
        if definition is None:
            raise DefinitionError("no fusion has been defined in this thread; define one with FusionDefinition(fm)")
        return definition
