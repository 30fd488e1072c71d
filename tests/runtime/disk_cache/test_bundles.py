"""Moving a cache as one file."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import ingot
from ingot.base.environment_variables import EnvironmentVariables
from ingot.base.errors import CacheError, ConfigError
from ingot.runtime.disk_cache import bundles
from ingot.runtime.disk_cache.bundles import LoadedCache
from ingot.runtime.disk_cache.entries import NO_OWNER, CacheEntry, decode, encode
from ingot.runtime.disk_cache.identity import MEASUREMENT, identity
from ingot.runtime.disk_cache.store import DiskStore
from tests.runtime.disk_cache.sources import LIMIT, code_of, fetched, path_of


@pytest.fixture
def there(tmp_path: Path) -> DiskStore:
    """The cache of the machine that a bundle comes from."""
    return DiskStore(tmp_path / "there", LIMIT)


@pytest.fixture
def here(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "here", LIMIT)


def use(monkeypatch: pytest.MonkeyPatch, store: DiskStore) -> None:
    monkeypatch.setattr(bundles, "opened", lambda: store)


def test_a_cache_is_moved_as_one_file(monkeypatch, tmp_path, there, here):
    for text in "abc":
        fetched(there, text)
    path_of(there, "c").write_bytes(b"damaged")
    use(monkeypatch, there)
    saved = ingot.save_cache(tmp_path / "bundle")
    assert (saved.entries, saved.damaged) == (2, 1) and saved.bytes == (tmp_path / "bundle").stat().st_size
    use(monkeypatch, here)
    assert ingot.load_cache(tmp_path / "bundle") == LoadedCache(2, 0, 0, 0)
    assert fetched(here, "a") == (code_of("a"), False)
    assert fetched(here, "c") == (code_of("c"), True)


def test_what_this_machine_cannot_use_is_counted_and_left_out(monkeypatch, tmp_path, here):
    own = identity()
    header = own.header("a" * 64, "kernel", "", NO_OWNER, 4)
    measured = own.header("b" * 64, MEASUREMENT, "", NO_OWNER, 4)
    native = own.header("c" * 64, "native routines", "", NO_OWNER, 4)
    headers = [
        replace(header, cpu="other"),
        replace(header, features="other"),
        replace(measured, features=own.features),  # another machine with the same processor
        replace(header, ingot="0.0.1"),
        replace(header, llvm="1.2.3"),
        replace(native, torch="1.0"),
        replace(header, torch="1.0"),  # kernels do not care
        measured,
    ]
    whole = [encode(CacheEntry(one, b"code")) for one in headers]
    with zipfile.ZipFile(tmp_path / "bundle", "w") as bundle:
        for number, content in enumerate([*whole, b"", whole[0][:-1], b"x" * 99]):
            bundle.writestr(f"../../{number}.entry", content)
    use(monkeypatch, here)
    assert ingot.load_cache(tmp_path / "bundle") == LoadedCache(2, other_cpus=3, other_versions=3, damaged=3)
    assert sorted(path.name[0] for path in here.directory.iterdir()) == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "here"]


def test_a_file_that_is_larger_than_it_says_or_compressed_otherwise_is_damaged(monkeypatch, tmp_path, here):
    monkeypatch.setattr(bundles, "MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "bundle", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("a", b"x" * 10**6)
    content = bytearray((tmp_path / "bundle").read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = (10).to_bytes(4, "little")  # the size that the directory states
    (tmp_path / "short").write_bytes(content)
    use(monkeypatch, here)
    assert ingot.load_cache(tmp_path / "bundle").damaged == 1
    assert ingot.load_cache(tmp_path / "short").damaged == 1


def test_faults_of_the_user_are_told(monkeypatch, tmp_path, here):
    use(monkeypatch, here)
    (tmp_path / "text").write_text("no bundle")
    with pytest.raises(CacheError, match="cannot be read as a cache that was saved"):
        ingot.load_cache(tmp_path / "text")
    with pytest.raises(CacheError, match="cannot be read"):
        ingot.load_cache(tmp_path / "missing")
    with pytest.raises(CacheError, match="cannot be written"):
        ingot.save_cache(tmp_path / "missing" / "bundle")
    assert decode(encode(CacheEntry(identity().header("a" * 64, "kernel", "", NO_OWNER, 0), b""))).payload == b""


def test_the_environment_says_where_and_how_much():
    read = EnvironmentVariables.read
    assert read({"HOME": "/home/me"}).cache_directory == Path("/home/me/.cache/ingot")
    assert read({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}).cache_directory == Path("/fast/ingot")
    assert read({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}).cache_directory == Path("/home/me/.cache/ingot")
    assert read({"HOME": "/home/me", "INGOT_CACHE_DIR": "/mine"}).cache_directory == Path("/mine")
    assert read({"HOME": "/home/me", "INGOT_CACHE_DIR": ""}).cache_directory is None
    assert read({}).cache_directory is None
    assert read({}).cache_limit == 10**9 and read({"INGOT_CACHE_LIMIT": "1.5 MB"}).cache_limit == 1_500_000
    for wrong in ("much", "1XB", "-1"):
        with pytest.raises(ConfigError, match="number of bytes"):
            read({"INGOT_CACHE_LIMIT": wrong})
