"""One file of the cache: a line of checksums, a header that people can read, and bytes.

    ingot-cache 2 <SHA-256 of everything after this line>
    {"bytes": 4711, "kind": "kernel", "key": "...", ...}
    <the payload>

In: bytes from a file, or a header and a payload. Out: a `CacheEntry`, or `DamagedEntry`, which says what is wrong. What
always holds: an entry that is given out has been written as it is, as a whole, under its own key. Nothing in it is run
to find that out. A checksum tells of damage, not of malice: `directory` keeps other users out.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any

FORMAT = 2
"""Files of another format are not read."""
MOST_BYTES = 1 << 28
"""The largest file that is taken for an entry."""
_MAGIC = b"ingot-cache "
_MOST_HEADER_BYTES = 1 << 16


class DamagedEntry(Exception):
    """What was read is not an entry, or not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Header:
    """What people and programs can know of an entry without its payload."""

    key: str
    """What it is found by: a hash of everything that decides about the payload."""
    kind: str
    name: str
    """What it is, in words: the operations of a kernel."""
    function: str | None
    """Module and qualified name of the user's function that it was first made for, where one is known."""
    graph: str | None
    """The beginning of the hash of the graph that it was first made for."""
    config: str | None
    """The beginning of a hash of the configuration under which that was compiled."""
    ingot: str
    compiler: str
    """A hash of the part of ingot that turns text into code."""
    llvm: str
    python: str
    torch: str
    triple: str
    cpu: str
    features: str
    """A hash of what the processor can do; for results of measuring, of the machine."""
    created: str
    bytes: int
    """Of the payload."""

    @staticmethod
    def read(found: Any) -> Header:
        """A header from parsed JSON: exactly these fields, each of its type."""
        if not isinstance(found, dict) or set(found) != set(_FIELDS):
            raise DamagedEntry("its header has other fields")
        for name, type_ in _FIELDS.items():
            value = found[name]
            is_right = type(value) is int and value >= 0 if type_ == "int" else isinstance(value, str)
            if not is_right and not (type_ == "str | None" and value is None):
                raise DamagedEntry(f"its header's {name} is {value!r}")
        if not is_key(found["key"]):
            raise DamagedEntry("its header's key is none")
        return Header(**found)


_FIELDS = {field.name: field.type for field in fields(Header)}


@dataclass(frozen=True, slots=True)
class CodeOwner:
    """What code was first made for. It decides nothing about the code."""

    function: str | None = None
    graph: str | None = None
    config: str | None = None


NO_OWNER = CodeOwner()


@dataclass(frozen=True, slots=True)
class CacheEntry:
    header: Header
    payload: bytes


def is_key(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def now() -> str:
    """The time as headers have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def encode(entry: CacheEntry) -> bytes:
    """The bytes of a file."""
    header = json.dumps(asdict(entry.header), sort_keys=True).encode()
    rest = header + b"\n" + entry.payload
    return _MAGIC + f"{FORMAT} {sha256(rest).hexdigest()}\n".encode() + rest


def decode(content: bytes, key: str | None = None) -> CacheEntry:
    """The entry in a file's bytes, which must be that of a key if one is given."""
    first, _, rest = content.partition(b"\n")
    words = first.split(b" ")
    if not first.startswith(_MAGIC) or len(words) != 3:
        raise DamagedEntry("it does not begin as entries do" if content else "it is empty")
    if words[1] != str(FORMAT).encode():
        raise DamagedEntry("it has another format")
    if sha256(rest).hexdigest().encode() != words[2]:
        raise DamagedEntry("its checksum is wrong")
    text, _, payload = rest.partition(b"\n")
    try:
        header = Header.read(json.loads(text[:_MOST_HEADER_BYTES]))
    except (ValueError, RecursionError) as error:
        raise DamagedEntry(f"its header is not JSON: {error}") from None
    if header.bytes != len(payload):
        raise DamagedEntry("its length is wrong")
    if key is not None and header.key != key:
        raise DamagedEntry("it belongs to another key")
    return CacheEntry(header, payload)
