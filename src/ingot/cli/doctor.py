"""`ingot doctor`: whether everything that ingot relies on is as it needs it, on this machine, in this Python.

In: nothing. Out: a list of checks, each fine, slower than it could be, or broken, with what to do. A check that fails
itself is broken. What always holds: nothing is changed.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import click
import torch
from rich.markup import escape
from rich.table import Table

import ingot
from ingot.base.environment_variables import EnvironmentVariables, environment
from ingot.base.errors import ConfigError
from ingot.cli.terminal import console, print_json
from ingot.codegen.llvm.host import host
from ingot.frontend.jit.follow.protection.trap import trap
from ingot.runtime.backends.registry import registered
from ingot.runtime.disk_cache.directory import Untrusted
from ingot.runtime.disk_cache.process import opened
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.abi.settings import Settings
from ingot.runtime.native.dispatch.dispatcher import dispatcher
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.memory.pool import pool
from ingot.runtime.profiling.ranges import listening_function
from ingot.runtime.threads import bind_openmp

State = Literal["fine", "slower", "broken"]
_SUPPORTED = ((2, 10), (2, 13))
"""The first and the last version of torch that ingot is tested with."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_COLOURS = {"fine": "green", "slower": "yellow", "broken": "red"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    state: State
    found: str
    advice: str = ""
    """What to do, where it is not fine."""


def _python() -> CheckResult:
    found = f"{platform.python_implementation()} {platform.python_version()} on {sys.platform}, {platform.machine()}"
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return CheckResult("Python", "slower", found, "use CPython 3.11 to 3.13: calls may go through Python elsewhere")
    return CheckResult("Python", "fine", found)


def _torch() -> CheckResult:
    first, last = _SUPPORTED
    found = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    if found < first:
        return CheckResult("torch", "broken", torch.__version__, f"install torch {first[0]}.{first[1]} or later")
    if found > last:
        advice = f"tested up to {last[0]}.{last[1]}; if the checks below are fine, so is this version"
        return CheckResult("torch", "slower", torch.__version__, advice)
    return CheckResult("torch", "fine", torch.__version__)


def _llvm() -> CheckResult:
    try:
        found = f"llvmlite {version('llvmlite')}"
    except PackageNotFoundError:
        found = "llvmlite"
    processor = host()
    return CheckResult("LLVM", "fine", f"{found}, code for {processor.name} ({processor.triple})")


def _processor() -> CheckResult:
    processor = host()
    lacks = [
        name
        for name, there in (
            ("fused multiply-add", processor.has_fma),
            ("conversions of float16", processor.converts_half),
            ("rounding", processor.has_rounding),
        )
        if not there
    ]
    found = f"vectors of {processor.vector_bits} bits, {torch.get_num_threads()} threads"
    if lacks or processor.vector_bits < 256:
        narrow = ["vectors of 256 bits"] if processor.vector_bits < 256 else []
        advice = f"the processor lacks, or its virtual machine hides: {', '.join([*narrow, *lacks])}"
        return CheckResult("processor", "slower", found, advice)
    return CheckResult("processor", "fine", found)


def _generated_code() -> CheckResult:
    """A function compiled and compared, through every layer."""
    compiled: Any = ingot.jit(lambda x, y: torch.tanh(x * y) + torch.sum(x, -1, keepdim=True), python="skip")
    x, y = torch.rand(8, 16), torch.rand(8, 16)
    with torch.no_grad():
        wanted = torch.tanh(x * y) + torch.sum(x, -1, keepdim=True)
        results = [compiled(x, y) for _ in range(3)]
    if not all(torch.allclose(result, wanted, atol=1e-5) for result in results):
        return CheckResult("generated code", "broken", "gives other results than PyTorch", "please report it")
    if compiled.stats().launches == 0:
        advice = "INGOT_DISABLE, INGOT_BACKEND or a fault keep code from being generated; see ingot.jit's warnings"
        return CheckResult("generated code", "broken", "none was generated", advice)
    return CheckResult("generated code", "fine", f"{len(compiled.stats().kernels)} kernel compiled, results agree")


def _openmp() -> CheckResult:
    if bind_openmp():
        return CheckResult("OpenMP", "fine", "torch's own runtime")
    return CheckResult(
        "OpenMP", "slower", "torch brings no libgomp", "kernels run on one thread; use a torch built with it"
    )


