"""LLVM's language, written as text while it is built.

In: calls of a builder's methods. Out: a module's text, the lines of its functions one after another. What always holds:
an instruction is a line of text, not an object; a value is its type and its name. Equal expressions of one block are
written once. Pointers have a type of what they point to in Python, and none in the text.
"""

from ingot.codegen.llvm.ir.blocks import BasicBlock, Function, Module, Phi
from ingot.codegen.llvm.ir.instruction_builder import IRBuilder
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
    "BasicBlock",
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
