"""`ingot compile` and `ingot run`: models into bundles, and bundles run from the command line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import ingot
from ingot.base.errors import IngotError
from ingot.cli.example_inputs import InputSpecification, examples_of, parse_input
from ingot.cli.named_functions import found_function, own_examples
from ingot.frontend.jit.settings.options import Python
from ingot.runtime.disk_cache.process import process_store

if TYPE_CHECKING:
    from ingot.frontend.bundles.loaded_program import LoadedProgram

_DEFAULT_OPEN = 8
"""The open sizes of random inputs."""


class Failure(click.ClickException):
    """Something of the user's that did not work: one line, and exit code 1."""

    def show(self, file: Any = None) -> None:
        click.echo(f"ingot: {self.message}", err=True)


def _progress() -> Progress:
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@click.command(name="compile")
@click.argument("source")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="the bundle to write; SOURCE's name with .ingot")
@click.option(
    "--cache",
    "into_cache",
    is_flag=True,
    help="write no bundle: leave what is compiled in the cache on disk, for processes that call SOURCE",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="TYPE[SIZES]",
    help="an argument, such as float32[1,3,224,224] or ids=int64[2|5,128]; sizes with | stay open. Once per argument, "
    "in order or by name. ONNX models need none, nor do modules with EXAMPLE_INPUTS or example_inputs()",
)
@click.option(
    "--python",
    type=click.Choice(["auto", "skip"]),
    default="auto",
    show_default=True,
    help='"skip" promises that the function\'s Python does nothing but compute',
)
@click.option(
    "--kernels",
    is_flag=True,
    help="put machine code for this kind of machine into the bundle, for `ingot run --trust-kernels`",
)
@click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
def compile_command(
    source: str,
    output: str | None,
    into_cache: bool,
    inputs: tuple[str, ...],
    python: Python,
    kernels: bool,
    as_json: bool,
) -> None:
    """Compile a model into a bundle, one file that `ingot run` and `ingot.load` run without the model's code.

    SOURCE is an ONNX file (model.onnx), or module:name of a function or torch module that can be imported from here.
    """
    if into_cache and (output or kernels):
        raise click.UsageError("--cache writes no bundle, so it does not go with --output and --kernels")
    specifications = [_parsed(text) for text in inputs]
    start = time.perf_counter()
    with _progress() as progress:
        task = progress.add_task("reading", total=3)
        subject, name, examples = _subject(source, specifications, python)
        if into_cache:
            progress.update(task, advance=1, description="calling")
            kept = _fill_cache(subject, examples)
            progress.stop()
            _report_kept(name, kept, time.perf_counter() - start, as_json)
            return
        progress.update(task, advance=1, description="recording and writing")
        place = Path(output or f"{name}.ingot")
        _save(subject, place, examples, kernels)
        progress.update(task, advance=1, description="checking")
        loaded = ingot.load(place)
        progress.update(task, advance=1)
    _report_bundle(place, loaded, time.perf_counter() - start, as_json)


