"""What code depends on besides its text: versions, and the processor.

In: nothing but this process. Out: the key of a piece of code or of a measurement, the header that its entry gets, and
whether an entry from elsewhere is of any use here. What always holds: a key covers everything that can change what it
stands for, and nothing that differs between processes that could share it: no path, no address, no number of threads of
code. Two keys are equal only if all parts are: parts are hashed as JSON.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import torch
from llvmlite import binding

from ingot.base.version import __version__
from ingot.codegen.llvm import host as host_module
from ingot.codegen.llvm import object_code, unlocked
from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.object_code import CodeSource
from ingot.runtime.disk_cache.entries import FORMAT, CodeOwner, Header, now

MEASUREMENT = "measurement"
"""The kind of entries that hold what was measured."""
RECORDING = "recording"
"""The kind of entries that hold what a function was seen to do."""
RECIPE = "recipe"
"""The kind of entries that say which code is made of what, so that its text need not be written to find it."""
KERNEL = "kernel"
"""The kind of code that one program consists of."""
NATIVE = "native routines"
"""The kind of code that knows how Python's and torch's objects lie in memory."""
_COMPILER = (host_module, object_code, unlocked)
"""The modules between a text and its code: which passes run, and what LLVM is asked for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """This process, as far as code depends on it."""

    ingot: str
    compiler: str
    llvm: str
    python: str
    torch: str
    triple: str
    cpu: str
    features: str
    machine: str

    def foreign_part(self, header: Header) -> str | None:
        """What keeps an entry from being used here: "cpu", "version" or nothing."""
        is_measurement = header.kind == MEASUREMENT
        versions = [(header.ingot, self.ingot), (header.compiler, self.compiler), (header.llvm, self.llvm)]
        if is_measurement or header.kind in (NATIVE, RECORDING):
            versions += [(header.torch, self.torch), (header.python, self.python)]
        if any(theirs != ours for theirs, ours in versions):
            return "version"
        processor = (self.triple, self.cpu, self.machine if is_measurement else self.features)
        return None if (header.triple, header.cpu, header.features) == processor else "cpu"

    def header(self, key: str, kind: str, name: str, owner: CodeOwner, size: int) -> Header:
        features = self.machine if kind == MEASUREMENT else self.features
        versions = (self.ingot, self.compiler, self.llvm, self.python, self.torch)
        made_for = (owner.function, owner.graph, owner.config)
        return Header(key, kind, name, *made_for, *versions, self.triple, self.cpu, features, now(), size)

    def code_key(self, source: CodeSource) -> str:
        """The key of what LLVM makes of a source."""
        processor = (source.host.triple, source.host.name, source.host.features, source.host.level)
        parts = [source.kind, self.ingot, self.compiler, self.llvm, *processor, source.is_optimized, source.text]
        if source.kind == NATIVE:
            parts += [self.python, self.torch]
        return _digest(parts)

    def recipe_key(self, kind: str, recipe: str) -> str:
        """The key of what says which code a recipe gives here. Moved to another machine, such an entry is of no use:
        when files were written differs there. The code is, once it has been found by its text."""
        processor = (self.triple, self.cpu, self.features)
        return _digest([RECIPE, kind, self.ingot, self.compiler, self.llvm, *processor, _own_sources(), recipe])

    def measurement_key(self, subject: str, what: Any) -> str:
        """The key of what was measured on this machine; `what` is plain data."""
        versions = (self.ingot, self.compiler, self.llvm, self.python, self.torch)
        return _digest([MEASUREMENT, *versions, self.triple, self.cpu, self.machine, subject, what])

    def recording_key(self, what: Any) -> str:
        """The key of a recorded call; `what` is plain data."""
        versions = (self.ingot, self.python, self.torch)
        return _digest([RECORDING, *versions, self.triple, self.cpu, self.features, what])


_WRITERS = ("base", "codegen", "fusion", "ir", "loops", "ops")
"""The packages of ingot that write the text of code."""


@lru_cache(maxsize=1)
def _own_sources() -> str:
    """What tells versions of ingot's own sources apart, releases and those that are being worked on: the names, sizes
    and times of files. To read them would take longer than to write the text."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = []
    for package in _WRITERS:
        for folder, _, _ in os.walk(os.path.join(root, package)):
            for file in os.scandir(folder):
                if file.name.endswith(".py"):
                    told = file.stat()
                    found.append((file.path.removeprefix(root), told.st_size, told.st_mtime_ns))
    return _digest(sorted(found))


def _digest(parts: Any) -> str:
    return sha256(json.dumps([FORMAT, parts]).encode()).hexdigest()


@lru_cache(maxsize=1)
def identity() -> Identity:
    """Raises OSError where ingot's own files cannot be read."""
    processor = host()
    compiler = sha256()
    for module in _COMPILER:
        compiler.update(Path(str(module.__file__)).read_bytes())
    llvm = ".".join(map(str, binding.llvm_version_info))
    return Identity(
        __version__,
        compiler.hexdigest()[:16],
        f"{llvm}, llvmlite {llvmlite.__version__}",
        platform.python_version(),
        str(torch.__version__),
        processor.triple,
        processor.name,
        _digest(processor.features)[:16],
        _digest([_model_name(), processor.features, os.cpu_count()])[:16],
    )


def _model_name() -> str:
    """What the processor is sold as, where the system tells."""
    try:
        with open("/proc/cpuinfo") as told:
            return next((line for line in told if line.startswith("model name")), "").partition(":")[2].strip()
    except OSError:
        return ""
