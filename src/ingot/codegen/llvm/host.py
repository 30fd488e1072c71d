"""The machine code is made for, and LLVM making it in process.

A `Host` says what a processor can do; usually it is the one this process runs on. `Compiled` takes a module and holds
its machine code, which a store may have from an earlier process. Any number of threads may compile at once: each
compilation has an LLVM context of its own, each thread target machines of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llvmlite import binding

from ingot.base.forks import cached_property
from ingot.codegen.llvm import ir, unlocked
from ingot.codegen.llvm.object_code import CodeSource, CodeStore, object_code


@dataclass(frozen=True, slots=True)
class Host:
    """A processor to generate code for. What an instruction does not do would be a call of a library."""

    triple: str
    name: str
    features: str
    vector_bits: int
    """Width of the widest vector registers worth using."""
    converts_half: bool
    """Whether instructions convert float16."""
    has_fma: bool
    """Whether an instruction multiplies and adds with one rounding."""
    has_rounding: bool
    """Whether instructions round to whole numbers."""
    level: int = 1
    """How much LLVM's code generator does. At 1 a processor's code is as fast as at 2, and there in two thirds of the
    time."""
    has_approximations: bool = False
    """Whether instructions approximate 2^x, log2(x), 1 / x and roots in single precision, as GPUs' do."""
    packs_bfloat16: bool = False
    """Whether an instruction rounds two float32 to a word of two bfloat16."""
    has_extrema: bool = False
    """Whether an instruction gives the larger or smaller of two float32, and NaN if either is."""
    extrema_commute: bool = False
    """Whether the larger or smaller of two numbers must have the same bits whichever comes first, because each thread
    combines its own value, as the first operand, with that of another thread."""
    computes_halves: bool = False
    """Whether instructions add and multiply both half types."""
    overlaps_launches: bool = False
    """Whether a kernel can be on its way while the one before it ends, and instructions wait for that end."""
    contracts_doubles: bool = False
    """Whether products of float64 may be added without being rounded first."""
    approximates: bool = False
    """Whether single precision is wanted for results of 16 bits alone, so that functions may be rougher and quicker."""
    may_approximate: bool = True
    """Whether what becomes a result of 16 bits may be computed roughly; the flag `numerics` forbids it."""
    leaves_roots: bool = False
    """Whether exact roots of float32 are left to the assembler."""


def host_for(triple: str, name: str, features: Mapping[str, bool]) -> Host:
    """A processor by its features in LLVM's words; those that are not x86 have all that is asked for here.

    Features that are not there are said, too: a virtual machine may hide what its processor's name stands for.
    """
    is_x86 = triple.startswith(("x86_64", "i686"))
    bits = 512 if features.get("avx512f") else 256 if features.get("avx2") else 128
    flattened = ",".join(f"{'+' if there else '-'}{feature}" for feature, there in sorted(features.items()))
    has = lambda feature: not is_x86 or features.get(feature, False)
    return Host(triple, name, flattened, bits, has("f16c"), has("fma"), has("sse4.1"))


@lru_cache(maxsize=1)
def host() -> Host:
    """The processor this process runs on."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return host_for(binding.get_default_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features())


class HostModule(ir.Module):
    """A module that knows the processor it is compiled for, so that code that writes it can ask."""

    def __init__(self, host: Host):
        super().__init__(host.triple, _data_layout(host))
        self.host = host
        # LLVM handles bytes in fours on a GPU, and fails to select among four constants of 1 or 0: it ends the process.
        self.chooses_bytes_singly = host.has_approximations


def new_module() -> HostModule:
    """An empty module for the processor this process runs on."""
    return HostModule(host())


_LEVEL = 1


class _Machines(threading.local):
    """LLVM's target machines of one thread, and the passes that are run for them."""

    def __init__(self) -> None:
        self.by_host: dict[Host, binding.TargetMachine] = {}
        self.passes: dict[Host, tuple[binding.ModulePassManager, binding.PassBuilder]] = {}


_machines = _Machines()


def target_machine(host: Host) -> binding.TargetMachine:
    """LLVM's code generator for a processor, of this thread's own."""
    found = _machines.by_host.get(host)
    if found is None:
        found = _machines.by_host[host] = _new_target_machine(host.triple, host.name, host.features, host.level)
    return found


def _new_target_machine(triple: str, name: str, features: str, level: int) -> binding.TargetMachine:
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=name, features=features, opt=level, reloc="pic", codemodel="jitdefault", jit=True
    )


@lru_cache
def _data_layout(host: Host) -> str:
    return str(target_machine(host).target_data)


