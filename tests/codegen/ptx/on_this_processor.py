"""Code for a GPU run on this processor: a thread of Python's for each thread of a block, one block after another.

The instructions are those LLVM is given for the GPU; only what threads ask of each other (who they are, barriers,
reading a neighbour's register) is done by Python, and launches never overlap. So everything is tried but LLVM's code
generator for GPUs. Functions that a GPU has instructions of its own for cannot be run, apart from reciprocals, which
are exact here.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from llvmlite import binding

from ingot import GraphBuilder
from ingot.base.numbers import Number
from ingot.codegen.llvm.host import host, target_machine
from ingot.codegen.ptx.kernels import GpuKernel, compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.launches import gpu_layout, launches_of, left_by_launches, workspace_share
from ingot.loops.gpu.schedule import MOST_COUNTERS, WARP, GpuSchedule
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.gpu.tuning import CudaTuning
from ingot.runtime.cuda.kernels import gpu_words, scheduled
from ingot.runtime.kernels import Kernel
from ingot.runtime.plan import Plan
from tests.ops.generation import data_type_of

_TUNING = CudaTuning()
_PATIENCE = 60.0
"""Seconds until a barrier that some threads never reach is given up."""
_running = threading.local()


class _Barrier:
    """Lets so many threads pass together, as often as they like: threading.Barrier with less to do at every passage."""

    def __init__(self, threads: int):
        self._threads = threads
        self._arriving = threading.Lock()
        self._asleep: list[threading.Lock] = []
        self._is_broken = False

    def wait(self) -> None:
        if self._is_broken:
            raise threading.BrokenBarrierError
        own = _running.asleep
        with self._arriving:
            is_last = len(self._asleep) == self._threads - 1
            if is_last:
                others, self._asleep = self._asleep, []
            else:
                others = self._asleep
                others.append(own)
        if is_last:
            for other in others:
                other.release()
        elif not own.acquire(timeout=_PATIENCE):
            self._is_broken = True
            raise threading.BrokenBarrierError


class _Block:
    """What the threads of a block share."""

    def __init__(self, number: int, line: int, threads: int):
        self.number, self.line = number, line
        self.barrier, self.end = _Barrier(threads), _Barrier(threads)
        self.warps = [_Barrier(WARP) for _ in range(threads // WARP)]
        self.registers = [0] * threads, [0] * threads
        """Of two exchanges in a row: who writes for the next but one knows that all have read."""


def _exchanged(_mask: int, value: int, distance: int, _last: int) -> int:
    block, thread = _running.block, _running.thread
    _running.exchanges += 1
    registers = block.registers[_running.exchanges % 2]
    registers[thread] = value
    block.warps[thread // WARP].wait()
    return registers[thread ^ distance]


_NUMBER = ctypes.c_int32
_FUNCTIONS: dict[str, Any] = {
    "llvm.nvvm.read.ptx.sreg.tid.x": ctypes.CFUNCTYPE(_NUMBER)(lambda: _running.thread),
    "llvm.nvvm.read.ptx.sreg.ctaid.x": ctypes.CFUNCTYPE(_NUMBER)(lambda: _running.block.number),
    "llvm.nvvm.read.ptx.sreg.ctaid.y": ctypes.CFUNCTYPE(_NUMBER)(lambda: _running.block.line),
    "llvm.nvvm.griddepcontrol.wait": ctypes.CFUNCTYPE(None)(lambda: None),
    "llvm.nvvm.barrier.cta.sync.aligned.all": ctypes.CFUNCTYPE(None, _NUMBER)(lambda _: _running.block.barrier.wait()),
    "llvm.nvvm.shfl.sync.bfly.i32": ctypes.CFUNCTYPE(_NUMBER, *[_NUMBER] * 4)(_exchanged),
}


def _compiled(text: str) -> binding.ExecutionEngine:
    """A module for a GPU as code for this processor."""
    target_machine(host())  # LLVM knows this processor from then on
    for name, function in _FUNCTIONS.items():
        own = "gpu_" + name.rsplit(".sync.")[-1].replace(".", "_")
        binding.add_symbol(own, ctypes.cast(function, ctypes.c_void_p).value)
        text = text.replace(f"@{name}(", f"@{own}(")
    text = re.sub(r"target (triple|datalayout) = .*", "", text)
    text = re.sub(r'call (\w+) asm "rcp[^"]*", "[^"]*"\(\w+ ([^)]*)\) memory\(none\)', r"fdiv \1 1.0, \2", text)
    text = re.sub(r"ptx_kernel |byval\(\[\d+ x i64\]\) ", "", text)
    machine = binding.Target.from_default_triple().create_target_machine(opt=1)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(text, binding.create_context()), machine)
    engine.finalize_object()
    return engine


def _run(kernel: GpuKernel, call: GpuCall, words: Any) -> None:
    engine = _compiled(kernel._text)

    def run(function: Any, blocks: list[_Block], thread: int) -> None:
        _running.thread, _running.exchanges = thread, 0
        _running.asleep = threading.Lock()
        _running.asleep.acquire()
        for block in blocks:
            _running.block = block
            function(ctypes.addressof(words))
            block.end.wait()

    for entry, launch in zip(kernel.entries, launches_of(kernel.nest, kernel.schedule), strict=True):
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address(entry))
        threads = launch.schedule(call.schedule).threads
        places = itertools.product(range(launch.lines(call)), range(launch.blocks(call)))
        blocks = [_Block(number, line, threads) for line, number in places]
        running = [threading.Thread(target=run, args=(function, blocks, thread)) for thread in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Some, the same at every call, that all types have."""
    count = int(torch.tensor(shape).prod())
    return torch.arange(count).mul(37).remainder(101).to(dtype).view(shape)


