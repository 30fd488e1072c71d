"""Code that needs no compiler, for tests of where it is kept."""

from pathlib import Path

from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.object_code import CodeSource, object_code
from ingot.runtime.disk_cache.entries import CodeOwner
from ingot.runtime.disk_cache.identity import identity
from ingot.runtime.disk_cache.process import StoredCode
from ingot.runtime.disk_cache.store import DiskStore

LIMIT = 10**9


def source(text: str, kind: str = "kernel") -> CodeSource:
    return CodeSource(kind, f"name of {text}", text, host())


def code_of(text: str) -> bytes:
    """What compiling a text gives: its own bytes, a few thousand times."""
    return text.encode() * 3000


def fetched(store: DiskStore, text: str) -> tuple[bytes, bool]:
    """The code of a text by way of a store, and whether it had to be compiled."""
    compiled: list[bool] = []

    def compile() -> bytes:
        compiled.append(True)
        return code_of(text)

    return object_code(source(text), StoredCode(store, identity(), CodeOwner("module.function")), compile), bool(
        compiled
    )


def path_of(store: DiskStore, text: str) -> Path:
    return store.path(identity().code_key(source(text)))
