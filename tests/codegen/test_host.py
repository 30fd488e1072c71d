"""Compiling: on many threads, without leaving anything behind, and never with an unknown function."""

from __future__ import annotations

import ctypes
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, new_module
from ingot.codegen.llvm.math import FUNCTIONS
from tests.codegen.hosts import NATIVE
from tests.codegen.math_kernels import ARITY, kernel_module

WORD = ir.IntType(64)


def adding(amount: int) -> Compiled:
    """The machine code of add(x) = x + amount."""
    module = new_module()
    function = ir.Function(module, ir.FunctionType(WORD, [WORD]), "add")
    builder: Any = ir.IRBuilder(function)
    builder.ret(builder.add(function.arguments[0], WORD(amount)))
    return Compiled(lambda: module)


def call(code: Compiled, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("add"))(x)


def compile_and_run(name: str) -> numpy.ndarray:
    """A function of the math module, compiled anew, over 64 numbers."""
    code = Compiled(lambda: kernel_module(name, ir.FloatType(), 8, NATIVE))
    arrays = [numpy.linspace(0.1, 0.9, 64, dtype=numpy.float32) for _ in range(ARITY.get(name, 1) + 1)]
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), ctypes.c_int64)
    kind(code.address("kernel"))(*(array.ctypes.data for array in arrays), 64)
    return arrays[-1]


def test_eight_threads_compile_and_run_different_kernels_at_once():
    names = list(FUNCTIONS) * 3
    alone = {name: compile_and_run(name) for name in FUNCTIONS}
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(compile_and_run, names))
    for name, result in zip(names, together, strict=True):
        assert numpy.array_equal(result, alone[name], equal_nan=True), name


def test_code_lives_as_long_as_it_is_held():
    held = adding(1)
    for amount in range(2, 40):
        adding(amount)
    gc.collect()
    assert call(held, 41) == 42


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_thousands_of_dropped_kernels_leave_no_memory_behind():
    def used_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    for amount in range(200):
        adding(amount)
    pages, mapped = used_pages(), mappings()
    for amount in range(1000):
        adding(amount)
    assert used_pages() - pages < 500  # half a page for each would be a leak
    assert mappings() - mapped < 20


def test_a_function_the_process_does_not_have_is_refused():
    module = new_module()
    stranger = ir.Function(module, ir.FunctionType(WORD, []), "no_such_function_anywhere")
    function = ir.Function(module, ir.FunctionType(WORD, []), "call")
    builder: Any = ir.IRBuilder(function)
    builder.ret(builder.call(stranger, []))
    with pytest.raises(LookupError, match="no_such_function_anywhere"):
        Compiled(lambda: module)


def test_what_was_compiled_can_be_read():
    code = adding(12345)
    assert "add i64" in code.llvm and "12345" in code.llvm
    assert "12345" in code.assembly


def test_llvm_refuses_what_is_not_a_module():
    module = new_module()
    function = ir.Function(module, ir.FunctionType(WORD, [WORD]), "add")
    function.append_block()  # without an end
    with pytest.raises(RuntimeError, match="LLVM"):
        Compiled(lambda: module)
