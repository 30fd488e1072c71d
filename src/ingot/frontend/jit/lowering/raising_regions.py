"""Regions that raise PyTorch's own errors.

In: a compiled region whose operations may refuse values. Out: what is called like it. What always holds: where the
region raises an error, its operations run one by one as PyTorch runs them, so that the error has the type and the
words of eager's. A program without effects needs none of this: Python repeats such a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base.errors import IngotError
from ingot.base.sizes import SizeExpression
from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.lowering.partition import Region
from ingot.frontend.jit.lowering.regions import RegionGraph
from ingot.frontend.jit.trace.ssa import Version
from ingot.frontend.jit.trace.trace import Variable, all_of
from ingot.runtime.compiler import CompiledModule


class RaisingRegion:
    def __init__(self, module: CompiledModule, region: Region, built: RegionGraph):
        self._module = module
        self._region = region
        self._given = (*region.inputs, *built.numbers)

    def execute(self, inputs: Sequence[Any], *device: Any) -> list[Any]:
        try:
            return self._module.execute(inputs, *device)
        except IngotError:
            without_gradients(self._repeat, inputs)
            raise

    def _repeat(self, inputs: Sequence[Any]) -> None:
        """Run the operations as PyTorch does, as far as their arguments are tensors and numbers."""
        values: dict[Any, Any] = dict(zip(self._given, inputs, strict=True))
        for operation in self._region.operations:
            given = (operation.arguments, operation.keywords)
            if all_of(SizeExpression, given):
                return
            arguments, keywords = _replaced(given, values)
            made = operation.target(*arguments, **keywords)
            is_several = isinstance(operation.results, list | tuple)
            results = zip(operation.results, made, strict=True) if is_several else [(operation.results, made)]
            values.update((version, tensor) for version, tensor in results if isinstance(version, Version))


def _replaced(value: Any, values: dict[Any, Any]) -> Any:
    """The same nested value with what a call has in the place of versions and open numbers."""
    if isinstance(value, Version | Variable):
        return values[value]
    if isinstance(value, list | tuple):
        return type(value)(_replaced(element, values) for element in value)
    if isinstance(value, dict):
        return {name: _replaced(element, values) for name, element in value.items()}
    return value