def optimized(text: str, host: Host) -> binding.ModuleRef:
    """The module of a text after the few passes that generated code needs: it is in SSA form and vectorised already.

    The standard pipeline takes many times as long and makes no kernel faster. Combining instructions and numbering
    values do neither: the code generator does that anyway.
    """
    module = unlocked.parse(text, binding.create_context())
    module.verify()
    passes, builder = _passes(host)
    unlocked.run_passes(passes, module, builder)
    return module


def _passes(host: Host) -> tuple[binding.ModulePassManager, binding.PassBuilder]:
    """The passes and what runs them, of this thread's own. They are made once: llvmlite frees not all of their memory
    when they go."""
    found = _machines.passes.get(host)
    if found is None:
        options = binding.create_pipeline_tuning_options(speed_level=_LEVEL)
        passes = binding.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()  # accumulators are written as memory
        passes.add_simplify_cfg_pass()
        found = _machines.passes[host] = passes, binding.create_pass_builder(target_machine(host), options)
    return found


def assembly_of(text: str, host: Host) -> str:
    """The machine code of a module's text, as text."""
    return unlocked.emit(target_machine(host), optimized(text, host), assembly=True).decode()


class Compiled:
    """Machine code of one module for this process's processor, kept in memory as long as this object lives."""

    def __init__(
        self,
        write: Callable[[], HostModule],
        kind: str = "code",
        name: str = "",
        store: CodeStore | None = None,
        recipe: str | None = None,
    ):
        """`kind` and `name` are what the code is called in a store, if there is one. A store that knows the recipe
        gives the code before its text is written."""
        self._write = write
        code = None if store is None or recipe is None else _recalled(store, kind, recipe)
        if code is None:
            module = write()
            self._text, self._host = str(module), module.host
            functions = _foreign_functions(module)
            _check_that_functions_exist(functions)
            source = CodeSource(kind, name, self._text, self._host)
            code = object_code(source, store, self._compile)
            if store is not None and recipe is not None:
                store.note_recipe(recipe, source, functions)
        _check_that_routines_exist(code)
        self._engine = loaded(code)

    @cached_property
    def _text(self) -> str:
        return str(self._write())

    @cached_property
    def _host(self) -> Host:
        return self._write().host

    def _compile(self) -> bytes:
        return unlocked.emit(target_machine(self._host), optimized(self._text, self._host))

    @property
    def llvm(self) -> str:
        """What the machine code was made from, made again when it is to be read."""
        return str(optimized(self._text, self._host))

    @property
    def assembly(self) -> str:
        """The machine code as text, made when it is to be read."""
        return assembly_of(self._text, self._host)

    def address(self, function: str) -> int:
        return self._engine.get_function_address(function)


def plain_code(text: str, host: Host) -> bytes:
    """The object code of a text as it is: no passes are run."""
    module = unlocked.parse(text, binding.create_context())
    module.verify()
    return unlocked.emit(target_machine(host), module)


def loaded(object_code: bytes) -> binding.ExecutionEngine:
    """Object code in executable memory, owned by an engine that has no module: it would compile it."""
    empty = unlocked.parse("", binding.create_context())
    # An engine owns its target machine and destroys it, so each gets a new one; it is asked for nothing but its name.
    engine = binding.create_mcjit_compiler(empty, _new_target_machine(host().triple, "", "", _LEVEL))
    engine.remove_module(empty)
    engine.add_object_file(binding.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    return engine


def _foreign_functions(module: HostModule) -> list[str]:
    """The functions that a module calls and does not have."""
    declared = [function.name for function in module.functions.values() if function.is_declaration]
    return [name for name in declared if not name.startswith("llvm.")]


def _check_that_functions_exist(names: Sequence[str]) -> None:
    """An unknown name would end the process when the code is loaded."""
    for name in names:
        if not binding.address_of_symbol(name):
            raise LookupError(f"generated code calls {name}, which this process does not have")


def _recalled(store: CodeStore, kind: str, recipe: str) -> bytes | None:
    """What a store has for a recipe, if this process has all that it calls."""
    found = store.recall(kind, recipe)
    return found.code if found is not None and all(map(binding.address_of_symbol, found.functions)) else None


_ROUTINES = ("__truncdfhf2", "__truncsfhf2", "__extendhfsf2", "__extendhfdf2")
"""Functions of a compiler's own library that LLVM may call to convert half precision."""


def _check_that_routines_exist(object_code: bytes) -> None:
    for name in _ROUTINES:
        if name.encode() in object_code and not binding.address_of_symbol(name):
            raise LookupError(f"generated code needs {name}, which this process does not have")


def add_symbol(name: str, address: int) -> None:
    """Let generated code call a native function by name."""
    binding.add_symbol(name, address)
