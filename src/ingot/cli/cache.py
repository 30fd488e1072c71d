"""`ingot cache`: what the cache on disk holds, whether it is whole, and how to move it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ingot.base.errors import CacheError
from ingot.runtime.disk_cache.bundles import cache as opened_cache
from ingot.runtime.disk_cache.bundles import load_cache, save_cache
from ingot.runtime.disk_cache.entries import CacheEntry, DamagedEntry
from ingot.runtime.disk_cache.identity import identity
from ingot.runtime.disk_cache.store import DiskStore, EntryFile

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, for programs.")


@click.group()
def cache() -> None:
    """Look at the compiled kernels kept on disk, check them, move them, remove them.

    They are in INGOT_CACHE_DIR, or in ingot's folder below XDG_CACHE_HOME or ~/.cache, and take at most
    INGOT_CACHE_LIMIT (1GB). INGOT_CACHE_DIR set to nothing keeps nothing.
    """


def _read(store: DiskStore, file: EntryFile) -> CacheEntry | DamagedEntry:
    try:
        return store.read(file)
    except DamagedEntry as error:
        return error


def _told(store: DiskStore, file: EntryFile) -> dict[str, Any]:
    """An entry as plain data."""
    entry = _read(store, file)
    known: dict[str, Any] = {"key": file.key, "file_bytes": file.bytes, "used": _moment(file.used)}
    if isinstance(entry, DamagedEntry):
        return {**known, "damage": str(entry)}
    return {
        **asdict(entry.header),
        **known,
        "damage": None,
        "usable_here": identity().foreign_part(entry.header) is None,
    }


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@cache.command(name="list")
@_as_json
def list_command(as_json: bool) -> None:
    """List everything that is kept, what was used last first."""
    store = opened_cache()
    told = [_told(store, file) for file in store.files()]
    total = sum(one["file_bytes"] for one in told)
    if as_json:
        click.echo(json.dumps({"directory": str(store.directory), "bytes": total, "entries": told}, indent=2))
        return
    listing = Table("key", "kind", expand=True)
    listing.add_column("name", ratio=2, no_wrap=True)
    listing.add_column("function", ratio=1, no_wrap=True)
    listing.add_column("bytes", justify="right")
    listing.add_column("here")
    for one in told:
        damage = one["damage"]
        name = f"damaged: {damage}" if damage else one["name"]
        usable = "damaged" if damage else "usable" if one["usable_here"] else "foreign"
        words = (one.get("kind", ""), name, one.get("function") or "", f"{one['file_bytes']:,}", usable)
        listing.add_row(one["key"][:12], *map(escape, words))
    if told:
        Console(file=sys.stdout, highlight=False).print(listing)
    count = f"{len(told)} {'entry' if len(told) == 1 else 'entries'}"
    click.echo(f"{count}, {total:,} of at most {store.limit:,} bytes, in {store.directory}")


@cache.command()
@click.argument("key")
@_as_json
def show(key: str, as_json: bool) -> None:
    """Tell everything about the entry whose key begins with KEY."""
    store = opened_cache()
    found = [file for file in store.files() if file.key.startswith(key)]
    if len(found) != 1:
        many = f"{len(found)} entries begin" if found else "no entry begins"
        raise CacheError(f"{many} with {key!r}; `ingot cache list` shows their keys")
    told = {**_told(store, found[0]), "file": str(found[0].path)}
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        click.echo(f"{name:12} {'' if value is None else value}")


@cache.command()
@_as_json
def verify(as_json: bool) -> None:
    """Check that every entry is whole. The exit status is 1 if one is not.

    What is damaged is never used: it is compiled again, and replaced.
    """
    store = opened_cache()
    files = store.files()
    damaged = {file.key: str(read) for file in files if isinstance(read := _read(store, file), DamagedEntry)}
    if as_json:
        click.echo(json.dumps({"entries": len(files), "damaged": damaged}, indent=2))
    else:
        for key, reason in damaged.items():
            click.echo(f"{key[:12]} is damaged: {reason}")
        click.echo(f"{len(files) - len(damaged)} of {len(files)} entries are whole")
    sys.exit(1 if damaged else 0)


@cache.command()
@_as_json
def clear(as_json: bool) -> None:
    """Remove everything that is kept. Running processes go on; they keep what they have in memory."""
    store = opened_cache()
    removed = store.clear()
    left = len(store.files())
    if as_json:
        click.echo(json.dumps({"removed": removed - left, "left": left}))
    else:
        click.echo(f"removed {removed - left} entries from {store.directory}")
    if left:
        raise CacheError(f"{left} entries could not be removed from {store.directory}")


@cache.command(name="export")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@_as_json
def export_command(path: Path, as_json: bool) -> None:
    """Write the whole cache to one file, for another machine."""
    saved = save_cache(path)
    if as_json:
        click.echo(json.dumps(asdict(saved)))
        return
    click.echo(f"wrote {saved.entries} entries to {path}, {saved.bytes:,} bytes")
    if saved.damaged:
        click.echo(f"left out {saved.damaged} damaged entries", err=True)


@cache.command(name="import")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@_as_json
def import_command(path: Path, as_json: bool) -> None:
    """Take the entries of a file that `ingot cache export` has written.

    It holds machine code: import only what you would run. The exit status is 1 if an entry is damaged.
    """
    loaded = load_cache(path)
    if as_json:
        click.echo(json.dumps(asdict(loaded)))
    else:
        click.echo(f"loaded {loaded.loaded} entries")
        for count, reason in (
            (loaded.other_cpus, "are for another processor"),
            (loaded.other_versions, "are of another version"),
            (loaded.damaged, "are damaged"),
        ):
            if count:
                click.echo(f"left out {count}, which {reason}", err=True)
    sys.exit(1 if loaded.damaged else 0)
