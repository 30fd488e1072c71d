"""A loaded bundle: an object that is called as the saved function was.

In: recordings with the forms of their calls, and the bundle's tensors. Out: a module whose state is these tensors and
whose calls run the recording that fits their arguments. What fits none is an InputError that says what was expected
and what was given. There are no gradients: a recording does not tell where Python had switched them off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import BundleError, InputError, UnsupportedError
from ingot.frontend.bundles.manifest import CallForm, Manifest, TensorLeaf
from ingot.frontend.bundles.replay import ReplayedFunction
from ingot.frontend.bundles.stored_trace import StoredTrace, StoredType
from ingot.frontend.bundles.structures import Structure, builder_of, structure_of
from ingot.frontend.bundles.trace_text import type_text, value_text
from ingot.frontend.jit.api.explaining import explain, inspect
from ingot.frontend.jit.arguments.structure import Shape, take_apart
from ingot.frontend.jit.lowering.recorded_program import uncast
from ingot.frontend.jit.trace.trace import TraceValue, values_in, written_arguments

_MOST_SHAPES = 256
"""For how many ways of nesting arguments it is remembered which recordings have them."""


@dataclass(slots=True)
class LoadedRecording:
    """One recording of a bundle, ready to be called."""

    form: CallForm
    trace: StoredTrace
    function: ReplayedFunction
    build: Callable[[Sequence[Any]], Any] = field(init=False)
    may_copy: bool = field(init=False)
    """Whether arguments of another layout may be copied: nothing is written into them, and no result may be a view."""

    def __post_init__(self) -> None:
        self.build = builder_of(self.form.result)
        self.may_copy = not _may_alias(self.trace)

    def misfit(self, leaves: Sequence[Any]) -> str | None:
        """Why these arguments are not those of this recording; None if they are."""
        bound: dict[str, int] = {}
        tensors: list[torch.Tensor] = []
        for number, (leaf, expected) in enumerate(zip(leaves, self.form.leaves, strict=True)):
            if isinstance(expected, TensorLeaf):
                told = self.trace.arguments[expected.position].type
                if not isinstance(leaf, torch.Tensor):
                    return f"argument {number} must be a tensor, {type_text(told)}, not {type(leaf).__name__}"
                if not _fits(leaf, told, bound):
                    return f"argument {number} must be {type_text(told)}, not {_described(leaf)}"
                if expected.position == len(tensors):
                    tensors.append(leaf)
                elif leaf is not tensors[expected.position]:
                    return f"argument {number} must be the same tensor as an argument before it, as it was recorded"
            elif isinstance(leaf, torch.Tensor) or plain_text(leaf) != value_text(expected.value):
                given = "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)[:80]
                return f"argument {number} must be {value_text(expected.value)}, as it was recorded, not {given}"
        return self._outside(bound)

    def _outside(self, bound: dict[str, int]) -> str | None:
        """Which assumption about open sizes does not hold."""
        for name, value in bound.items():
            if value < 2:
                return f"the open size {name} must be at least 2, not {value}; save another example for it"
        for one in self.trace.ranges:
            if not one.holds(bound):
                actual = sizes.evaluate(one.size, bound)
                return f"the size {one.size} must be from {one.lowest} to {one.highest}, not {actual}"
        for name, divisor in self.trace.divisors:
            if bound[name] % divisor:
                return f"the open size {name} must be a multiple of {divisor}, not {bound[name]}"
        return None

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """What the function returns for these arguments."""
        made = iter(self.run(leaves))
        return self.build([next(made) if isinstance(one, TraceValue) else one for one in self.trace.results])

    def run(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors among the results."""
        tensors: list[torch.Tensor] = []
        for leaf, expected in zip(leaves, self.form.leaves, strict=True):
            if isinstance(expected, TensorLeaf) and expected.position == len(tensors):
                tensors.append(self._laid_out(leaf, self.trace.arguments[expected.position].type))
        return self.function(*tensors)

    def _laid_out(self, tensor: torch.Tensor, told: StoredType) -> torch.Tensor:
        """A tensor with the strides of the recorded one, which its views may rely on."""
        if tensor.is_contiguous() if told.strides is None else tensor.stride() == told.strides:
            return tensor
        if not self.may_copy:
            layout = "row-major" if told.strides is None else f"strides {list(told.strides)}"
            raise InputError(
                f"an argument must have {layout}, not {list(tensor.stride())}: it is written into, or a result may be "
                "a view of it, so that ingot cannot copy it"
            )
        if told.strides is None:
            return tensor.contiguous()
        return tensor.new_empty_strided(tensor.shape, told.strides).copy_(tensor)


