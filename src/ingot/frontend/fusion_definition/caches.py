"""nvFuser's caches: `FusionCache`, the older one, of which there is one, and `LRUCache`, of which there may be many.

Both are views of ingot's own cache of compiled modules. What they count is what happened: lookups, and how many of them
found a module ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingot.base.errors import DefinitionError
from ingot.frontend.fusion_definition.manager import FusionManager
from ingot.runtime.compiler import CompiledModule, JitCompiler

if TYPE_CHECKING:
    from ingot.frontend.fusion_definition.definition import FusionDefinition


class FusionCache:
    """The compiled fusions of the FusionManager. There is one cache: `FusionCache.get()`."""

    def __init__(self) -> None:
        raise DefinitionError("there is one FusionCache for everything; get it with FusionCache.get()")

    @classmethod
    def get(cls, max_fusions: int = 8192) -> FusionCache:
        """The cache. `max_fusions`, the number of compiled fusions kept, counts at the first call."""
        FusionManager.get(max_fusions)
        return object.__new__(cls)

    @staticmethod
    def reset() -> None:
        """Forget all compiled fusions, and how often they were looked up. Definitions in use go on working."""
        FusionManager.get().reset()

    def num_fusions(self) -> int:
        """Number of compiled fusions kept."""
        return len(FusionManager.get().compiler)

    def stats(self) -> str:
        """How often fusions were looked up and found, in words."""
        return _statistics(FusionManager.get().compiler)

    def print_stats(self) -> None:
        """Print what `stats` says."""
        print(self.stats())


class LRUCache:
    """Compiled fusions of its own; of more than `max_fusions` those used longest ago are forgotten."""

    def __init__(self, max_fusions: int = 16384):
        self._compiler = JitCompiler({"cache_capacity": max_fusions})

    def cache_compile(self, fusion: FusionDefinition) -> CompiledModule:
        """The compiled module of a definition: the one made earlier for an equal definition, or a new one."""
        return self._compiler.compile(fusion.graph)

    def num_fusions(self) -> int:
        """Number of compiled fusions kept."""
        return len(self._compiler)

    def stats(self) -> str:
        """How often fusions were looked up and found, in words."""
        return _statistics(self._compiler)


def _statistics(compiler: JitCompiler) -> str:
    lookups, hits = compiler.lookups, compiler.hits
    return (
        f"Total Fusions: {len(compiler)}\n"
        f"Total Lookups: {lookups}\n"
        f"Cache Hits: {hits}\n"
        f"Hit Rate: {100 * compiler.cache_hit_rate:.1f}%"
    )
