"""Scripts that define a fusion again and execute it on inputs like those of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.torch_types import to_torch

_UNKNOWN_SIZE = 2
"""What a script makes of a size that the definition leaves open."""


def inputs_as_text(inputs: Sequence[Any]) -> list[str]:
    """Python code for inputs like the given ones: same dtype, shape, strides and device, other values."""
    return [_text_of(value) for value in inputs]


def declared_as_text(graph: Graph) -> list[str]:
    """Python code for inputs as they are declared."""
    return [_declared_text(node.type) for node in graph.inputs]


def script(definition: str, inputs: Sequence[str], comment: str = "") -> str:
    """A script from the text of a definition and of its inputs."""
    made = "".join(f"    {text},\n" for text in inputs)
    listed = f"inputs = [\n{made}]" if made else "inputs = []"
    return (
        "import torch\n\nfrom ingot import DataType, FusionDefinition\n\n\n"
        f"{definition}\n\n\n"
        "with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n\n"
        f"{comment}{listed}\nprint(fd.execute(inputs))\n"
    )


def _declared_text(declared: Any) -> str:
    if not isinstance(declared, TensorType):
        return "True" if declared.dtype.text == "bool" else "1" if declared.dtype.is_integer else "1.0"
    shape = tuple(size if isinstance(size, int) else _UNKNOWN_SIZE for size in declared.shape)
    return f"torch.testing.make_tensor({shape}, dtype={to_torch(declared.dtype)}, device='cpu')"


def _text_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    made = f"torch.testing.make_tensor({tuple(value.shape)}, dtype={value.dtype}, device={str(value.device)!r})"
    if value.is_contiguous():
        return made
    options = f"dtype={value.dtype}, device={str(value.device)!r}"
    return f"torch.empty_strided({tuple(value.shape)}, {value.stride()}, {options}).copy_({made})"
