"""ingot: a just-in-time fusion compiler for PyTorch."""

from ingot import memory
from ingot.base.config import Config
from ingot.base.dtypes import DataType
from ingot.base.errors import IngotError
from ingot.frontend.fusion_definition import FusionDefinition
from ingot.frontend.fusion_manager import FusionManager
from ingot.frontend.jit.forms import jit
from ingot.frontend.jit.switch import disable, reset
from ingot.ir.builder import GraphBuilder
from ingot.runtime.compiler import JitCompiler

__all__ = [
    "Config",
    "DataType",
    "FusionDefinition",
    "FusionManager",
    "GraphBuilder",
    "IngotError",
    "JitCompiler",
    "disable",
    "jit",
    "memory",
    "reset",
]
__version__ = "0.1.0"
