"""The store of this process: where `INGOT_CACHE_DIR` says, or nowhere.

In: the environment. Out: a store for compilers, verdicts of measurements from earlier processes, and what this process
has used of both for all of its functions. What always holds: a directory that is not trusted is not used, and one line
of `INGOT_LOGS=cache` says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ingot.base.environment_variables import environment
from ingot.base.logs import log
from ingot.base.once import once
from ingot.codegen.llvm.object_code import CodeSource, RecalledCode
from ingot.runtime.disk_cache.directory import Untrusted
from ingot.runtime.disk_cache.entries import NO_OWNER, CacheEntry, CodeOwner, is_key
from ingot.runtime.disk_cache.identity import KERNEL, MEASUREMENT, RECIPE, RECORDING, Identity, identity
from ingot.runtime.disk_cache.store import DiskStore


def opened() -> DiskStore:
    """The store that the environment names; `Untrusted` says why there is none."""
    found = environment()
    if found.cache_directory is None:
        raise Untrusted("INGOT_CACHE_DIR is set to nothing, or there is no home to keep it in")
    return DiskStore(found.cache_directory, found.cache_limit)


_COMMON: dict[str, None] = {}
"""Keys of what this process has used that serves all functions: code that is no kernel of one, and measurements."""


class StoredCode:
    """Object code in a store, as the compiler asks for it."""

    def __init__(self, store: DiskStore, own: Identity, owner: CodeOwner = NO_OWNER, is_common: bool = False):
        """`is_common` says that even kernels serve all functions."""
        self._store, self._identity, self._owner, self._is_common = store, own, owner, is_common

    def find(self, source: CodeSource) -> bytes | None:
        entry = self._store.find(self._key(source))
        return None if entry is None else entry.payload

    def knows(self, kind: str, recipe: str) -> bool:
        return self._store.has(self._identity.recipe_key(kind, recipe))

    def recall(self, kind: str, recipe: str) -> RecalledCode | None:
        entry = self._store.find(self._identity.recipe_key(kind, recipe))
        if entry is None:
            return None
        key, *functions = entry.payload.decode().split("\n")
        found = self._store.find(key) if is_key(key) else None
        if found is None:
            return None
        self._note_common(key, kind)
        return RecalledCode(found.payload, tuple(functions))

    def note_recipe(self, recipe: str, source: CodeSource, functions: Sequence[str]) -> None:
        key = self._identity.recipe_key(source.kind, recipe)
        payload = "\n".join([self._identity.code_key(source), *functions]).encode()
        name = f"where the code of {source.name} is"
        self._store.keep(CacheEntry(self._identity.header(key, RECIPE, name, self._owner, len(payload)), payload))

    def _note_common(self, key: str, kind: str) -> None:
        if self._is_common or kind != KERNEL:
            _COMMON[key] = None

    def _key(self, source: CodeSource) -> str:
        key = self._identity.code_key(source)
        self._note_common(key, source.kind)
        return key

    def keep(self, source: CodeSource, code: bytes) -> None:
        key = self._key(source)
        header = self._identity.header(key, source.kind, source.name, self._owner, len(code))
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


def process_code(owner: CodeOwner = NO_OWNER, is_common: bool = False) -> StoredCode | None:
    """Where code stays when this process ends, which was made for a function of the user's, or for all; None if
    nowhere."""
    found = process_store()
    return None if found is None else StoredCode(*found, owner, is_common)


def common_entries(store: DiskStore) -> list[CacheEntry]:
    """What this process has used for all of its functions, as far as it is still there."""
    found = (store.find(key) for key in list(_COMMON))
    return [entry for entry in found if entry is not None]


@once
def process_functions() -> StoredCode | None:
    """The same for functions of the process that serve every function of the user's."""
    return process_code()


def remembered(subject: str, what: tuple[Any, ...], measure: Callable[[], Any]) -> Any:
    """What was measured on this machine, by an earlier process or now. `what` is all that it depends on besides the
    machine and versions; both that and the result are plain data, as JSON has it."""
    found = find_measurement(subject, what)
    if found is not None:
        return found[0]
    result = measure()
    keep_measurement(subject, what, f"{subject} {json.dumps(what)}", result)
    return result


def find_measurement(subject: str, what: tuple[Any, ...]) -> tuple[Any] | None:
    """What was measured by an earlier process or this one; None if nothing is known."""
    found = process_store()
    if found is None:
        return None
    store, own = found
    key = own.measurement_key(subject, what)
    _COMMON[key] = None
    entry = store.find(key)
    return None if entry is None else (json.loads(entry.payload),)


def keep_measurement(subject: str, what: tuple[Any, ...], name: str, result: Any) -> None:
    """Keep what was measured, instead of what was there; `name` tells people what it is."""
    found = process_store()
    if found is not None:
        store, own = found
        key, payload = own.measurement_key(subject, what), json.dumps(result).encode()
        store.keep(CacheEntry(own.header(key, MEASUREMENT, name, NO_OWNER, len(payload)), payload))


def find_recording(what: Any) -> bytes | None:
    """What an earlier process has recorded for a call that is found by this; None if there is nothing."""
    found = process_store()
    if found is None:
        return None
    store, own = found
    entry = store.find(own.recording_key(what))
    return None if entry is None else entry.payload


def keep_recording(what: Any, name: str, function: str, payload: bytes) -> None:
    """Keep a recorded call for later processes, instead of what was there for calls that are found by the same."""
    found = process_store()
    if found is not None:
        store, own = found
        key = own.recording_key(what)
        store.keep(CacheEntry(own.header(key, RECORDING, name, CodeOwner(function), len(payload)), payload))


def machine() -> str:
    """What measured times depend on, besides the number of threads."""
    return identity().machine
