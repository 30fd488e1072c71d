"""ingot: a just-in-time fusion compiler for PyTorch."""

from ingot.base.dtypes import DataType
from ingot.base.errors import IngotError
from ingot.ir.builder import GraphBuilder

__all__ = ["DataType", "GraphBuilder", "IngotError"]
__version__ = "0.1.0"
