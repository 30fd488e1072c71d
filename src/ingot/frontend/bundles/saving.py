"""`ingot.save`: a function becomes a bundle, recorded with examples of its arguments.

In: a function or module, compiled or not, and examples. Out: a file. Only what recordings tell whole can be saved:
Python is proven to do nothing else, or the user has promised so with `python="skip"`. Saving leaves no trace:
examples are copied, buffers that a call writes into get back what they held, and no random number is used up.
Examples that differ in sizes alone become one recording with open sizes, where that is sure to hold; otherwise each
is a recording.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as torch_modules

from ingot.base.errors import CaptureError, InputError
from ingot.base.version import __version__
from ingot.frontend.bundles.bundle_file import MOST_RECORDINGS, BundleParts, write_bundle
from ingot.frontend.bundles.carried_kernels import kernels_used
from ingot.frontend.bundles.loaded_program import LoadedProgram, normalised, plain_text
from ingot.frontend.bundles.loading import program_of
from ingot.frontend.bundles.manifest import CallForm, Manifest, TensorLeaf, ValueLeaf
from ingot.frontend.bundles.saved_tensors import SavedTensors, TensorsBefore
from ingot.frontend.bundles.stored_trace import stored
from ingot.frontend.bundles.structures import structure_of
from ingot.frontend.bundles.trace_text import trace_text
from ingot.frontend.bundles.weights import pack
from ingot.frontend.jit.api.forms import Jitted, jit
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.arguments.call_key import CallKey, describe
from ingot.frontend.jit.arguments.structure import put_together, take_apart
from ingot.frontend.jit.cache.shape_families import Generalised
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.settings.options import Options
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.torch_state import state_of_torch

Example = tuple[tuple[Any, ...], dict[str, Any]]


def save(function: Any, path: str | os.PathLike[str], example_inputs: Any, *, kernels: bool = False) -> None:
    """Save a function or module as one file, which `ingot.load` runs without its Python code.

    function: what `ingot.jit` gave, or what it takes.
    path: the file to write; by custom its name ends with `.ingot`.
    example_inputs: a tuple of arguments, a dictionary of arguments by name, one tensor, or a list of such for several
        recordings. Sizes in which examples differ stay open where that is sure to hold.
    kernels: whether the file also carries the machine code that calls like the examples need on this kind of machine,
        for those who load it with `trust_kernels=True`. Without it a bundle holds no code.
    """
    subject = _Subject.of(function)
    examples = [_example(one, subject.parameters) for one in _listed(example_inputs)]
    if not 1 <= len(examples) <= MOST_RECORDINGS:
        raise InputError(f"example_inputs must be 1 to {MOST_RECORDINGS} examples, not {len(examples)}")
    again = copy.deepcopy(examples) if kernels else []  # a call may write into its arguments
    parts = _bundle(subject, examples)
    write_bundle(path, dataclasses.replace(parts, kernels=_kernels(parts, subject, again)) if kernels else parts)


def _kernels(parts: BundleParts, subject: _Subject, examples: Sequence[Example]) -> bytes:
    """What a program that is loaded from these parts needs for calls like the examples."""
    config = subject.compiled.options.config
    program = program_of(parts, Options.of(config=config, dynamic=True, python="skip"))
    calls = [lambda program, one=one: _call_copied(program, one) for one in examples]
    with torch.random.fork_rng(_devices(examples)):
        return kernels_used(program, calls)


def _call_copied(program: LoadedProgram, example: Example) -> Any:
    args, kwargs = copy.deepcopy(example)
    return program(*args, **kwargs)


def _devices(examples: Sequence[Example]) -> list[int]:
    """The GPUs whose random numbers calls may use."""
    tensors = [one for example in examples for one in describe(*example).tensors]
    return sorted({one.device.index or 0 for one in tensors if one.device.type == "cuda"})


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is saved."""

    compiled: CompiledFunction
    module: torch.nn.Module | None
    parameters: tuple[str, ...]

    @classmethod
    def of(cls, function: Any) -> _Subject:
        if isinstance(function, LoadedProgram):
            raise InputError("a loaded bundle is saved by copying its file")
        module = function if isinstance(function, torch.nn.Module) else None
        found: Any = function if module is None else module.forward
        if not isinstance(found, Jitted):
            found = jit(function)
            found = found.forward if module is not None else found
        if not isinstance(found, Jitted):
            raise InputError(f"ingot.save takes a function or a module, not {function!r}")
        _refuse_hooks(module)
        options = dataclasses.replace(found._options, dynamic=True, fullgraph=False)
        name = found._compiled.name
        compiled = CompiledFunction(found.__wrapped__, options, JitCompiler(options.config), name)
        compiled.open_numbers(frozenset())  # numbers are part of what is recorded
        return cls(compiled, module or compiled.outermost, _positional(found.__wrapped__))


