"""Functions that call native code of other packages: it may read and write tensors without any operation."""

from __future__ import annotations

import types
from typing import Any

import torch

from ingot import jit
from ingot.frontend.jit.trace.effects import _effect


def effect_of(called: object) -> str | None:
    frame = types.SimpleNamespace(f_globals={"__name__": "a_users_module"})
    return _effect(frame, called)  # pyright: ignore[reportArgumentType]


class Outputs(dict):
    """A container of a user's, whose methods are Python's own."""


def test_native_code_of_others_is_an_effect():
    unknown = types.SimpleNamespace(__self__=None, __module__="other_kernels", __name__="forward")
    found = effect_of(unknown)
    assert found is not None and "other_kernels.forward" in found


def test_compiled_kernels_of_torchs_own_are_an_effect():
    launches = types.SimpleNamespace(
        __self__=torch._C, __module__=None, __name__="_cuda_jiterator_compile_and_launch_kernel"
    )
    assert effect_of(launches) is not None


def test_pythons_and_torchs_own_functions_are_none():
    x = torch.zeros(2)
    for called in (len, [].append, "".join, Outputs().keys, x.size, torch.add, torch._C._get_tracing_state):
        assert effect_of(called) is None, called


def test_operations_of_others_are_called():
    """What an operation does inside, in Python or not, it does again at every call."""
    seen: list[int] = []

    @torch.library.custom_op("ingot_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        seen.append(1)
        return x * 2

    function: Any = jit(lambda x: doubled(x + 1) * 3, fullgraph=True, python="skip")
    for _ in range(5):
        x = torch.randn(8, 8)
        torch.testing.assert_close(function(x), (x + 1) * 6)
    assert len(seen) >= 5
