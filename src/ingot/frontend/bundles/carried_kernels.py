"""Compiled kernels that a bundle carries, for machines like the one that saved it.

In: a program that was made of a bundle's parts, and calls of it; or a bundle's file. Out: the cache entries that the
calls have used, as one part of the file; or these entries in this user's cache, where compilers find them. What always
holds: nothing of it is read unless the user asks for that and the file is the user's own; each entry is checked as
`ingot.load_cache` checks it; and what cannot be used is compiled, with a line of `INGOT_LOGS=cache` that says why.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable

import torch

from ingot.base.errors import CacheError
from ingot.base.logs import log
from ingot.frontend.bundles.bundle_file import read_kernels
from ingot.frontend.bundles.loaded_program import LoadedProgram
from ingot.runtime.cpu.kept_code import kept_code
from ingot.runtime.disk_cache.bundles import take_entries, write_entries
from ingot.runtime.disk_cache.process import process_store

_CALLS = 4
"""How often an example is called: once to be recorded, once to be compiled, and until native code answers."""


def kernels_used(program: LoadedProgram, calls: list[Callable[[LoadedProgram], object]]) -> bytes:
    """What a program needs for calls like these, as a part of a file."""
    found = process_store()
    if found is None:
        raise CacheError(
            "kernels=True saves what the cache on disk holds, and there is no cache: INGOT_CACHE_DIR names none that "
            "can be used (INGOT_LOGS=cache says why)"
        )
    with torch.no_grad():
        for call in calls:
            for _ in range(_CALLS):
                call(program)
    modules = [module for recording in program.recordings for module in recording.function.compiler.modules()]
    entries = kept_code((kernel for module in modules for kernel in module.kernels()), *found)
    content = io.BytesIO()
    write_entries(content, entries)
    return content.getvalue()


def use_kernels(path: str | os.PathLike[str]) -> None:
    """Take what a bundle carries into this user's cache. Nothing here raises: what is not taken is compiled."""
    found = process_store()
    try:
        if found is None:
            raise CacheError("there is no cache on disk to take them into")
        taken = take_entries(found[0], io.BytesIO(read_kernels(path)), replaces=False)
    except Exception as error:  # zipfile has errors of many kinds for damaged files, struct's and zlib's among them
        log("cache", f"the kernels of {os.fspath(path)} are not used: {error}")
        return
    log(
        "cache",
        f"the kernels of {os.fspath(path)}: {taken.loaded} used, {taken.other_cpus} for other processors, "
        f"{taken.other_versions} of other versions, {taken.damaged} damaged",
    )
