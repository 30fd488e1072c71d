"""Functions that all kernels call: compiled once for the process, known to kernels by name.

share(region, context, grains, threads)    grains of a parallel loop among the threads of torch's OpenMP runtime
gather32(array, place, stride, count)      elements a stride apart into a small array; for 8, 16, 32, 64 and 128 bits
scatter32(array, place, stride, count)     the way back
"""

from __future__ import annotations

from typing import Any

from ingot.base.forks import new_lock
from ingot.codegen.cpu.frame import counted, minimum
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, HostModule, add_symbol, new_module
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import ANY_ADDRESS, BYTE_POINTER, WORD

REGION = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, WORD, WORD])
"""A function for grains first to last of a parallel loop, in a context."""
_COPY = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, BYTE_POINTER, WORD, WORD])
_NUMBER = ir.IntType(32)
_WIDTHS = (8, 16, 32, 64, 128)
KINDS = {
    "share": ir.FunctionType(ir.VoidType(), [ir.PointerType(REGION), BYTE_POINTER, WORD, WORD]),
    **{f"{direction}{width}": _COPY for direction in ("gather", "scatter") for width in _WIDTHS},
}
_PREFIX = "ingot_"
_lock = new_lock()


def declare(module: ir.Module, name: str) -> ir.Function:
    """A common function as a kernel's module sees it."""
    found = module.functions.get(_PREFIX + name)
    return found if found is not None else ir.Function(module, KINDS[name], _PREFIX + name)


_provided: list[Compiled] = []
"""The common functions, once they are compiled."""


def provide(store: CodeStore | None = None) -> None:
    """Make the common functions callable from kernels, if they are not yet."""
    with _lock:
        if not _provided:
            _provided.append(_compiled(store))


def _written() -> HostModule:
    module = new_module()
    _emit_share(module)
    for width in _WIDTHS:
        _emit_copy(module, "gather", width)
        _emit_copy(module, "scatter", width)
    return module


def _compiled(store: CodeStore | None) -> Compiled:
    code = Compiled(_written, "common functions", ", ".join(KINDS), store, "common functions")
    for name in KINDS:
        add_symbol(_PREFIX + name, code.address(_PREFIX + name))
    return code


def _emit_share(module: ir.Module) -> None:
    """One thread directly, several through GOMP_parallel."""
    share = declare(module, "share")
    work = _emit_work(module)
    parallel_kind = ir.FunctionType(ir.VoidType(), [work.type, BYTE_POINTER, _NUMBER, _NUMBER])
    parallel = ir.Function(module, parallel_kind, "GOMP_parallel")
    builder: Any = ir.IRBuilder(share)
    region, context, grains, threads = share.arguments
    team = minimum(builder, threads, grains)
    task = builder.alloca(WORD, WORD(3))
    alone, together = builder.append_block("alone"), builder.append_block("together")
    builder.cbranch(builder.icmp_signed("<=", team, WORD(1)), alone, together)
    builder.position_at_end(alone)
    builder.call(region, [context, WORD(0), grains])
    builder.ret_void()
    builder.position_at_end(together)
    for index, word in enumerate((builder.ptrtoint(region, WORD), builder.ptrtoint(context, WORD), grains)):
        builder.store(word, builder.gep(task, WORD(index)))
    count = builder.trunc(team, _NUMBER)
    builder.call(parallel, [work, builder.bitcast(task, BYTE_POINTER), count, _NUMBER(0)])
    builder.ret_void()


def _emit_work(module: ir.Module) -> ir.Function:
    """What each thread of a team does: its equal share of the grains; the last threads may have less or nothing."""
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTE_POINTER]), "work")
    work.is_internal = True
    thread_number = ir.Function(module, ir.FunctionType(_NUMBER, []), "omp_get_thread_num")
    thread_count = ir.Function(module, ir.FunctionType(_NUMBER, []), "omp_get_num_threads")
    builder: Any = ir.IRBuilder(work)
    task = builder.bitcast(work.arguments[0], ir.PointerType(WORD))
    region, context, grains = (builder.load(builder.gep(task, WORD(index))) for index in range(3))
    me, all_ = (builder.zext(builder.call(function, []), WORD) for function in (thread_number, thread_count))
    share = builder.udiv(builder.add(grains, builder.sub(all_, WORD(1))), all_)
    first = minimum(builder, builder.mul(me, share), grains)
    last = minimum(builder, builder.add(first, share), grains)
    callee = builder.inttoptr(region, ir.PointerType(REGION))
    builder.call(callee, [builder.inttoptr(context, BYTE_POINTER), first, last])
    builder.ret_void()
    return work


def _emit_copy(module: ir.Module, direction: str, width: int) -> None:
    function = declare(module, f"{direction}{width}")
    builder: Any = ir.IRBuilder(function)
    array, place, stride, count = function.arguments
    element = ir.PointerType(ir.IntType(width))
    with counted(builder, WORD(0), count) as index:
        near = builder.bitcast(builder.gep(array, builder.mul(index, WORD(width // 8))), element)
        far = builder.bitcast(builder.gep(place, builder.mul(index, stride)), element)
        source, target = (far, near) if direction == "gather" else (near, far)
        builder.store(builder.load(source, align=ANY_ADDRESS), target, align=ANY_ADDRESS)
    builder.ret_void()