def _may_alias(trace: StoredTrace) -> bool:
    """Whether a copy of an argument could be noticed."""
    arguments = {leaf.value for leaf in trace.arguments}
    reached = set(arguments)
    for operation in trace.operations:
        written = written_arguments(operation.target, operation.arguments, operation.keywords)
        if not reached.isdisjoint(values_in(written)):
            return True
        may_be_views = any(one.alias_info is not None for one in operation.target._schema.returns)
        if may_be_views and not reached.isdisjoint(values_in((operation.arguments, operation.keywords))):
            reached.update(values_in(operation.results))
    return not reached.isdisjoint(values_in(list(trace.results)))


def plain_text(value: Any) -> str | None:
    """The text of a plain value in a bundle; None for what is none."""
    try:
        return value_text(value)
    except UnsupportedError:
        return None


def _fits(tensor: torch.Tensor, told: StoredType, bound: dict[str, int]) -> bool:
    if tensor.dtype is not told.dtype or tensor.dim() != len(told.sizes) or tensor.device != told.device:
        return False
    for size, actual in zip(told.sizes, tensor.shape, strict=True):
        if (size if isinstance(size, int) else bound.setdefault(size.text, actual)) != actual:
            return False
    return True


def _described(tensor: torch.Tensor) -> str:
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    return type_text(StoredType(tensor.dtype, tuple(tensor.shape), None, tensor.device))


