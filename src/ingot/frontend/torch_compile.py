"""`torch.compile(f, backend="ingot")`: Dynamo finds the graph and guards it, ingot compiles it.

In: what Dynamo hands a backend, a module of straight-line code and examples of its inputs. Out: a function of the same
inputs. Where sizes stay open, Dynamo passes them as numbers. Dynamo finds this backend by its entry point; nothing has
to be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.settings.options import Mode, Options
from ingot.runtime.compiler import JitCompiler


def backend(
    module: torch.nn.Module,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
) -> Callable[..., Any]:
    """A compiled function for a graph of Dynamo's; `options` are flags of `ingot.Config`, `mode` is that of `jit`."""
    settings = Options.of(config=options, dynamic=any(map(_is_open, examples)), mode=mode)
    compiled = CompiledFunction(module.forward, settings, JitCompiler(settings.config), "a graph of torch.compile's")
    compiled.reads_attributes = compiled.needs_proof = compiled.native.forbids_attributes = False
    return compiled


def _is_open(example: Any) -> bool:
    """Whether Dynamo will call the graph with other sizes than this example's."""
    sizes = example.shape if isinstance(example, torch.Tensor) else (example,)
    return any(isinstance(size, torch.SymInt) for size in sizes)