def kernel_for(body: Any, *tensors: torch.Tensor) -> tuple[Kernel, list[torch.Tensor]]:
    """The one kernel of a graph, and the tensors it reads, in its order."""
    builder = GraphBuilder()
    inputs = [builder.input(tuple(tensor.shape), data_type_of(tensor.dtype)) for tensor in tensors]
    results = body(builder.ops, *inputs)
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    (kernel,) = Plan(builder.build()).kernels()
    given = dict(zip((each.node for each in inputs), tensors, strict=True))
    return kernel, [given[read.node] for read in kernel.lowered.tensors]


def run_on_this_processor(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number] = (),
    tuning: CudaTuning = _TUNING,
    is_wide: bool = False,
) -> tuple[list[torch.Tensor], GpuSchedule, int]:
    """The results of a kernel's code for a GPU, its schedule, and how many launches it took; `is_wide` has numbers of
    64 bits, as tensors of more than 2^31 elements have."""
    call, outputs = scheduled(kernel, tensors, {}, tuning=tuning)
    if is_wide:
        call = replace(call, schedule=replace(call.schedule, is_wide=True))
    compiled = compile_gpu_kernel(kernel.program, call.schedule, gpu((9, 0)))
    layout = gpu_layout(compiled.nest, compiled.schedule)
    words = gpu_words(call, layout, len(kernel.program.buffers))
    results = [torch.empty(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
    for buffer, tensor in enumerate((*results, *tensors)):
        words[layout.address(buffer)] = tensor.data_ptr()
    for number, value in enumerate(scalars):
        words[layout.scalar(number)] = struct.unpack("<q", struct.pack("<d", value))[0]
    workspace = torch.full((workspace_share(call) * len(left_by_launches(compiled.nest)),), 255, dtype=torch.uint8)
    if layout.has_workspace:
        words[layout.workspace] = workspace.data_ptr()
    counters = torch.zeros(MOST_COUNTERS, dtype=torch.int32)
    if layout.has_counters:
        words[layout.counters] = counters.data_ptr()
    _run(compiled, call, (ctypes.c_int64 * len(words))(*words))
    assert not counters.any(), "the next launch counts from 0 again"
    return results, call.schedule, len(compiled.entries)
