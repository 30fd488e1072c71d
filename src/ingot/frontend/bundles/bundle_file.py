"""A bundle on disk: one zip file with a manifest, the texts of traces, and the weights.

    manifest.json          what the bundle is, how it is called, which tensors it has
    traces/0.txt ...       one text for each recording
    weights.safetensors    the memory of all tensors, stored as it is
    kernels.cache          where asked for: machine code, as `ingot.save_cache` writes it

In: the parts. Out: the file, and back. Files are written beside their place and moved there when they are whole. Files
that are read may come from anyone: entries are known by exact names and read into memory, never unpacked to disk, and
no entry is larger than it may be. Machine code is read by a function of its own, from files that nobody but this user
can write to.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ingot.base.errors import BundleError
from ingot.runtime.disk_cache.directory import open_trusted

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
KERNELS = "kernels.cache"
MOST_RECORDINGS = 64
_MOST_TEXT = 64 << 20
"""The longest manifest or trace, in bytes."""
_MOST_KERNELS = 1 << 28
"""The most machine code, in bytes."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""What the entries of a bundle are dated, so that equal bundles are equal files."""


@dataclass(frozen=True, slots=True)
class BundleParts:
    """What a bundle is made of."""

    manifest: str
    traces: tuple[str, ...]
    weights: bytes
    kernels: bytes | None = None
    """To be written: machine code as `ingot.save_cache` writes it. `read_kernels` reads it."""
    has_kernels: bool = False
    """Whether a file that was read holds machine code."""


def write_bundle(path: str | os.PathLike[str], parts: BundleParts) -> None:
    """Write a bundle; an interrupted write leaves the file that was there."""
    place = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    except OSError as error:
        raise BundleError(f"a bundle cannot be written to {place}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            _add(archive, MANIFEST, parts.manifest.encode(), zipfile.ZIP_DEFLATED)
            for number, text in enumerate(parts.traces):
                _add(archive, f"traces/{number}.txt", text.encode(), zipfile.ZIP_DEFLATED)
            _add(archive, WEIGHTS, parts.weights, zipfile.ZIP_STORED)
            if parts.kernels is not None:
                _add(archive, KERNELS, parts.kernels, zipfile.ZIP_STORED)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # as any file that a program writes
        os.replace(name, place)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise BundleError(f"a bundle cannot be written to {place}: {error.strerror or error}") from error
        raise


def _add(archive: zipfile.ZipFile, name: str, data: bytes, compression: int) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = compression
    archive.writestr(entry, data)


def read_bundle(path: str | os.PathLike[str]) -> BundleParts:
    """The parts of a bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except BundleError as error:
        raise error.within(f"the bundle {os.fspath(path)}") from None
    except OSError as error:
        raise BundleError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # zipfile has errors of many kinds for damaged files, struct's and zlib's among them
        raise BundleError(f"{os.fspath(path)} is not a bundle, or is damaged: {error}") from error


def _read(archive: zipfile.ZipFile) -> BundleParts:
    entries = archive.infolist()
    has_kernels = KERNELS in {entry.filename for entry in entries}
    names = [entry.filename for entry in entries if entry.filename != KERNELS]
    count = len(names) - 2
    expected = {MANIFEST, WEIGHTS, *(f"traces/{number}.txt" for number in range(min(count, MOST_RECORDINGS)))}
    if count < 1 or set(names) != expected or len(set(names)) < len(names) or len(entries) > len(names) + 1:
        raise BundleError(
            f"a bundle holds {MANIFEST}, {WEIGHTS}, 1 to {MOST_RECORDINGS} traces, perhaps {KERNELS}, and nothing else"
        )
    by_name = {entry.filename: entry for entry in entries}
    traces = tuple(_text(archive, by_name[f"traces/{number}.txt"]) for number in range(count))
    weights = by_name[WEIGHTS]
    if weights.compress_type != zipfile.ZIP_STORED or weights.file_size != weights.compress_size:
        raise BundleError(f"{WEIGHTS} must be stored without compression")
    return BundleParts(_text(archive, by_name[MANIFEST]), traces, archive.read(weights), has_kernels=has_kernels)


def read_kernels(path: str | os.PathLike[str]) -> bytes:
    """The machine code of a bundle; `Untrusted` where others could have written it, other errors where the file is
    damaged."""
    with open_trusted(Path(path)) as file, zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(KERNELS)
        if entry.file_size > _MOST_KERNELS:
            raise BundleError(f"{KERNELS} is larger than {_MOST_KERNELS >> 20} MB")
        with archive.open(entry) as content:
            return content.read(_MOST_KERNELS + 1)


def _text(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    if entry.file_size > _MOST_TEXT:
        raise BundleError(f"{entry.filename} is larger than {_MOST_TEXT >> 20} MB")
    with archive.open(entry) as file:
        data = file.read(_MOST_TEXT + 1)
    if len(data) != entry.file_size:
        raise BundleError(f"{entry.filename} has another length than the bundle says")
    return data.decode()
