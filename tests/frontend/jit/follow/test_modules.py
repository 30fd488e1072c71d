"""Every module of torch.nn: with and without following the same results, strides and random numbers.

Where nothing waits, all calls run PyTorch's own operators under the mode and must agree bit for bit: nothing in torch
may take another way because a mode watches. INGOT_TEST_EXAMPLES over 100 tries every input of PyTorch's own database.
"""

from __future__ import annotations

import copy
import os
import warnings
from functools import cache
from typing import Any

import pytest
import torch

from ingot.frontend.jit.follow import following
from ingot.frontend.jit.follow.steps.observing import ALONE
from tests.frontend.jit.follow.following_checks import followed, nothing_is_left, outcome, same

MOST = 1 if int(os.environ.get("INGOT_TEST_EXAMPLES", "60")) <= 100 else 1000
CALLS = 3


@cache
def _modules() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return {info.name: info for info in module_db}


def _inputs(info: Any, training: bool) -> list[Any]:
    torch.manual_seed(0)
    found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    usual = [one for one in found if one.forward_input is not None]
    return usual if MOST > 1 else usual[:1]


def _compare(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> None:
    """As it is, and with every operation run at its call."""
    _compare_calls(module, args, kwargs, where, is_exact=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "observe", lambda function, args, kwargs, _: (function(*args, **kwargs), ALONE))
        _compare_calls(module, args, kwargs, f"{where}, nothing waits", is_exact=True)


def _compare_calls(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str, is_exact: bool
) -> None:
    eager, jitted_module = copy.deepcopy(module), copy.deepcopy(module)
    jitted = followed(lambda *args, **kwargs: jitted_module(*args, **kwargs))
    for call in range(1 if is_exact else CALLS):
        torch.manual_seed(call)
        expected = outcome(lambda: eager(*copy.deepcopy(args), **kwargs), ())
        state = torch.get_rng_state()
        torch.manual_seed(call)
        found = outcome(lambda: jitted(*copy.deepcopy(args), **kwargs), ())
        assert torch.equal(state, torch.get_rng_state()), f"{where}: other random numbers"
        same(found, expected, f"{where}, call {call}")
        same(dict(jitted_module.named_buffers()), dict(eager.named_buffers()), f"{where}, buffers")
        if is_exact:
            _exactly(found, expected, where)


def _exactly(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0)), f"{where}: not bit for bit"
    elif isinstance(expected, list | tuple):
        for pair in zip(found, expected, strict=True):
            _exactly(*pair, where)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", sorted(_modules()))
def test_module(name, training):
    info = _modules()[name]
    if training and not info.train_and_eval_differ:
        return
    with torch.no_grad():
        for number, given in enumerate(_inputs(info, training)):
            torch.manual_seed(1)
            build = given.constructor_input
            module = info.module_cls(*build.args, **build.kwargs).train(training)
            forward = given.forward_input
            _compare(module, forward.args, forward.kwargs, f"{name} input {number}")
    nothing_is_left()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_transformers_take_their_own_way(fast, masked):
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        mask = {"src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])} if masked else {}
        for context in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
            with context:
                _compare(model, (torch.randn(2, 5, 16),), mask, "encoder")
        attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
        x = torch.randn(2, 5, 16)
        with torch.no_grad():
            _compare(attention, (x, x, x), {}, "attention")
            _compare(attention, (x, x, x), {"need_weights": False}, "attention")
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
