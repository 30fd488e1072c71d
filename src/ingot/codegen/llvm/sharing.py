"""Sharing the iterations of a parallel loop among threads, through the OpenMP runtime that torch itself uses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ingot.codegen.llvm.frame import BYTE_POINTER, WORD, minimum

REGION = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, WORD, WORD])
"""A function for grains first to last of a parallel loop, in a context."""
_NUMBER = ir.IntType(32)


def emit_share(module: ir.Module) -> ir.Function:
    """share(region, context, grains, threads): one thread directly, several through GOMP_parallel."""
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(REGION), BYTE_POINTER, WORD, WORD])
    share = ir.Function(module, kind, "share")
    share.linkage = "internal"
    work = _emit_work(module)
    parallel_kind = ir.FunctionType(ir.VoidType(), [work.type, BYTE_POINTER, _NUMBER, _NUMBER])
    parallel = ir.Function(module, parallel_kind, "GOMP_parallel")
    builder: Any = ir.IRBuilder(share.append_basic_block("entry"))
    region, context, grains, threads = share.args
    team = minimum(builder, threads, grains)
    task = builder.alloca(WORD, size=3)
    with builder.if_else(builder.icmp_signed("<=", team, WORD(1))) as (alone, together):
        with alone:
            builder.call(region, [context, WORD(0), grains])
        with together:
            for index, word in enumerate((builder.ptrtoint(region, WORD), builder.ptrtoint(context, WORD), grains)):
                builder.store(word, builder.gep(task, [WORD(index)]))
            builder.call(
                parallel, [work, builder.bitcast(task, BYTE_POINTER), builder.trunc(team, _NUMBER), _NUMBER(0)]
            )
    builder.ret_void()
    return share


def _emit_work(module: ir.Module) -> ir.Function:
    """What each thread of a team does: its equal share of the grains; the last threads may have less or nothing."""
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTE_POINTER]), "work")
    work.linkage = "internal"
    thread_number = ir.Function(module, ir.FunctionType(_NUMBER, []), "omp_get_thread_num")
    thread_count = ir.Function(module, ir.FunctionType(_NUMBER, []), "omp_get_num_threads")
    builder: Any = ir.IRBuilder(work.append_basic_block("entry"))
    task = builder.bitcast(work.args[0], ir.PointerType(WORD))
    region, context, grains = (builder.load(builder.gep(task, [WORD(index)])) for index in range(3))
    me, all_ = (builder.zext(builder.call(function, []), WORD) for function in (thread_number, thread_count))
    share = builder.udiv(builder.add(grains, builder.sub(all_, WORD(1))), all_)
    first = minimum(builder, builder.mul(me, share), grains)
    last = minimum(builder, builder.add(first, share), grains)
    callee = builder.inttoptr(region, ir.PointerType(REGION))
    builder.call(callee, [builder.inttoptr(context, BYTE_POINTER), first, last])
    builder.ret_void()
    return work
