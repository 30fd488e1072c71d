"""A whole cache as one file, to be moved to another machine.

In: a path. Out: a zip file of entries, or what became of its entries here. What always holds: names inside a file
decide nothing, so that no entry leaves the directory; each entry is checked as one on disk is, before it is kept; what
this machine or this version cannot use is left out; sizes are bounded before anything is unpacked. A bundle is machine
code: its checksums tell of damage, not of who made it.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ingot.base.errors import CacheError
from ingot.runtime.disk_cache.directory import Untrusted
from ingot.runtime.disk_cache.entries import MOST_BYTES, CacheEntry, DamagedEntry, decode, encode
from ingot.runtime.disk_cache.identity import identity
from ingot.runtime.disk_cache.process import opened
from ingot.runtime.disk_cache.store import SUFFIX, DiskStore

MOST_ENTRIES = 1 << 20
"""The most entries that one file may have."""


@dataclass(frozen=True, slots=True)
class SavedCache:
    """What `save_cache` has written."""

    entries: int
    bytes: int
    """Of the file."""
    damaged: int
    """Entries that were left out because they are damaged."""


@dataclass(frozen=True, slots=True)
class LoadedCache:
    """What became of the entries of a file."""

    loaded: int
    other_cpus: int
    """Left out: for a processor, or a machine, that is not this one."""
    other_versions: int
    """Left out: made by another version of ingot, LLVM, or where it counts Python or torch."""
    damaged: int


def cache() -> DiskStore:
    """The cache that the environment names; a `CacheError` says why there is none."""
    try:
        return opened()
    except Untrusted as error:
        raise CacheError(f"there is no cache: {error}") from None


def save_cache(path: str | os.PathLike[str]) -> SavedCache:
    """Write everything that the cache holds to one file, which `load_cache` takes on another machine."""
    store, target = cache(), Path(path)
    unfinished = target.with_name(f"{target.name}.{uuid4().hex}.unfinished")
    try:
        entries, damaged = _write(store, unfinished)
        os.replace(unfinished, target)
        return SavedCache(entries, target.stat().st_size, damaged)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CacheError(f"the cache cannot be written to {target}: {error}") from error


def _write(store: DiskStore, path: Path) -> tuple[int, int]:
    counts = {"whole": 0, "damaged": 0}

    def entries() -> Iterator[CacheEntry]:
        for found in store.files():
            try:
                entry = store.read(found)
            except DamagedEntry:
                counts["damaged"] += 1
                continue
            counts["whole"] += 1
            yield entry

    with open(path, "xb") as file:
        write_entries(file, entries())
        file.flush()
        os.fsync(file.fileno())
    return counts["whole"], counts["damaged"]


def write_entries(file: BinaryIO, entries: Iterable[CacheEntry]) -> None:
    """Write entries as `take_entries` reads them."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for entry in entries:
            bundle.writestr(zipfile.ZipInfo(entry.header.key + SUFFIX), encode(entry), zipfile.ZIP_DEFLATED)


def load_cache(path: str | os.PathLike[str]) -> LoadedCache:
    """Take the entries of a file that `save_cache` has written into the cache. Load only files whose maker you trust:
    they hold machine code, which is run."""
    store = cache()
    try:
        with open(path, "rb") as file:
            return take_entries(store, file, replaces=True)
    except (OSError, zipfile.BadZipFile) as error:
        raise CacheError(f"{path} cannot be read as a cache that was saved: {error}") from error


def take_entries(store: DiskStore, file: BinaryIO, replaces: bool) -> LoadedCache:
    """Take entries that `write_entries` wrote into a store; those whose keys it has already, only if they are to
    replace what it has."""
    counts = {"loaded": 0, "cpu": 0, "version": 0, "damaged": 0}
    with zipfile.ZipFile(file) as bundle:
        listed = bundle.infolist()
        if len(listed) > MOST_ENTRIES:
            raise CacheError(f"there are {len(listed)} entries, more than in any cache")
        for info in listed:
            counts[_take(store, bundle, info, replaces)] += 1
    store.sweep()
    return LoadedCache(counts["loaded"], counts["cpu"], counts["version"], counts["damaged"])


def _take(store: DiskStore, bundle: zipfile.ZipFile, info: zipfile.ZipInfo, replaces: bool) -> str:
    """Keep one entry; what became of it."""
    try:
        if info.file_size > MOST_BYTES:
            raise DamagedEntry("it is too large")
        with bundle.open(info) as file:  # what it says of its size need not be so
            content = file.read(MOST_BYTES + 1)
        entry = decode(content)
    except (DamagedEntry, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return "damaged"  # the last two: compressed or encrypted in a way that no saved cache is
    reason = identity().foreign_part(entry.header)
    if reason is not None:
        return reason
    is_there = not replaces and store.path(entry.header.key).exists()
    if not is_there and not store.keep(entry):
        raise CacheError(f"entries cannot be written to {store.directory}, or are larger than INGOT_CACHE_LIMIT")
    return "loaded"
