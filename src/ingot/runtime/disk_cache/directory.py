"""Which directory holds machine code that may be run: one that nobody else can write to.

In: a path. Out: the directory, made if need be, or `Untrusted`, which says why not. What always holds: the directory is
this user's own, others cannot write to it, and nobody but this user and root can put another one in its place: that
holds for every directory above it, as ssh asks of the directories of its keys. Where others may make files of their own
above it, as in /tmp, only the owner can remove them, and this directory must be closed to others altogether.

Files are opened without following links, and must be this user's own. So must files outside the cache that code is
taken from, and the directories that they are in.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ingot.runtime.disk_cache.entries import MOST_BYTES

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_DO = stat.S_IRWXG | stat.S_IRWXO


class Untrusted(Exception):
    """Why a directory or a file is not used."""


def trusted_directory(path: Path) -> Path:
    """The directory, without links on the way to it. Missing ones are made, for this user alone."""
    _require_one_user()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = Path(os.path.realpath(path))
        _check(found)
    except (OSError, ValueError) as error:
        raise Untrusted(f"{path}: {error}") from None
    return found


def _require_one_user() -> None:
    if not hasattr(os, "geteuid"):
        raise Untrusted("this system does not tell whose files are whose")
    if os.geteuid() != os.getuid():
        raise Untrusted("this process has the rights of another user")


def _check(directory: Path) -> None:
    own = os.stat(directory)
    if not stat.S_ISDIR(own.st_mode):
        raise Untrusted(f"{directory} is not a directory")
    if own.st_uid != os.geteuid():
        raise Untrusted(f"{directory} belongs to another user")
    if own.st_mode & _OTHERS_WRITE:
        raise Untrusted(f"others can write to {directory}; chmod 700 would change that")
    for parent in directory.parents:
        above = os.stat(parent)
        if above.st_uid not in (0, os.geteuid()):
            raise Untrusted(f"{parent}, above {directory}, belongs to another user")
        if not above.st_mode & _OTHERS_WRITE:
            continue
        if not above.st_mode & stat.S_ISVTX:
            raise Untrusted(f"others can write to {parent}, above {directory}")
        if own.st_mode & _OTHERS_DO:
            raise Untrusted(f"others can write to {parent}, so {directory} must be closed to them (chmod 700)")


def read_own(path: Path) -> bytes:
    """The content of a file of this user's. A file that is not there is FileNotFoundError, a link an OSError."""
    descriptor = _opened(path)
    with open(descriptor, "rb") as file:
        if _required_own(descriptor).st_size > MOST_BYTES:
            raise Untrusted("it is too large")
        return file.read(MOST_BYTES + 1)


def open_trusted(path: Path) -> BinaryIO:
    """A file that only this user can write to, in a directory of which the same is so, open to be read. The path may be
    a link to it."""
    _require_one_user()
    try:
        found = Path(os.path.realpath(path))
        _check(found.parent)
        descriptor = _opened(found)
    except (OSError, ValueError) as error:
        raise Untrusted(f"{path}: {error}") from None
    try:
        _required_own(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _required_own(descriptor: int) -> os.stat_result:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise Untrusted("it is not a plain file")
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise Untrusted("others can write to it")
    return found
