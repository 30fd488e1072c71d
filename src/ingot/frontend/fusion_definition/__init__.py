"""FusionDefinition: nvFuser's way to write a fusion, operation by operation.

In: calls of `fd.define_tensor`, `fd.ops.*` and `fd.add_output`, in any of nvFuser's spellings. Out: a graph, compiled
when it is first executed, and what users of nvFuser look at: printed definitions, scripts, comparisons with PyTorch,
caches. What always holds: definitions that are equal share one compiled module; what is absent says so, and why.
"""

from ingot.frontend.fusion_definition.caches import FusionCache, LRUCache
from ingot.frontend.fusion_definition.definition import FusionDefinition
from ingot.frontend.fusion_definition.manager import FusionManager

__all__ = ["FusionCache", "FusionDefinition", "FusionManager", "LRUCache"]
