"""Entries in a directory: one file for each key, bounded in bytes.

In: keys, headers and payloads. Out: payloads that were kept earlier, by this process or another. What always holds:

- A file has its name only once it is complete: it is written under another name, and renamed. Any number of processes
  and threads may do that for the same key; they write the same, and the last one stays.
- What is damaged counts as not there, and is removed. Nothing here raises: a full disk, a directory that is gone, or
  one that cannot be written to, ends in a line of `INGOT_LOGS=cache` and in code that is compiled again.
- What was used longest ago goes first. A use is the file's time of modification.

Files are not forced to the disk: after a loss of power some may be damaged, which their checksums tell.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.runtime.disk_cache.directory import Untrusted, read_own, trusted_directory
from ingot.runtime.disk_cache.entries import CacheEntry, DamagedEntry, decode, encode, is_key

SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
_ABANDONED_SECONDS = 3600
"""The age from which on an unfinished file is taken for that of a process which has ended."""
_FINE_SECONDS = 60
"""How finely uses are told apart: a file that was used in the last minute is not touched again."""
_KEPT_SHARE = 0.8
"""How full the directory is after files have gone."""
_SWEEP_BELOW = "08"
"""Keys that begin below this, one of 32, have the directory looked through when they are kept. Keys are hashes, so all
processes together look once for 32 entries, and none has to count."""


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A file of the cache, as the directory tells it."""

    path: Path
    key: str
    bytes: int
    used: float
    """When it was last used, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What this process has had of a store."""

    hits: int
    misses: int
    kept: int
    damaged: int


class DiskStore:
    """The entries of one directory."""

    def __init__(self, directory: Path, limit: int):
        """The directory is made, and must be trusted: `Untrusted` says why it is not."""
        self.directory = trusted_directory(directory)
        self.limit = limit
        self._is_full = False
        """Whether nothing more is written, because the last attempt failed."""
        self._counts = dict.fromkeys(StoreStatistics.__slots__, 0)
        self._lock = new_lock()

    @property
    def statistics(self) -> StoreStatistics:
        return StoreStatistics(**self._counts)

    def _count(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._counts[name] += 1

    def path(self, key: str) -> Path:
        assert is_key(key)
        return self.directory / (key + SUFFIX)

    # --- reading ------------------------------------------------------------------------------------------------------

    def find(self, key: str) -> CacheEntry | None:
        """The entry of a key, if it is there and whole."""
        path = self.path(key)
        try:
            entry = decode(read_own(path), key)
        except FileNotFoundError:
            self._count("misses")
            return None
        except (OSError, DamagedEntry, Untrusted) as error:
            self._discard(path, error)
            return None
        self._count("hits")
        self._note_use(path)
        return entry

    def has(self, key: str) -> bool:
        """Whether there is an entry of a key, whole or not."""
        return os.path.lexists(self.path(key))

    def _discard(self, path: Path, error: Exception) -> None:
        self._count("misses", "damaged")
        log("cache", f"{path.name} is not used: {error}")
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def _note_use(self, path: Path) -> None:
        with suppress(OSError):
            if time.time() - os.stat(path, follow_symlinks=False).st_mtime > _FINE_SECONDS:
                os.utime(path, follow_symlinks=False)

    # --- writing ------------------------------------------------------------------------------------------------------

    def keep(self, entry: CacheEntry) -> bool:
        """Write an entry under its key; whether that succeeded."""
        content = encode(entry)
        if self._is_full or len(content) > self.limit:
            return False
        try:
            self._write(self.path(entry.header.key), content)
            self._count("kept")
            if entry.header.key < _SWEEP_BELOW:
                self.sweep()
        except (OSError, Untrusted) as error:
            self._is_full = True
            log("cache", f"nothing more is kept in {self.directory}: {error}")
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self._write_and_rename(path, content)
        except FileNotFoundError:  # the directory was removed meanwhile
            trusted_directory(self.directory)
            self._write_and_rename(path, content)

    def _write_and_rename(self, path: Path, content: bytes) -> None:
        unfinished = self.directory / f"{os.getpid()}-{threading.get_ident()}-{uuid4().hex}{_UNFINISHED}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(unfinished, flags, 0o600)
            with open(descriptor, "wb") as file:
                if file.write(content) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    # --- everything there is ------------------------------------------------------------------------------------------

    def files(self) -> list[EntryFile]:
        """All entries, those used last first. Their content has not been looked at."""
        found = [file for file in self._scan() if is_key(file.key)]
        return sorted(found, key=lambda file: (-file.used, file.key))

    def _scan(self, suffix: str = SUFFIX) -> Iterator[EntryFile]:
        try:
            listing = list(os.scandir(self.directory))
        except FileNotFoundError:
            return
        for item in listing:
            if item.name.endswith(suffix):
                with suppress(OSError):  # it may have gone meanwhile
                    told = item.stat(follow_symlinks=False)
                    path = self.directory / item.name
                    yield EntryFile(path, item.name.removesuffix(suffix), told.st_size, told.st_mtime)

    def read(self, file: EntryFile) -> CacheEntry:
        """The entry of a file; `DamagedEntry` says what is wrong with it."""
        try:
            return decode(read_own(file.path), file.key)
        except (OSError, Untrusted) as error:
            raise DamagedEntry(str(error)) from None

    def sweep(self) -> None:
        """Remove what was used longest ago if there is too much, and what processes have left that were ended while
        they wrote."""
        for unfinished in self._scan(_UNFINISHED):
            if time.time() - unfinished.used > _ABANDONED_SECONDS:
                self.remove(unfinished)
        files = self.files()
        total = sum(file.bytes for file in files)
        if total <= self.limit:
            return
        for file in reversed(files):
            if total <= self.limit * _KEPT_SHARE:
                break
            self.remove(file)
            total -= file.bytes

    def remove(self, file: EntryFile) -> None:
        with suppress(OSError):
            file.path.unlink(missing_ok=True)

    def clear(self) -> int:
        """Remove everything that is the cache's; how many entries there were."""
        files = self.files()
        for file in (*files, *self._scan(_UNFINISHED)):
            self.remove(file)
        return len(files)
