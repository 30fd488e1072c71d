"""ingot: a just-in-time fusion compiler for PyTorch.

In: functions, modules and fusions that users write with PyTorch's operators. Out: the same, called the same way, run as
few fused kernels. What always holds: results are eager's, and what ingot cannot compile runs as PyTorch runs it. This
module holds what users import; docs/architecture.md follows a call through the packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingot.base.collecting import importing

with importing():  # with torch loaded, looking for garbage takes a third of the time that importing does
    from ingot import memory
    from ingot.base.config import Config
    from ingot.base.dtypes import DataType
    from ingot.base.errors import IngotError, IngotWarning
    from ingot.base.version import __version__
    from ingot.runtime.backends.tuning import tune_by

__all__ = [
    "Config",
    "DataType",
    "FusionCache",
    "FusionDefinition",
    "FusionManager",
    "GraphBuilder",
    "IngotError",
    "IngotWarning",
    "JitCompiler",
    "LRUCache",
    "__version__",
    "disable",
    "explain",
    "jit",
    "load",
    "load_cache",
    "load_onnx",
    "memory",
    "reset",
    "save",
    "save_cache",
    "summary",
]
_AT_FIRST_USE = {
    "FusionCache": "ingot.frontend.fusion_definition",
    "FusionDefinition": "ingot.frontend.fusion_definition",
    "FusionManager": "ingot.frontend.fusion_definition",
    "GraphBuilder": "ingot.ir.builder",
    "JitCompiler": "ingot.runtime.compiler",
    "LRUCache": "ingot.frontend.fusion_definition",
    "disable": "ingot.frontend.jit.settings.switch",
    "explain": "ingot.frontend.jit.api.forms",
    "jit": "ingot.frontend.jit.api.forms",
    "load": "ingot.frontend.bundles.loading",
    "load_cache": "ingot.runtime.disk_cache.bundles",
    "load_onnx": "ingot.frontend.onnx.loading",
    "reset": "ingot.frontend.jit.settings.switch",
    "save": "ingot.frontend.bundles.saving",
    "save_cache": "ingot.runtime.disk_cache.bundles",
    "summary": "ingot.frontend.jit.api.process_summary",
}
"""What is imported when it is asked for, so that `import ingot` stays quick, and where it lies."""

if TYPE_CHECKING:
    from ingot.frontend.bundles.loading import load
    from ingot.frontend.bundles.saving import save
    from ingot.frontend.fusion_definition import FusionCache, FusionDefinition, FusionManager, LRUCache
    from ingot.frontend.jit.api.forms import explain, jit
    from ingot.frontend.jit.api.process_summary import summary
    from ingot.frontend.jit.settings.switch import disable, reset
    from ingot.frontend.onnx.loading import load_onnx
    from ingot.ir.builder import GraphBuilder
    from ingot.runtime.compiler import JitCompiler
    from ingot.runtime.disk_cache.bundles import load_cache, save_cache


tune_by(lambda config: import_module("ingot.tune.tuner").Tuner(config))


def __getattr__(name: str) -> Any:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module 'ingot' has no attribute {name!r}")
    with importing():
        globals()[name] = found = getattr(import_module(_AT_FIRST_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
