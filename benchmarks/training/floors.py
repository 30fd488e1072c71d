"""The floor of a training step: its products alone.

In: a step. Out: a call that makes the same products again, forward and backward, with the tensors of one eager step:
products of matrices, convolutions, attention, and the kernels of recurrent networks, each as PyTorch runs it. What
always holds: nothing else is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = frozenset(
    {
        *("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "convolution_backward"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
        *("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"),
    }
)


class _Products(TorchDispatchMode):
    """Notes the products that run while it is active, with what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False keeps torch from importing its compiler for the sake of this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in _PRODUCTS:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def products_of(step: Callable[[], object]) -> Callable[[], None]:
    """The products of a step, to be called again."""
    with _Products() as products:
        step()
    calls = products.calls

    def again() -> None:
        with torch.no_grad():
            for function, args, kwargs in calls:
                function(*args, **kwargs)

    return again
