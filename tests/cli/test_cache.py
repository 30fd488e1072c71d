"""`ingot cache`, as users type it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ingot.base.errors import CacheError
from ingot.cli.main import commands
from ingot.runtime.disk_cache import bundles
from ingot.runtime.disk_cache.store import DiskStore
from tests.runtime.disk_cache.sources import LIMIT, fetched, path_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskStore:
    store = DiskStore(tmp_path / "cache", LIMIT)
    monkeypatch.setattr(bundles, "opened", lambda: store)
    return store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["cache", *arguments])


def test_entries_are_listed_and_shown(store):
    assert "0 entries" in run("list").output
    fetched(store, "a")
    key = path_of(store, "a").stem
    assert key[:12] in run("list").output and "1 entry, " in run("list").output
    (told,) = json.loads(run("list", "--json").output)["entries"]
    assert told["name"] == "name of a" and told["function"] == "module.function" and told["usable_here"]
    assert json.loads(run("show", key[:8], "--json").output)["key"] == key
    assert "name of a" in run("show", key).output
    assert isinstance(run("show", "z").exception, CacheError)


def test_verify_exits_with_1_if_something_is_damaged(store):
    fetched(store, "a")
    fetched(store, "b")
    assert run("verify").exit_code == 0 and "2 of 2" in run("verify").output
    path_of(store, "b").write_bytes(b"")
    assert run("verify").exit_code == 1 and "it is empty" in run("verify").output
    assert list(json.loads(run("verify", "--json").output)["damaged"]) == [path_of(store, "b").stem]
    assert "damaged" in run("list").output


def test_a_cache_is_exported_cleared_and_imported(store, tmp_path):
    fetched(store, "a")
    bundle = str(tmp_path / "bundle")
    assert json.loads(run("export", bundle, "--json").output)["entries"] == 1
    assert "removed 1" in run("clear").output and not store.files()
    done = run("import", bundle)
    assert done.exit_code == 0 and "loaded 1" in done.output and len(store.files()) == 1
    assert json.loads(run("import", bundle, "--json").output)["loaded"] == 1


def test_every_subcommand_has_help():
    for name in ("list", "show", "verify", "clear", "export", "import"):
        assert run(name, "--help").exit_code == 0 and "--json" in run(name, "--help").output