def _native() -> CheckResult:
    parts = {
        "the layout of tensors": tensor_layout(),
        "torch's settings": Settings.find(),
        "DLPack's functions for C": pool(),
        "the launcher": launcher(),
        "the dispatcher": dispatcher(),
    }
    missing = [name for name, found in parts.items() if found is None]
    if missing:
        advice = "calls go through Python, which costs tens of microseconds each; use a supported Python and torch"
        return CheckResult("native calls", "broken", f"not as needed: {', '.join(missing)}", advice)
    return CheckResult("native calls", "fine", ", ".join(parts))


def _following() -> CheckResult:
    if trap() is None:
        advice = "functions that do more than compute run eagerly; use a supported torch"
        return CheckResult("following", "broken", "the self-check of the trap failed", advice)
    return CheckResult("following", "fine", "the self-check of the trap passed")


def _profilers() -> CheckResult:
    if listening_function() is None:
        return CheckResult("profilers", "slower", "torch does not tell", "native calls have no ranges in profiles")
    return CheckResult("profilers", "fine", "kernels are ranges in torch's profilers")


def _gpus() -> CheckResult:
    for backend in registered():
        if backend.device_type == "cuda":
            reason = backend.why_unavailable()
            if reason is None:
                return CheckResult("NVIDIA GPUs", "fine", backend.platform)
            if torch.cuda.is_available():
                return CheckResult("NVIDIA GPUs", "broken", "torch finds one, ingot cannot use it", reason)
            return CheckResult("NVIDIA GPUs", "fine", f"none: {reason}")
    return CheckResult("NVIDIA GPUs", "fine", "none")


def _cache() -> CheckResult:
    if environment().cache_directory is None:
        return CheckResult("cache", "slower", "INGOT_CACHE_DIR is empty", "every process compiles anew; unset it")
    try:
        return CheckResult("cache", "fine", str(opened().directory))
    except (Untrusted, OSError) as error:
        advice = "compiled kernels are not kept: make the directory your own, or name another by INGOT_CACHE_DIR"
        return CheckResult("cache", "slower", str(error), advice)


def _huge_pages() -> CheckResult:
    try:
        text = _HUGE_PAGES.read_text().strip()
    except OSError:
        return CheckResult("huge pages", "fine", "not known on this system")
    chosen = text[text.find("[") + 1 : text.find("]")]
    if chosen == "never":
        advice = f"large results are written up to twice as fast with them: echo madvise > {_HUGE_PAGES}, as root"
        return CheckResult("huge pages", "slower", "switched off", advice)
    return CheckResult("huge pages", "fine", chosen)


def _variables() -> CheckResult:
    try:
        EnvironmentVariables.read(os.environ)
    except ConfigError as error:
        return CheckResult("environment", "broken", str(error), "correct or unset the variable; ingot flags lists all")
    if environment().is_disabled:
        return CheckResult("environment", "slower", "INGOT_DISABLE=1", "nothing is compiled while it is set")
    named = sorted(name for name in os.environ if name.startswith("INGOT_"))
    return CheckResult("environment", "fine", ", ".join(named) or "no INGOT_ variables")


CHECKS_IN_ORDER: tuple[tuple[str, Callable[[], CheckResult]], ...] = (
    ("environment", _variables),
    ("Python", _python),
    ("torch", _torch),
    ("LLVM", _llvm),
    ("processor", _processor),
    ("OpenMP", _openmp),
    ("native calls", _native),
    ("following", _following),
    ("profilers", _profilers),
    ("generated code", _generated_code),
    ("NVIDIA GPUs", _gpus),
    ("cache", _cache),
    ("huge pages", _huge_pages),
)


def examined() -> list[CheckResult]:
    """The results of all checks."""
    results = []
    for name, check in CHECKS_IN_ORDER:
        try:
            results.append(check())
        except Exception as error:  # whatever is wrong is a finding
            results.append(CheckResult(name, "broken", f"the check failed: {error!r}", "please report it"))
    return results


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print the same for programs")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check everything that ingot relies on, and say what to do.

    Exits with 1 if something is broken; what is merely slower than it could be is no fault.
    """
    results = examined()
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        listing = Table("check", "", "what was found", "what to do")
        for one in results:
            state = f"[{_COLOURS[one.state]}]{one.state}[/]"
            listing.add_row(one.name, state, escape(one.found), escape(one.advice))
        console().print(listing)
    context.exit(1 if any(result.state == "broken" for result in results) else 0)
