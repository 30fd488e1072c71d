"""Examples of arguments, described on the command line.

In: texts such as `float32[1,3,224,224]` or `ids=int64[2|5,128]`, or the inputs that an ONNX model declares. Out:
examples for `ingot.save`. Sizes with alternatives give several examples, so that these sizes stay open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ingot.frontend.onnx.model_file import OnnxInput

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>\w+)\[(?P<sizes>[\d|,\s]*)\](?:@(?P<device>[\w:]+))?")
_OPEN = (2, 3)
"""What an open size of a declared input is in the two examples, at least: other names have other values."""


@dataclass(frozen=True, slots=True)
class InputSpecification:
    """One argument: its type, and for every axis the sizes that examples have."""

    name: str | None
    dtype: torch.dtype
    sizes: tuple[tuple[int, ...], ...]
    device: str = "cpu"

    @classmethod
    def declared(cls, one: OnnxInput) -> InputSpecification:
        """The input of an ONNX model; open sizes get two values, the same for the same name."""
        sizes = []
        for axis, size in enumerate(one.sizes or ()):
            if isinstance(size, int):
                sizes.append((size,))
            else:
                offset = sum(map(ord, size or f"{one.name}{axis}")) % 7
                sizes.append(tuple(value + 2 * offset for value in _OPEN))
        return cls(one.name, one.dtype, tuple(sizes))

    @property
    def alternatives(self) -> int:
        """How many examples the sizes ask for."""
        return max((len(values) for values in self.sizes), default=1)

    def tensor(self, number: int) -> torch.Tensor:
        """The argument of one example. Whole numbers are 0 and 1, which are indices into almost everything."""
        shape = [values[min(number, len(values) - 1)] for values in self.sizes]
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return torch.randn(shape, dtype=self.dtype, device=self.device)
        return torch.randint(0, 2, shape, device=self.device).to(self.dtype)


def parse_input(text: str) -> InputSpecification:
    """The argument that a text describes; a ValueError says what is wrong with it."""
    found = _INPUT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not like float32[2,3] or name=float32[2|5,3]")
    dtype = getattr(torch, found["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{found['dtype']!r} is no dtype of torch; float32, bfloat16, int64 and bool are some")
    parts = [part.strip() for part in found["sizes"].split(",")] if found["sizes"].strip() else []
    if not all(re.fullmatch(r"\d+(\|\d+)*", part) for part in parts):
        raise ValueError(f"{text!r} has a size that is no number, nor numbers with | between them")
    sizes = tuple(tuple(int(one) for one in part.split("|")) for part in parts)
    return InputSpecification(found["name"], dtype, sizes, found["device"] or "cpu")


def examples_of(specifications: Sequence[InputSpecification]) -> list[Any]:
    """One example, or as many as sizes have alternatives: dictionaries, where all arguments have names."""
    made = []
    for number in range(max((one.alternatives for one in specifications), default=1)):
        tensors = [one.tensor(number) for one in specifications]
        if specifications and all(one.name is not None for one in specifications):
            made.append({one.name: tensor for one, tensor in zip(specifications, tensors, strict=True)})
        else:
            made.append(tuple(tensors))
    return made
