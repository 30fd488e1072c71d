"""Whatever happens to the files of the cache, code is right, nothing is raised, and one line says what happened."""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingot.runtime.disk_cache import store as store_module
from ingot.runtime.disk_cache.directory import Untrusted
from ingot.runtime.disk_cache.entries import NO_OWNER, CacheEntry, DamagedEntry, decode, encode
from ingot.runtime.disk_cache.identity import identity
from ingot.runtime.disk_cache.store import DiskStore
from tests.runtime.disk_cache.sources import LIMIT, code_of, fetched, path_of, source

KILLS = max(5, int(os.environ.get("INGOT_TEST_EXAMPLES", "0")) // 25)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(store_module, "log", lambda subject, text: lines.append(text))
    return lines


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "cache", LIMIT)


def _flipped(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]


def _of_other_version(content: bytes) -> bytes:
    """Another version's entry under this name, whole: only its key tells."""
    entry = decode(content)
    return encode(replace(entry, header=replace(entry.header, ingot="0.0.9", key="0" * 64)))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "cut inside the first line": lambda content: content[:20],
    "cut inside the header": lambda content: content[:200],
    "cut inside the code": lambda content: content[:-100],
    "longer": lambda content: content + b"x",
    "a bit of the code flipped": _flipped,
    "a bit of the header flipped": lambda content: content[:90] + bytes([content[90] ^ 1]) + content[91:],
    "another format": lambda content: content.replace(b"ingot-cache 2 ", b"ingot-cache 1 ", 1),
    "something else": lambda content: b"#!/bin/sh\necho no\n" * 99,
    "another version's": _of_other_version,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_a_miss_that_mends_itself(store, logged, damage):
    assert fetched(store, "a") == (code_of("a"), True)
    path = path_of(store, "a")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert fetched(store, "a") == (code_of("a"), True)
    assert len(logged) == 1 and path.name in logged[0]
    assert fetched(store, "a") == (code_of("a"), False)


def test_an_entry_under_the_name_of_another_is_not_used(store, logged):
    fetched(store, "a")
    fetched(store, "b")
    shutil.copy(path_of(store, "a"), path_of(store, "b"))
    assert fetched(store, "b") == (code_of("b"), True)
    assert len(logged) == 1 and "belongs to another key" in logged[0]


@pytest.mark.parametrize("make", ["link", "pipe", "directory", "writable"])
def test_what_is_not_a_plain_file_of_ones_own_is_not_used(store, logged, make, tmp_path):
    fetched(store, "a")
    path, elsewhere = path_of(store, "a"), tmp_path / "elsewhere"
    path.rename(elsewhere)
    if make == "link":
        path.symlink_to(elsewhere)
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "directory":
        path.mkdir()
    else:
        shutil.copy(elsewhere, path)
        path.chmod(0o622)
    assert fetched(store, "a") == (code_of("a"), True)
    assert "is not used" in logged[0]


def test_a_file_that_cannot_be_read_is_a_miss(store, logged, monkeypatch):
    fetched(store, "a")

    def refuse(path: Any) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "read_own", refuse)
        assert fetched(store, "a") == (code_of("a"), True)
    assert len(logged) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_is_compiled_and_said_once(store, logged, monkeypatch, number):
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_module.os, "rename", refuse)
    for text in ("a", "b", "a"):
        assert fetched(store, text) == (code_of(text), True)
    assert len(logged) == 1 and os.strerror(number) in logged[0]
    assert not list(store.directory.iterdir())


def test_a_directory_that_is_removed_meanwhile_is_made_again(store, logged):
    fetched(store, "a")
    shutil.rmtree(store.directory)
    assert fetched(store, "a") == (code_of("a"), True)
    assert fetched(store, "a") == (code_of("a"), False)
    assert not logged and store.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path, mode):
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(Untrusted, match="others can write to"):
        DiskStore(directory, LIMIT)


