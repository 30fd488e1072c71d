"""Object code of LLVM's text: from a store that has it, or compiled now.

In: a text in LLVM's language, the processor it is for, and a store, if there is one. Out: an object file's bytes, which
can be moved: it holds no address of this process. What always holds: a store is asked by everything that decides about
the code, so what it finds is what LLVM would make; what the store does with code that it is given is its own business,
and no fault of it stops a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ingot.base.forks import new_lock
from ingot.codegen.llvm.warming import bring_in_tables

if TYPE_CHECKING:
    from ingot.codegen.llvm.host import Host


@dataclass(frozen=True, slots=True)
class CodeSource:
    """All that object code is made from, and what people call it."""

    kind: str
    """What it is for: a kernel, products, native routines."""
    name: str
    """For people: it does not tell code apart."""
    text: str
    host: Host
    is_optimized: bool = True
    """Whether LLVM's passes are run, not its code generator alone."""


@dataclass(frozen=True, slots=True)
class RecalledCode:
    """Object code that was found without writing its text."""

    code: bytes
    functions: tuple[str, ...]
    """The functions outside of it that it calls."""


class CodeStore(Protocol):
    """Where object code stays when a process ends."""

    def knows(self, kind: str, recipe: str) -> bool:
        """Whether something is there for a recipe, which may turn out to be damaged."""
        ...

    def recall(self, kind: str, recipe: str) -> RecalledCode | None:
        """The code of the text that is written by a recipe, if both are there and whole. A recipe is all that its
        text is written from, besides ingot's own sources and the processor."""
        ...

    def note_recipe(self, recipe: str, source: CodeSource, functions: Sequence[str]) -> None:
        """Take note of what is written by a recipe, and of the functions that it calls."""
        ...

    def find(self, source: CodeSource) -> bytes | None:
        """The code of a source, if it is there and whole."""
        ...

    def keep(self, source: CodeSource, code: bytes) -> None:
        """Take code for other processes. It raises nothing: there may be no room."""
        ...


class _Count:
    def __init__(self) -> None:
        self._lock = new_lock()
        self.value = 0

    def add(self) -> None:
        with self._lock:
            self.value += 1


_compilations = _Count()


def compilations() -> int:
    """How often LLVM has made object code in this process: kernels, products, native routines."""
    return _compilations.value


def object_code(source: CodeSource, store: CodeStore | None, compile: Callable[[], bytes]) -> bytes:
    """The object code of a source: the store's, or what LLVM makes of it now."""
    found = None if store is None else store.find(source)
    if found is not None:
        return found
    bring_in_tables()
    _compilations.add()
    code = compile()
    if store is not None:
        store.keep(source, code)
    return code
