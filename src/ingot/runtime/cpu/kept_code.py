"""What the cache on disk holds of kernels that have run on the CPU.

In: kernels. Out: the entries that another process needs to run them without compiling anything: their own code in every
form that was compiled, and what this process has used for all of its functions.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.codegen.cpu.nests import CompiledKernel, compile_kernel
from ingot.codegen.llvm.object_code import CodeSource
from ingot.runtime.disk_cache.entries import NO_OWNER, CacheEntry
from ingot.runtime.disk_cache.identity import Identity
from ingot.runtime.disk_cache.process import StoredCode, common_entries
from ingot.runtime.disk_cache.store import DiskStore
from ingot.runtime.kernels import Kernel


class _NotedCode(StoredCode):
    """A store that notes what it is asked for and what it is given."""

    def __init__(self, store: DiskStore, own: Identity):
        super().__init__(store, own)
        self._own = own
        self.sources: dict[str, tuple[CodeSource, bytes]] = {}

    def recall(self, kind: str, recipe: str) -> None:
        """Nothing: what is noted is found by its text, which another machine can do as well."""

    def find(self, source: CodeSource) -> bytes | None:
        code = super().find(source)
        if code is not None:
            self.sources[self._own.code_key(source)] = source, code
        return code

    def keep(self, source: CodeSource, code: bytes) -> None:
        super().keep(source, code)
        self.sources[self._own.code_key(source)] = source, code

    def entries(self) -> list[CacheEntry]:
        return [
            CacheEntry(self._own.header(key, source.kind, source.name, NO_OWNER, len(code)), code)
            for key, (source, code) in self.sources.items()
        ]


def kept_code(kernels: Iterable[Kernel], store: DiskStore, own: Identity) -> list[CacheEntry]:
    """The entries for kernels. Their text is written once more: it is what code is found by."""
    noted = _NotedCode(store, own)
    forms = {id(form): form for kernel in kernels for form in kernel.compiled.values()}
    for form in forms.values():
        if isinstance(form, CompiledKernel):
            compile_kernel(form.program, form.schedule, noted)
    found = {entry.header.key: entry for entry in (*common_entries(store), *noted.entries())}
    return list(found.values())
