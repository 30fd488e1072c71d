"""The machine this process runs on: its features, and LLVM compiling for it in process."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

from llvmlite import binding, ir

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    features: str
    vector_bits: int
    """Width of the widest vector registers worth using."""
    converts_half: bool
    """Whether float16 is converted by an instruction; otherwise it would be a call into a library that is not there."""


@lru_cache(maxsize=1)
def host() -> Host:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features()
    present = {name for name, has in features.items() if has}
    bits = 512 if "avx512f" in present else 256 if "avx2" in present else 128
    is_arm = binding.get_default_triple().startswith(("aarch64", "arm64"))
    return Host(binding.get_host_cpu_name(), features.flatten(), bits, "f16c" in present or is_arm)


@lru_cache(maxsize=1)
def _target_machine() -> binding.TargetMachine:
    """The one that optimises and prints. Execution engines own theirs and destroy it, so each gets a new one."""
    return _new_target_machine()


def _new_target_machine() -> binding.TargetMachine:
    machine = host()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(
        cpu=machine.name, features=machine.features, opt=2, reloc="pic", codemodel="jitdefault", jit=True
    )


def new_module(name: str) -> ir.Module:
    module = ir.Module(name)
    module.triple = binding.get_default_triple()
    module.data_layout = str(_target_machine().target_data)
    return module


def _tidy(module: binding.ModuleRef) -> None:
    """The few passes that generated code needs: it is in SSA form, vectorised and hoisted already.

    The standard pipeline would take ten times as long, most of it unrolling loops that gain nothing by it.
    """
    builder = binding.create_pass_builder(_target_machine(), binding.create_pipeline_tuning_options(speed_level=2))
    passes = binding.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_dead_code_elimination_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


class Compiled:
    """Machine code of one module, kept in memory as long as this object lives."""

    def __init__(self, module: ir.Module):
        # LLVM's objects are not made for several threads; compiling takes milliseconds, so one at a time will do.
        with _lock:
            parsed = binding.parse_assembly(str(module))
            parsed.verify()
            _tidy(parsed)
            self.llvm = str(parsed)
            self._engine = binding.create_mcjit_compiler(parsed, _new_target_machine())
            self._engine.finalize_object()

    @property
    def assembly(self) -> str:
        """The machine code as text, made when somebody wants to read it."""
        with _lock:
            return _target_machine().emit_assembly(binding.parse_assembly(self.llvm))

    def address(self, function: str) -> int:
        return self._engine.get_function_address(function)


def add_symbol(name: str, address: int) -> None:
    """Let generated code call a native function by name."""
    binding.add_symbol(name, address)
