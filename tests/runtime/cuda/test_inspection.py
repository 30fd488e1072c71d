"""What can be seen of a kernel for GPUs: loops, LLVM, PTX, and machine code where the toolkit's tools are at hand."""

from __future__ import annotations

import shutil

import pytest
import torch

from ingot import GraphBuilder, JitCompiler
from ingot.base.errors import UnsupportedError
from ingot.codegen.ptx.target import gpu
from ingot.runtime.compiler import CompiledModule
from ingot.runtime.cuda.kernels import gpu_kernels, scheduled


@pytest.fixture
def module() -> CompiledModule:
    """Compiled for a GPU that need not be there."""
    builder = GraphBuilder()
    x = builder.input((64, 32))
    builder.output(builder.ops.sigmoid(x * 3.0) + 0.375)
    made = JitCompiler().compile(builder.build())
    (kernel,) = made.kernels()
    call, _ = scheduled(kernel, [torch.empty(64, 32, device="meta")], {})
    gpu_kernels.get(kernel.program, call.schedule, gpu((9, 0)))
    return made


def test_every_stage_shows_what_was_compiled(module: CompiledModule):
    assert ".target sm_90" in module.inspect("ptx") and ".entry" in module.inspect("ptx")
    assert "ptx_kernel" in module.inspect("llvm")
    assert "threads" in module.inspect("nests")
    assert module.inspect("assembly") == ""  # nothing was compiled for the CPU
    assert ".target sm_90" in module.explain("ptx")


def test_machine_code_needs_tools(module: CompiledModule, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match="put the toolkit's bin folder on PATH"):
        module.inspect("sass")


@pytest.mark.skipif(not (shutil.which("ptxas") and shutil.which("nvdisasm")), reason="needs the CUDA toolkit")
def test_machine_code_is_shown(module: CompiledModule):
    assert "EXIT" in module.inspect("sass")