class WeightContainer(torch.nn.Module):
    """A part of a bundle's names: `encoder` of `encoder.weight`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_parameters", ()) or name in self.__dict__.get("_buffers", ()):
            raise UnsupportedError(f"{name} cannot be replaced by another tensor; copy into it, or use load_state_dict")
        super().__setattr__(name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("a part of a bundle holds tensors and cannot be called; call the whole")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        raise UnsupportedError(
            "a bundle computes in the dtypes and on the devices that were recorded; convert the module and save it "
            "again"
        )


class LoadedProgram(WeightContainer):
    """What `ingot.load` gives: called as the saved function was, with the saved tensors as its state."""

    def __init__(self, manifest: Manifest, tensors: Mapping[str, torch.Tensor], recordings: Sequence[LoadedRecording]):
        super().__init__()
        self.name = manifest.name
        self.recordings = tuple(recordings)
        self._manifest = manifest
        self._candidates: dict[Shape, list[LoadedRecording]] = {}
        super().train(bool(manifest.training))
        for record in manifest.tensors:
            if record.kind != "constant":
                _register(self, record.name, tensors[record.name])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the recording that these arguments fit."""
        args, kwargs = normalised(self._manifest.parameters, args, kwargs)
        leaves: list[Any] = []
        shape = take_apart((args, kwargs), leaves)
        candidates = self._candidates.get(shape)
        if candidates is None:
            candidates = self._find_candidates(shape)
        chosen = candidates[0] if len(candidates) == 1 else None
        misfit = None if chosen is None else chosen.misfit(leaves)
        if chosen is None or misfit is not None:
            chosen = self._choose(candidates, leaves)
        if torch.is_grad_enabled() and any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
            raise InputError(
                "an argument requires gradients, and a bundle computes none; call it under torch.no_grad(), or detach "
                "the argument"
            )
        with torch.no_grad(), uncast() if torch._C._is_any_autocast_enabled() else nullcontext():
            return chosen(leaves)

    def _find_candidates(self, shape: Shape) -> list[LoadedRecording]:
        given = structure_of(shape)
        found = [recording for recording in self.recordings if recording.form.arguments == given]
        if not found:
            expected = " or ".join(dict.fromkeys(_call_text(one.form.arguments) for one in self.recordings))
            raise InputError(f"{self.name} was recorded for calls like {expected}, not {_call_text(given)}")
        if len(self._candidates) >= _MOST_SHAPES:
            self._candidates.clear()
        self._candidates[shape] = found
        return found

    def _choose(self, candidates: Sequence[LoadedRecording], leaves: Sequence[Any]) -> LoadedRecording:
        misfits = []
        for recording in candidates:
            misfit = recording.misfit(leaves)
            if misfit is None:
                return recording
            misfits.append(misfit)
        raise InputError(f"{self.name}: " + "; or ".join(dict.fromkeys(misfits)))

    def call_with(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors among the results of a call with these tensors; everything else is passed as it was recorded."""
        misfits = []
        for recording in self.recordings:
            expected = recording.form.leaves
            if len(tensors) != len(recording.trace.arguments):
                misfits.append(f"it takes {len(recording.trace.arguments)} tensors, not {len(tensors)}")
                continue
            leaves = [tensors[leaf.position] if isinstance(leaf, TensorLeaf) else leaf.value for leaf in expected]
            misfit = recording.misfit(leaves)
            if misfit is None:
                with torch.no_grad():
                    return recording.run(leaves)
            misfits.append(misfit)
        raise InputError(f"{self.name}: " + "; or ".join(dict.fromkeys(misfits)))

    def random_inputs(self, seed: int, open_size: int) -> list[torch.Tensor]:
        """Tensors that the first recording can be called with: random numbers, and 0 and 1 for whole numbers."""
        generator = torch.Generator().manual_seed(seed)
        made = []
        for argument in self.recordings[0].trace.arguments:
            told = argument.type
            shape = [size if isinstance(size, int) else open_size for size in told.sizes]
            if told.dtype.is_floating_point or told.dtype.is_complex:
                tensor = torch.randn(shape, generator=generator, dtype=told.dtype)
            else:
                tensor = torch.randint(0, 2, shape, generator=generator).to(told.dtype)
            made.append(tensor.to(told.device))
        return made

    @property
    def signature(self) -> str:
        """What the bundle can be called with, and what it returns, one line for each recording."""
        return "\n".join(_signature(recording) for recording in self.recordings)

    def explain(self) -> str:
        """What became of each recording so far: kernels, what was left to PyTorch, bytes, times."""
        texts = [f"{_signature(recording)}\n{explain(recording.function)}" for recording in self.recordings]
        return "\n\n".join(texts)

    def inspect(self, stage: str) -> str:
        """The text of a stage, as a compiled function's `inspect` gives it, for every recording that was called."""
        return "\n\n".join(filter(None, (inspect(recording.function, stage) for recording in self.recordings)))

    def train(self, mode: bool = True) -> LoadedProgram:
        """Refuse another mode than the recorded one: there is no Python left that could do something else."""
        recorded = self._manifest.training if "_manifest" in vars(self) else None
        if recorded is not None and mode is not recorded:
            words = {True: "training", False: "evaluation"}
            raise UnsupportedError(
                f"{self.name} was saved in {words[recorded]} mode and computes only that; save it again in the other"
            )
        return self

    def extra_repr(self) -> str:
        return self.signature

    def __reduce__(self) -> Any:
        raise UnsupportedError("a loaded bundle is not pickled; load its file where it is needed")


def _register(root: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    *path, last = name.split(".")
    owner = root
    try:
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, WeightContainer())
            owner = owner.get_submodule(part)
        if isinstance(tensor, torch.nn.Parameter):
            owner.register_parameter(last, tensor)
        else:
            owner.register_buffer(last, tensor)
    except (KeyError, AttributeError, RuntimeError, TypeError) as error:
        raise BundleError(f"no tensor can have the name {name[:80]!r}: {error}") from error


def normalised(parameters: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments with those by name that could be passed by position in their places."""
    if not kwargs:
        return args, kwargs
    given, named = list(args), dict(kwargs)
    while len(given) < len(parameters) and parameters[len(given)] in named:
        given.append(named.pop(parameters[len(given)]))
    return tuple(given), {name: named[name] for name in sorted(named)}


def _call_text(arguments: Structure) -> str:
    positional, named = arguments.parts
    parts = [*map(str, positional.parts), *(f"{k}={v}" for k, v in zip(named.keys, named.parts, strict=True))]
    return f"({', '.join(parts)})"


def _signature(recording: LoadedRecording) -> str:
    """One recording's arguments and results, as text."""
    given = [
        type_text(recording.trace.arguments[leaf.position].type)
        if isinstance(leaf, TensorLeaf)
        else value_text(leaf.value)
        for leaf in recording.form.leaves
    ]
    types = {leaf.value: leaf.type for leaf in (*recording.trace.arguments, *recording.trace.weights)}
    for operation in recording.trace.operations:
        types |= dict(zip(values_in(operation.results), operation.types, strict=True))
    made = [
        type_text(types[one]) if isinstance(one, TraceValue) else value_text(one) for one in recording.trace.results
    ]
    return f"({', '.join(given)}) -> {', '.join(made) or 'nothing'}"
