"""What a recording on disk is found by: the function, the call, torch's settings, and what made the recording.

In: a function and a described call. Out: plain data, equal in two processes only if calls are alike, or
`NotPortable`. What always holds: this finds a file, and no more. Whether what is in it holds is decided by comparing
every place that the recording depends on.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Hashable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch

import ingot.frontend.jit as package
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.structure import Shape
from ingot.frontend.jit.kept.anatomy import NotPortable, code_digest
from ingot.frontend.jit.kept.references import plain_reference
from ingot.frontend.jit.lowering.faults import reporting_faults
from ingot.frontend.jit.python_code.source_lines import module_of
from ingot.frontend.jit.settings.options import Options
from ingot.runtime import torch_state

_MAKERS = ("arguments", "guards", "kept", "proof", "python_code", "trace")
"""The packages of `ingot.jit` that decide what is recorded and what it depends on."""
_LIBRARY_VARIABLES = ("TORCH_", "PYTORCH_", "ATEN_", "MKL_", "DNNL_", "ONEDNN_", "OMP_", "KMP_", "CUDA_", "CUBLAS_")
"""How the names of environment variables begin that libraries below PyTorch read."""
_CONTAINERS = {tuple: "tuple", list: "list", dict: "dict"}


@reporting_faults
def call_identity(function: Any, described: CallKey, state: Hashable, options: Options) -> list[Any]:
    """What a call of a function is found by."""
    if described.objects or described.given is not None or described.needs_gradients:
        raise NotPortable("an argument is an object, or needs gradients")
    return [
        _function(function),
        _shape(described.shape),
        [_leaf(leaf, part) for leaf, part in zip(described.leaves, described.parts, strict=True)],
        [_setting(value) for value in state],  # type: ignore[attr-defined]
        [options.fullgraph, options.python, sys.flags.optimize],
        process_identity(),
    ]


def _function(function: Any) -> list[Any]:
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):
        raise NotPortable("it is no function or method")
    module = module_of(function)
    state = [] if module is None else [_module(module)]
    return [plain.__module__, plain.__qualname__, code_digest(plain.__code__), state]


def _module(module: torch.nn.Module) -> str:
    """A hash of what tells modules of one class apart most often. Methods of the user's classes are not called."""
    found = []
    for name, one in torch.nn.Module.named_modules(module):
        held = [(key, str(tensor.dtype), tuple(tensor.shape)) for key, tensor in _tensors_of(one)]
        found.append((name, type(one).__qualname__, vars(one).get("training"), held))
    return sha256(repr(found).encode()).hexdigest()


def _tensors_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    tables = (vars(module).get(table) or {} for table in ("_parameters", "_buffers"))
    return [(key, held) for table in tables for key, held in table.items() if isinstance(held, torch.Tensor)]


def _shape(shape: Shape) -> Any:
    if shape.kind is None:
        return None
    kind = _CONTAINERS.get(shape.kind)
    if kind is None or (kind == "dict" and not all(type(name) is str for name in shape.context)):
        raise NotPortable(f"an argument is a {shape.kind}")
    return [kind, list(shape.context or ()), [_shape(part) for part in shape.parts]]


def _leaf(leaf: Any, part: Any) -> list[Any]:
    if isinstance(leaf, torch.Tensor):
        dtype, shape, strides, device, cls, state, first = part
        return [str(dtype), list(shape), list(strides), str(device), cls.__qualname__, list(state), first]
    # Texts count by their identity as well, which no other process has.
    found = None if isinstance(leaf, str) else plain_reference(leaf)
    if found is None:
        raise NotPortable(f"an argument is a {type(leaf).__name__}")
    return found


def _setting(value: Any) -> Any:
    found = plain_reference(value)
    if found is None:
        raise NotPortable("a setting of torch is not a plain value")
    return found


@lru_cache(maxsize=1)
def process_identity() -> list[str]:
    """What recordings depend on in every process: the code that makes them, and what libraries are told by the
    environment."""
    made_by = sha256()
    root = os.path.dirname(str(package.__file__))
    files = [str(torch_state.__file__)]
    for maker in _MAKERS:
        for folder, _, names in os.walk(os.path.join(root, maker)):
            files += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    try:
        for file in sorted(files):
            with open(file, "rb") as content:
                made_by.update(content.read())
    except OSError as error:
        raise NotPortable(f"ingot's own files cannot be read: {error}") from None
    variables = sorted(item for item in os.environ.items() if item[0].startswith(_LIBRARY_VARIABLES))
    return [made_by.hexdigest(), repr(variables), torch.backends.cpu.get_cpu_capability()]