def _refuse_hooks(module: torch.nn.Module | None) -> None:
    if module is None:
        return
    own = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    everywhere = [*torch_modules._global_forward_hooks.values(), *torch_modules._global_forward_pre_hooks.values()]
    if own or everywhere:
        raise CaptureError("the module has hooks, which are Python code around it; remove them before it is saved")


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)


def _listed(example_inputs: Any) -> list[Any]:
    return list(example_inputs) if isinstance(example_inputs, list) else [example_inputs]


def _example(given: Any, parameters: Sequence[str]) -> Example:
    """One example's arguments, copied, so that a call can write into them."""
    if isinstance(given, torch.Tensor):
        given = (given,)
    if isinstance(given, dict) and all(type(name) is str for name in given):
        args, kwargs = normalised(parameters, (), given)
    elif isinstance(given, tuple):
        args, kwargs = given, {}
    else:
        raise InputError(
            "an example is a tuple of arguments, a dictionary of arguments by name, or one tensor, not a "
            f"{type(given).__name__}; several examples are a list"
        )
    leaves: list[Any] = []
    shape = take_apart((args, kwargs), leaves)
    detached: dict[int, torch.Tensor] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            detached.setdefault(id(leaf), leaf.detach())
        elif plain_text(leaf) is None:
            raise InputError(
                f"argument {number} is a {type(leaf).__name__}: a bundle takes tensors, numbers, texts and None, in "
                "lists, tuples and dictionaries"
            )
    copies = dict(zip(detached, copy.deepcopy(list(detached.values())), strict=True))
    copied = (copies[id(leaf)] if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    args, kwargs = put_together(shape, iter(list(copied)))
    return args, kwargs


# --- recording --------------------------------------------------------------------------------------------------------


def _bundle(subject: _Subject, examples: Sequence[Example]) -> BundleParts:
    compiled = subject.compiled
    before = TensorsBefore.of(compiled.function)
    calls: dict[Any, CallKey] = {}
    try:
        with torch.no_grad(), torch.random.fork_rng(_devices(examples)):
            for args, kwargs in examples:
                described = describe(args, kwargs)
                _require_recordable(compiled, described)
                calls[described.key, state_of_torch()] = described
                compiled(*args, **kwargs)
                _require_whole(compiled)
    finally:
        before.restore()
    names = SavedTensors(subject.module, before)
    forms, texts = [], []
    for key, made in compiled.specialisations.items():
        unified = key.unified if isinstance(key, Generalised) else None
        described = calls[key.members[-1].key if isinstance(key, Generalised) else key]
        assert made.trace is not None and made.result_shape is not None
        own = names.of(made.trace, made)
        forms.append(CallForm(structure_of(described.shape), _leaves(described), structure_of(made.result_shape)))
        texts.append(trace_text(stored(made.trace, own, unified)))
    records, weights = pack(names.tensors)
    training = None if subject.module is None else subject.module.training
    versions = {"ingot": __version__, "torch": torch.__version__}
    manifest = Manifest(compiled.name, versions, subject.parameters, training, tuple(forms), tuple(records))
    return BundleParts(manifest.to_json(), tuple(texts), weights)


def _require_recordable(compiled: CompiledFunction, described: CallKey) -> None:
    if described.refused is not None:
        raise CaptureError(f"{compiled.name} cannot be saved: {described.refused}")
    if compiled.options.python == "run":
        raise CaptureError(f'{compiled.name} cannot be saved: python="run" says that Python runs at every call')


def _require_whole(compiled: CompiledFunction) -> None:
    """Refuse a function whose recording does not tell all that it does."""
    latest = compiled.latest
    why: tuple[str, str] | None = None
    if not isinstance(latest, Specialisation):
        why = latest or compiled.why_eager or "it was not recorded", ""
    elif latest.trace is None:
        broken = latest.why_broken
        why = ("it was not recorded", "") if broken is None else (broken.reason, broken.place)
    elif latest.trace.questions:
        question = latest.trace.questions[0]
        why = "it decides by the value of a tensor, and a bundle holds one path", question.place
    elif latest.trace.training is not None:
        why = "it trains, and a bundle holds no optimizer", ""
    if why is not None:
        place = f" ({why[1]})" if why[1] else ""
        advice = (
            ""
            if compiled.options.python == "skip"
            else ('; if what Python does besides does not matter, promise so: ingot.jit(..., python="skip")')
        )
        raise CaptureError(
            f"{compiled.name} cannot be saved, because its Python would have to run: {why[0]}{place}{advice}"
        )


def _leaves(described: CallKey) -> tuple[TensorLeaf | ValueLeaf, ...]:
    found: list[TensorLeaf | ValueLeaf] = []
    positions: dict[int, int] = {}
    for leaf in described.leaves:
        if isinstance(leaf, torch.Tensor):
            found.append(TensorLeaf(positions.setdefault(id(leaf), len(positions))))
        else:
            found.append(ValueLeaf(leaf))
    return tuple(found)
