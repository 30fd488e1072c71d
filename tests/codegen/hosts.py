"""Processors that code is generated for: this one, and others whether or not they are here."""

from __future__ import annotations

from llvmlite import binding

from ingot.codegen.llvm.host import host, host_for

binding.initialize_all_targets()
binding.initialize_all_asmprinters()

NATIVE = host()
BASELINE = host_for("x86_64-unknown-linux-gnu", "x86-64", {})
HASWELL = host_for("x86_64-unknown-linux-gnu", "haswell", dict.fromkeys(["avx2", "fma", "f16c", "sse4.1"], True))
SKYLAKE = host_for(
    "x86_64-unknown-linux-gnu", "skylake-avx512", dict.fromkeys(["avx2", "avx512f", "fma", "f16c", "sse4.1"], True)
)
AARCH64 = host_for("aarch64-unknown-linux-gnu", "generic", {"neon": True})
GPU = host_for("nvptx64-nvidia-cuda", "sm_80", {})
