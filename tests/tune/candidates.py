"""Kernels of a test, each run under the default schedule and under candidates of its search space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from unittest.mock import patch

import torch

from ingot.base.numbers import Number
from ingot.loops.cpu.tuning import CpuTuning
from ingot.runtime.backends.interface import Bound, Targets, Tensors
from ingot.runtime.cpu.kernels import launch
from ingot.runtime.kernels import Kernel
from ingot.tune import search_space
from ingot.tune.search_space import Candidate, SearchSpace

_SMALL = {
    "flat_block": (64, 128, 192),
    "column_block": (64, 128),
    "tile": (8, 24, search_space.NEVER),
    "streaming_bytes": (1, search_space.NEVER),
}
"""Values that make a difference for tensors of a few elements."""


@contextmanager
def small_knobs() -> Iterator[None]:
    """A search space of small blocks."""
    knobs = [replace(knob, values=_SMALL.get(knob.figure, knob.values)) for knob in search_space.knobs()]
    with patch.object(search_space, "knobs", lambda: tuple(knobs)):
        yield


@dataclass
class Compared:
    """A way to launch kernels that also runs them under candidates, and compares every bit."""

    seed: int
    most: int = 6
    """Candidates of each kernel: single changes, and changes of changes."""
    seen: Counter[str] = field(default_factory=Counter)
    """How often each figure was changed."""

    def __call__(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets = MappingProxyType({}),
        tuning: CpuTuning = CpuTuning(),  # noqa: B008 - it is frozen
    ) -> list[torch.Tensor]:
        results = launch(kernel, tensors, scalars, bound, targets, tuning)
        read = {tensor.data_ptr() for tensor in tensors}
        if any(target.data_ptr() in read for target in targets.values()):
            return results  # what was read is gone
        expected = [result.clone() for result in results]
        space = SearchSpace(kernel, tensors, bound, targets, tuning)
        for candidate in chosen(space, self.seed, self.most):
            self.seen.update(list(candidate.changes))
            found = launch(kernel, tensors, scalars, bound, targets, candidate.tuning)
            for ours, theirs in zip(found, expected, strict=True):
                assert same_bits(ours, theirs), f"{candidate.changes}: {candidate.call}\n{kernel.program.text}"
        return results


def chosen(space: SearchSpace, seed: int, most: int) -> list[Candidate]:
    """Candidates of a space, drawn: half of them differ in one figure, half in several."""
    random = Random(seed)
    first = list(space.around({}))
    random.shuffle(first)
    figures = [next(iter(candidate.changes)) for candidate in first]
    turns = [figures[:place].count(figure) for place, figure in enumerate(figures)]
    first = [candidate for _, candidate in sorted(zip(turns, first, strict=True), key=lambda pair: pair[0])]
    found = first[: (most + 1) // 2]  # one of each figure before another one of any
    for start in first[: most - len(found)]:
        following = list(space.around(start.changes))
        if following:
            further = list(space.around(random.choice(following).changes))
            found.append(random.choice(further or following))
    return found


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal bit by bit, but for which NaN it is."""
    if one.shape != other.shape or one.dtype is not other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    both = one.isnan() & other.isnan()
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    return bool((both | (one.contiguous().view(word) == other.contiguous().view(word))).all())