def test_a_directory_below_one_that_others_can_write_to_is_refused_unless_only_owners_remove(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(Untrusted, match="above"):
        DiskStore(parent / "cache", LIMIT)
    parent.chmod(0o1777)
    DiskStore(parent / "cache", LIMIT)
    (parent / "cache").chmod(0o755)
    with pytest.raises(Untrusted, match="must be closed"):
        DiskStore(parent / "cache", LIMIT)


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    DiskStore(tmp_path / "cache", LIMIT)
    monkeypatch.setattr("ingot.runtime.disk_cache.directory.os.geteuid", lambda: 12345)
    with pytest.raises(Untrusted, match="rights of another user"):
        DiskStore(tmp_path / "cache", LIMIT)
    monkeypatch.setattr("ingot.runtime.disk_cache.directory.os.getuid", lambda: 12345)
    with pytest.raises(Untrusted, match="belongs to another user"):
        DiskStore(tmp_path / "cache", LIMIT)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(Untrusted):
        DiskStore(tmp_path / "cache", LIMIT)


def test_what_was_used_longest_ago_goes_first(tmp_path):
    store = DiskStore(tmp_path / "cache", 40_000)
    for age, text in enumerate("abcdefgh"):  # about 3500 bytes each
        fetched(store, text)
        os.utime(path_of(store, text), (0, time.time() - 1000 + age))
    fetched(store, "a")  # a use
    store.limit = 15_000
    store.sweep()
    assert sum(file.bytes for file in store.files()) <= 15_000
    assert path_of(store, "a").exists() and path_of(store, "h").exists() and not path_of(store, "b").exists()


def test_what_ended_processes_have_left_goes_and_what_is_being_written_stays(store):
    old, new, other = (store.directory / name for name in ("1-1-a.unfinished", "1-1-b.unfinished", "notes.txt"))
    for path in (old, new, other):
        path.write_text("half")
    os.utime(old, (0, time.time() - 7200))
    store.sweep()
    assert not old.exists() and new.exists() and other.exists()
    store.clear()
    assert not new.exists() and other.exists()


def test_processes_that_are_killed_while_they_write_leave_nothing_damaged(store):
    random = Random(20)
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            try:
                for number in range(10**9):
                    header = identity().header(f"{number % 40:064x}", "kernel", "", NO_OWNER, 200_000)
                    store.keep(CacheEntry(header, bytes([number % 251]) * 200_000))
            finally:
                os._exit(1)
        time.sleep(random.uniform(0.005, 0.04))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    files = store.files()
    assert files
    for file in files:
        store.read(file)  # raises if it is damaged
    left = [path for path in store.directory.iterdir() if path.name.endswith(".unfinished")]
    assert len(left) <= KILLS


def test_everything_that_changes_code_changes_its_key():
    own, plain = identity(), source("a")
    others = [
        source("b"),
        source("a", "products"),
        replace(plain, is_optimized=False),
        replace(plain, host=replace(plain.host, name="other")),
        replace(plain, host=replace(plain.host, features="+none")),
        replace(plain, host=replace(plain.host, level=2)),
    ]
    keys = {own.code_key(one) for one in (plain, *others)}
    keys |= {replace(own, **{part: "other"}).code_key(plain) for part in ("ingot", "compiler", "llvm")}
    assert len(keys) == 10
    assert own.code_key(replace(plain, name="other")) == own.code_key(plain)
    assert replace(own, torch="other").code_key(plain) == own.code_key(plain)
    native = source("a", "native routines")
    assert replace(own, torch="other").code_key(native) != own.code_key(native)


def test_a_header_of_other_fields_is_refused():
    entry = CacheEntry(identity().header("0" * 64, "kernel", "", NO_OWNER, 4), b"code")
    assert decode(encode(entry)) == entry
    wrong = encode(replace(entry, header=replace(entry.header, name=7)))  # type: ignore[arg-type]
    with pytest.raises(DamagedEntry, match="name is 7"):
        decode(wrong)
