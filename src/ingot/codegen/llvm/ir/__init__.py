"""LLVM's language, written as text while it is built.

A builder appends lines to the blocks of a function; a module's text is those lines, one after another. Instructions are
no objects: a value is its type and the name it goes by, which is all that those who use it need. Equal expressions of
one block are written once. Pointers know what they point to, here and not in the text, where they are all alike.
"""

from ingot.codegen.llvm.ir.builder import IRBuilder
from ingot.codegen.llvm.ir.functions import Block, Function, Module, Phi
from ingot.codegen.llvm.ir.values import (
    BFloatType,
    Constant,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    PointerType,
    Spread,
    Type,
    Undefined,
    Value,
    VectorType,
    VoidType,
)

__all__ = [
    "BFloatType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "HalfType",
    "IRBuilder",
    "IntType",
    "Module",
    "Phi",
    "PointerType",
    "Spread",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
]
