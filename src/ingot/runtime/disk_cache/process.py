"""The store of this process: where `INGOT_CACHE_DIR` says, or nowhere.

In: the environment. Out: a store for compilers, and verdicts of measurements from earlier processes. What always holds:
a directory that is not trusted is not used, and one line of `INGOT_LOGS=cache` says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ingot.base.environment_variables import environment
from ingot.base.logs import log
from ingot.base.once import once
from ingot.codegen.llvm.object_code import CodeSource
from ingot.runtime.disk_cache.directory import Untrusted
from ingot.runtime.disk_cache.entries import CacheEntry
from ingot.runtime.disk_cache.identity import MEASUREMENT, Identity, identity
from ingot.runtime.disk_cache.store import DiskStore


def opened() -> DiskStore:
    """The store that the environment names; `Untrusted` says why there is none."""
    found = environment()
    if found.cache_directory is None:
        raise Untrusted("INGOT_CACHE_DIR is set to nothing, or there is no home to keep it in")
    return DiskStore(found.cache_directory, found.cache_limit)


class StoredCode:
    """Object code in a store, as the compiler asks for it."""

    def __init__(self, store: DiskStore, own: Identity, function: str | None = None):
        self._store, self._identity, self._function = store, own, function

    def find(self, source: CodeSource) -> bytes | None:
        entry = self._store.find(self._identity.code_key(source))
        return None if entry is None else entry.payload

    def keep(self, source: CodeSource, code: bytes) -> None:
        key = self._identity.code_key(source)
        header = self._identity.header(key, source.kind, source.name, self._function, len(code))
        self._store.keep(CacheEntry(header, code))


@once
def process_store() -> tuple[DiskStore, Identity] | None:
    """The store of this process and what it keeps things by; None if nothing is kept."""
    if environment().cache_directory is None:
        return None
    try:
        return opened(), identity()
    except (Untrusted, OSError) as error:
        log("cache", f"nothing is kept: {error}")
        return None


def process_code(function: str | None = None) -> StoredCode | None:
    """Where code stays when this process ends, which was made for a function of the user's; None if nowhere."""
    found = process_store()
    return None if found is None else StoredCode(*found, function)


@once
def process_functions() -> StoredCode | None:
    """The same for functions of the process that serve every function of the user's."""
    return process_code()


def remembered(subject: str, what: tuple[Any, ...], measure: Callable[[], Any]) -> Any:
    """What was measured on this machine, by an earlier process or now. `what` is all that it depends on besides the
    machine and versions; both that and the result are plain data, as JSON has it."""
    found = process_store()
    if found is None:
        return measure()
    store, own = found
    key = own.measurement_key(subject, what)
    entry = store.find(key)
    if entry is not None:
        return json.loads(entry.payload)
    result = measure()
    payload = json.dumps(result).encode()
    store.keep(CacheEntry(own.header(key, MEASUREMENT, f"{subject} {json.dumps(what)}", None, len(payload)), payload))
    return result
