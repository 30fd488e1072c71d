"""The operators of PyTorch's database, and the calls that its samples stand for.

In: an operator, a dtype and a kind of device. Out: its calls, in an order that is the same in every process: the
function itself, then in place, then with `out=`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

PUBLISHED = ("float32", "float64", "bfloat16", "int64", "bool")
"""The dtypes that a page has; the others have to be asked for."""
DTYPES = {
    name: getattr(torch, name)
    for name in (*PUBLISHED, "float16", "int32", "int16", "int8", "uint8", "complex64", "complex128")
}
FUNCTION, IN_PLACE, OUT = "function", "in place", "out="


@dataclass(frozen=True)
class Call:
    """A function and its arguments, which must not be written into: every use copies them."""

    variant: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    process: Callable[[Any], Any] = lambda result: result
    """Takes of its result what has gradients that are defined."""


@cache
def database_of_pytorch() -> Any:
    """PyTorch's module of operators with samples. The import is slow and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as database
        from torch.testing._internal import common_utils
        from torch.testing._internal.opinfo import core
    # PyTorch looks for a test of unittest's before it makes samples, which reads the source of each frame of the stack.
    common_utils.extract_test_fn = core.extract_test_fn = _no_test
    return database


def _no_test() -> None:
    return None


@cache
def operators() -> dict[str, Any]:
    """Every operator by its name, variants of its arguments included."""
    database = database_of_pytorch()
    # Random operators would seed PyTorch's generator themselves, which no compiled function may do.
    database.wrapper_set_seed = _unseeded
    return {".".join(filter(None, (op.name, op.variant_test_name))): op for op in database.op_db}


def _unseeded(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


def has_dtype(operator: Any, dtype: torch.dtype, device: str = "cpu", gradients: bool = False) -> bool:
    """Whether an operator takes a dtype, and has gradients, if they are asked for."""
    if not gradients:
        return operator.supports_dtype(dtype, device)
    return operator.supports_autograd and dtype in operator.supported_backward_dtypes(device)


SAMPLES = "samples"
INPUTS: Mapping[str, Callable[[Any, str, torch.dtype], Iterator[Any]]] = {
    SAMPLES: lambda operator, device, dtype: operator.sample_inputs(device, dtype),
    "reference": lambda operator, device, dtype: operator.reference_inputs(device, dtype),
    "noncontiguous": lambda operator, device, dtype: (
        sample.noncontiguous() for sample in operator.sample_inputs(device, dtype)
    ),
}
"""Which inputs of the database: the usual ones, more of them with extreme values and layouts, and the usual ones in
memory with gaps."""


def differentiable_calls(operator: Any, dtype: torch.dtype, most: int | None, device: str) -> Iterator[Call]:
    """The calls of an operator's samples that can be differentiated, with arguments that need gradients."""
    torch.manual_seed(0)
    samples = list(operator.sample_inputs(device, dtype, requires_grad=True))
    if most is not None and len(samples) > most:
        samples = [samples[number * len(samples) // most] for number in range(most)]
    for sample in samples:
        process = sample.output_process_fn_grad or (lambda result: result)
        yield Call(FUNCTION, operator.op, (sample.input, *sample.args), sample.kwargs, process)


def calls(
    operator: Any, dtype: torch.dtype, most: int | None, device: str = "cpu", inputs: str = SAMPLES
) -> Iterator[Call]:
    """The calls of an operator's samples; of every variant at most so many, evenly taken from all."""
    torch.manual_seed(0)
    samples = list(INPUTS[inputs](operator, device, dtype))
    if most is not None and len(samples) > most:
        samples = [samples[number * len(samples) // most] for number in range(most)]
    for sample in samples:
        yield Call(FUNCTION, operator.op, (sample.input, *sample.args), sample.kwargs)
    if operator.inplace_variant is not None:
        for sample in samples:
            if not sample.broadcasts_input:
                yield Call(IN_PLACE, operator.inplace_variant, (sample.input, *sample.args), sample.kwargs)
    if operator.supports_out:
        for sample in samples:
            yield Call(OUT, operator.op, (sample.input, *sample.args), sample.kwargs)


def with_out(call: Call, result: Any) -> Call | None:
    """A call that writes into tensors like the ones it returned without; None if those are not tensors alone."""
    results = tuple(result) if isinstance(result, tuple | list) else (result,)
    if not results or not all(isinstance(one, torch.Tensor) and one.layout is torch.strided for one in results):
        return None
    out = tree_map_only(torch.Tensor, lambda one: torch.ones_like(one), results)
    kwargs = {**call.kwargs, "out": out if isinstance(result, tuple | list) else out[0]}
    return Call(OUT, call.function, call.args, kwargs)