def _parsed(text: str) -> InputSpecification:
    try:
        return parse_input(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--input") from error


def _subject(source: str, specifications: list[InputSpecification], python: Python) -> tuple[Any, str, Sequence[Any]]:
    """What is compiled by calling it, what to call its file, and examples of its arguments."""
    if source.endswith(".onnx"):
        if python == "skip":
            raise click.UsageError("an ONNX model has no Python that could be skipped; leave --python out")
        model = ingot.load_onnx(source)
        declared = specifications or [InputSpecification.declared(one) for one in model.graph.inputs]
        return model, Path(source).stem, examples_of(declared)
    if ":" not in source:
        raise click.BadParameter("an ONNX file (.onnx) or module:name is needed", param_hint="SOURCE")
    module, found = found_function(source)
    examples = examples_of(specifications) if specifications else [own_examples(module)]
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        found = found().eval()
    return ingot.jit(found, python=python), source.rpartition(":")[2].rpartition(".")[2], examples


_CALLS = 20
"""Enough for each example to be recorded, audited and kept, and for its kernels to be compiled."""


@dataclass(frozen=True, slots=True)
class _Kept:
    directory: Path
    entries: int
    """How many entries are new."""
    tier: str
    """What later calls do with Python."""


def _fill_cache(subject: Any, examples: Sequence[Any]) -> _Kept:
    """Call a function as the next process will, so that the cache on disk has what it needs."""
    found = process_store()
    if found is None:
        raise Failure("nothing is kept on disk: INGOT_CACHE_DIR is set to nothing, or its directory is not trusted")
    store, _ = found
    before = store.statistics.kept
    with torch.no_grad(), _failing_clearly():
        for example in examples:
            for _ in range(_CALLS):
                subject(**example) if isinstance(example, dict) else subject(*example)
    called: Any = subject.forward if isinstance(subject, torch.nn.Module) else subject
    return _Kept(store.directory, store.statistics.kept - before, called.tier)


def _report_kept(name: str, kept: _Kept, seconds: float, as_json: bool) -> None:
    if as_json:
        told = asdict(kept) | {"directory": str(kept.directory), "seconds": round(seconds, 3)}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{name}: {kept.entries} new entries in {kept.directory}, in {seconds:.1f} s")
    if kept.tier != "skipping":
        click.echo(f"  its Python runs at every call ({kept.tier}): kernels are kept, recordings are not")


def _save(subject: Any, place: Path, examples: Sequence[Any], kernels: bool) -> None:
    with _failing_clearly():
        ingot.save(subject, place, list(examples), kernels=kernels)


@contextmanager
def _failing_clearly() -> Iterator[None]:
    """A block that runs the user's function, and says so where that raises."""
    try:
        yield
    except IngotError:
        raise
    except Exception as error:
        raise Failure(f"the model fails on these inputs: {type(error).__name__}: {error}") from error


def _report_bundle(place: Path, loaded: LoadedProgram, seconds: float, as_json: bool) -> None:
    size = place.stat().st_size
    operations = [len(recording.trace.operations) for recording in loaded.recordings]
    if as_json:
        told = {
            "bundle": str(place),
            "bytes": size,
            "recordings": loaded.signature.splitlines(),
            "operations": operations,
            "seconds": round(seconds, 3),
        }
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{place}: {size:,} bytes, {sum(operations)} operations, in {seconds:.1f} s")
    for line in loaded.signature.splitlines():
        click.echo(f"  {line}")


@click.command(name="run")
@click.argument("bundle", type=click.Path())
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="a .npy file for each tensor, or one .npz file")
@click.option("--random", "is_random", is_flag=True, help="make inputs of random numbers; open sizes are 8")
@click.option("--seed", type=int, default=0, show_default=True, help="for random inputs, and for the model's own")
@click.option("--repeat", type=click.IntRange(1), default=10, show_default=True, help="how many calls are timed")
@click.option("--output", type=click.Path(dir_okay=False), help="write the results to this .npz file")
@click.option("--compare", type=click.Path(), help="compare the results with those in a .npz file, or one .npy file")
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="for --compare, absolute and relative")
@click.option(
    "--trust-kernels",
    is_flag=True,
    help="run machine code that the bundle carries, if the file is yours alone to write; only if you trust its maker",
)
@click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
def run_command(
    bundle: str,
    inputs: tuple[str, ...],
    is_random: bool,
    seed: int,
    repeat: int,
    output: str | None,
    compare: str | None,
    tolerance: float,
    trust_kernels: bool,
    as_json: bool,
) -> None:
    """Run a bundle: print the shapes of its results and how long calls take."""
    if bool(inputs) == is_random:
        raise click.UsageError("give inputs with --input FILE, or let --random make them")
    start = time.perf_counter()
    loaded = ingot.load(bundle, trust_kernels=trust_kernels)
    times = {"load": time.perf_counter() - start}
    tensors = loaded.random_inputs(seed, _DEFAULT_OPEN) if is_random else _read(inputs)
    results, called = _called(loaded, tensors, seed, repeat)
    times |= called
    arrays = {f"result{number}": _array(result) for number, result in enumerate(results)}
    if output is not None:
        _write(output, arrays)
    difference = None if compare is None else _difference(arrays, compare, tolerance)
    _report_run(arrays, times, difference, as_json)
    if difference is not None and not difference["close"]:
        raise Failure(f"the results differ from {compare}: by {difference['largest']:.3g} at most")


def _called(
    loaded: LoadedProgram, tensors: Sequence[torch.Tensor], seed: int, repeat: int
) -> tuple[list[torch.Tensor], dict[str, float]]:
    """The results of the first call, and the seconds that calls take."""
    seconds: list[float] = []
    results: list[torch.Tensor] = []
    with _progress() as progress:
        for number in progress.track(range(repeat + 2), description="calling"):
            torch.manual_seed(seed)
            start = time.perf_counter()
            made = loaded.call_with([tensor.clone() for tensor in tensors])
            seconds.append(time.perf_counter() - start)
            results = results if number else made
    return results, {"first call": seconds[0], "second call": seconds[1], "call": float(numpy.median(seconds[2:]))}


def _read(files: Sequence[str]) -> list[torch.Tensor]:
    arrays: list[Any] = []
    for file in files:
        found = _loaded(file)
        arrays += [found[name] for name in found.files] if isinstance(found, numpy.lib.npyio.NpzFile) else [found]
    try:
        return [torch.from_numpy(numpy.array(array)) for array in arrays]
    except TypeError as error:
        raise Failure(f"an input has a type that tensors have not: {error}") from error


def _loaded(file: str) -> Any:
    try:
        return numpy.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Failure(f"{file} cannot be read: {error}") from error


def _array(result: torch.Tensor) -> Any:
    is_numpys = result.dtype is not torch.bfloat16
    return (result if is_numpys else result.float()).cpu().numpy()


def _write(output: str, arrays: dict[str, Any]) -> None:
    try:
        with open(output, "wb") as file:
            numpy.savez(file, **arrays)
    except OSError as error:
        raise Failure(f"{output} cannot be written: {error.strerror or error}") from error


def _difference(arrays: dict[str, Any], compare: str, tolerance: float) -> dict[str, Any]:
    """How far results are from what a file holds, in order."""
    found = _loaded(compare)
    expected = [found[name] for name in found.files] if isinstance(found, numpy.lib.npyio.NpzFile) else [found]
    made = list(arrays.values())
    if [one.shape for one in made] != [one.shape for one in expected]:
        shapes = [list(one.shape) for one in expected]
        raise Failure(f"{compare} holds arrays of the shapes {shapes}, not {[list(one.shape) for one in made]}")
    largest, is_close = 0.0, True
    for one, other in zip(made, expected, strict=True):
        apart = numpy.abs(numpy.subtract(one, other, dtype=numpy.float64))
        largest = max(largest, float(apart.max(initial=0.0)))
        is_close &= bool(numpy.allclose(one, other, atol=tolerance, rtol=tolerance, equal_nan=True))
    return {"largest": largest, "close": is_close}


def _report_run(
    arrays: dict[str, Any], times: dict[str, float], difference: dict[str, Any] | None, as_json: bool
) -> None:
    if as_json:
        results = {name: {"dtype": str(one.dtype), "shape": list(one.shape)} for name, one in arrays.items()}
        told = {"results": results, "milliseconds": {name: round(one * 1e3, 3) for name, one in times.items()}}
        click.echo(json.dumps(told | ({} if difference is None else {"difference": difference}), indent=2))
        return
    listing = Table("result", "dtype", "shape", "least", "mean", "most")
    for name, one in arrays.items():
        figures = [f"{float(pick(one)):.4g}" for pick in (numpy.min, numpy.mean, numpy.max)] if one.size else ["-"] * 3
        listing.add_row(name, str(one.dtype), escape(str(list(one.shape))), *figures)
    Console(file=sys.stdout, highlight=False).print(listing)
    click.echo(", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in times.items()))
    if difference is not None:
        click.echo(f"largest difference {difference['largest']:.3g}")
