"""`ingot.load`: a bundle becomes an object that is called like the function it was saved from.

In: a bundle's file. Out: a LoadedProgram. The whole file is checked before anything runs; kernels are compiled for this
machine when the object is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ingot.base.errors import BundleError, IngotError, InputError
from ingot.base.logs import log
from ingot.frontend.bundles.bundle_file import BundleParts, read_bundle
from ingot.frontend.bundles.carried_kernels import use_kernels
from ingot.frontend.bundles.loaded_program import LoadedProgram, LoadedRecording
from ingot.frontend.bundles.manifest import CallForm, Manifest, TensorLeaf
from ingot.frontend.bundles.replay import Replay, ReplayedFunction
from ingot.frontend.bundles.stored_trace import StoredTrace
from ingot.frontend.bundles.trace_parser import parse_trace
from ingot.frontend.bundles.weights import unpack
from ingot.frontend.jit.settings.options import Mode, Numerics, Options


def load(
    path: str | os.PathLike[str],
    *,
    freeze: bool = False,
    mode: Mode | None = None,
    config: Mapping[str, Any] | None = None,
    numerics: Numerics | None = None,
    trust_kernels: bool = False,
) -> LoadedProgram:
    """Load a bundle that `ingot.save` wrote, or `ingot compile`.

    freeze, mode, config, numerics: as in `ingot.jit`.
    trust_kernels: whether machine code that the bundle carries (`ingot.save(..., kernels=True)`) may be run. Say so
        only of files whose maker you trust. It is used where the file and its directory are yours alone to write, and
        where processor and versions are those it was made for; elsewhere kernels are compiled.
    """
    if not isinstance(trust_kernels, bool):
        raise InputError(f"trust_kernels must be True or False, not {trust_kernels!r}")
    options = Options.of(freeze=freeze, mode=mode, config=config, numerics=numerics, dynamic=True, python="skip")
    parts = read_bundle(path)
    if trust_kernels and parts.has_kernels:
        use_kernels(path)
    elif parts.has_kernels:
        log("cache", f"the kernels of {os.fspath(path)} are not used: trust_kernels=True would allow it")
    try:
        return program_of(parts, options)
    except IngotError as error:
        raise error.within(f"the bundle {os.fspath(path)}") from error


def program_of(parts: BundleParts, options: Options) -> LoadedProgram:
    """What the parts of a bundle describe."""
    manifest = Manifest.from_json(parts.manifest)
    if len(manifest.forms) != len(parts.traces):
        raise BundleError(f"the manifest tells of {len(manifest.forms)} recordings, and there are {len(parts.traces)}")
    tensors = unpack(manifest.tensors, parts.weights)
    recordings = []
    for form, text in zip(manifest.forms, parts.traces, strict=True):
        trace = parse_trace(text)
        _check_form(form, trace)
        replay = Replay(trace, tensors)
        recordings.append(LoadedRecording(form, trace, ReplayedFunction(replay, options, manifest.name)))
    return LoadedProgram(manifest, tensors, recordings)


def _check_form(form: CallForm, trace: StoredTrace) -> None:
    passed = {leaf.position for leaf in form.leaves if isinstance(leaf, TensorLeaf)}
    if len(passed) != len(trace.arguments) or form.result.leaves != len(trace.results):
        raise BundleError("the manifest and a trace tell of different arguments or results")
