"""Kernels for a GPU around one function of the math module each: a thread computes one vector."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, HostModule
from ingot.codegen.llvm.math import EXACT_FUNCTIONS, FUNCTIONS, INTEGER_FUNCTIONS
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.target import ptx_of

THREADS = 256
ARITY = {"atan2": 2, "pow": 2, "fmod": 2, "remainder": 2, "gcd": 2, "fused_sum": 3}
_WORD = ir.IntType(64)


def names_for(lane: ir.Type) -> list[str]:
    """Functions there are of a type."""
    return [*INTEGER_FUNCTIONS] if isinstance(lane, ir.IntType) else [*FUNCTIONS, *EXACT_FUNCTIONS]


def _emitter(name: str, lane: ir.Type) -> Any:
    return (INTEGER_FUNCTIONS if isinstance(lane, ir.IntType) else FUNCTIONS | EXACT_FUNCTIONS)[name]


def _add_kernel(module: HostModule, name: str, lane: ir.Type, lanes: int) -> None:
    """entry(words): the addresses of the operands and of the result, and the number of vectors."""
    arity = ARITY.get(name, 1)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(_WORD)]), f"kernel_{name}")
    function.make_kernel(f"[{arity + 2} x i64]", THREADS)
    builder: Any = ir.IRBuilder(function)
    words = [builder.load(builder.gep(function.arguments[0], _WORD(index))) for index in range(arity + 2)]
    block, thread = (builder.zext(of(builder), _WORD) for of in (intrinsics.block_number, intrinsics.thread_number))
    index = builder.add(builder.mul(block, _WORD(THREADS)), thread)
    type = ir.VectorType(lane, lanes) if lanes > 1 else lane
    with builder.if_then(builder.icmp_signed("<", index, words[-1])):
        places = [builder.gep(builder.inttoptr(word, ir.PointerType(type, 1)), index) for word in words[:-1]]
        operands = [builder.load(place) for place in places[:-1]]
        builder.store(_emitter(name, lane)(builder, *operands), places[-1])
    builder.ret_void()


def ptx_of_functions(names: Sequence[str], lane: ir.Type, lanes: int, host: Host) -> str:
    """One kernel for each function, by the name kernel_<function>."""
    module = HostModule(host)
    for name in names:
        _add_kernel(module, name, lane, lanes)
    return ptx_of(str(module), host)


def assembled(ptx: str, architecture: str, folder: Path) -> str:
    """What NVIDIA's assembler has to say about PTX: nothing, if there is nothing wrong."""
    assembler = shutil.which("ptxas")
    assert assembler is not None
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    command = [assembler, f"-arch={architecture}", "-O1", str(source), "-o", str(folder / "kernel.cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr
