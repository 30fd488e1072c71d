"""Every switch of torch that a recording depends on: flipping it is seen by Python, by native code and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.runtime import torch_state
from ingot.runtime.native.abi.settings import devices_in_use
from ingot.runtime.native.dispatch.dispatcher import dispatcher
from ingot.runtime.torch_state import GRAD_MODE, STATE, WATCHERS, ReadScope, StateRow, Watcher, changes, state_of_torch
from tests.frontend.jit.comparing import same
from tests.frontend.jit.follow.following_checks import followed
from tests.frontend.jit.records import expect_python, expect_record, jit, multiply_add, three, warm


@contextmanager
def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def _flag(get: Callable[[], bool], put: Callable[[bool], Any]) -> Any:
    return lambda: _set(get, put, not get())


FLIPS: dict[str, Callable[[], Any]] = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "the default dtype": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "autocast's dtype": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic algorithms": _flag(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "flash attention": _flag(torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash),
    "attention by products": _flag(torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math),
    "oneDNN": _flag(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "autocast's dtype on GPUs": lambda: _set(
        partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda"), True
    ),
    "cuDNN": _flag(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    "cuDNN's determinism": _flag(torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    "memory-efficient attention": _flag(torch._C._get_mem_efficient_sdp_enabled, torch._C._set_sdp_use_mem_efficient),
    "cuDNN's attention": _flag(torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn),
}
"""How to flip a row, by its name. The current GPU is flipped in tests/runtime/native/abi/test_device_settings.py,
where the function that tells it is another one."""
ROWS = [pytest.param(row, id=row.name) for row in STATE if row.name != "the current GPU"]


@pytest.fixture(autouse=True)
def one_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What matters once a GPU is in use needs one that is, or seems to be."""
    row = request.node.callspec.params.get("row") if hasattr(request.node, "callspec") else None
    is_about_gpus = row is not None and row.scope is ReadScope.GPU
    if not is_about_gpus or torch.cuda.is_available():
        if is_about_gpus:
            torch.cuda.init()
        yield
        return
    devices_in_use.forget()
    monkeypatch.setattr(torch_state, "is_gpu_in_use", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    yield
    devices_in_use.forget()


def test_every_row_is_flipped() -> None:
    assert {row.name for row in STATE} == {*FLIPS, "the current GPU"}
    assert {watcher.name for watcher in WATCHERS} == set(WATCHING)


def _reason(row: StateRow) -> str:
    """How a recording's reason says that a row was flipped."""
    before = row.read()
    with FLIPS[row.name]():
        now = row.read()
    assert before != now
    return f"{row.name} was {before}, is {now}"


@pytest.mark.parametrize("row", ROWS)
def test_python_and_native_code_see_a_flip_and_its_end(row: StateRow) -> None:
    native = dispatcher()
    assert native is not None
    word, state, reason = native.settings(), state_of_torch(), _reason(row)
    with FLIPS[row.name]():
        assert native.settings() not in (word, -1)
        assert reason in changes(state, state_of_torch())
    assert native.settings() == word and state_of_torch() == state


@pytest.mark.parametrize("row", ROWS)
def test_a_skipped_function_is_recorded_again_and_says_why(row: StateRow) -> None:
    function, reason = warm(jit(multiply_add), *three()), _reason(row)
    with FLIPS[row.name]():
        expect_python(function, multiply_add, *three())
        assert function._compiled.recordings == 2
        assert reason in function._compiled.recompiles[-1]
        assert reason in function.explain()
    expect_record(function, multiply_add, *three())
    assert function._compiled.recordings == 2


@pytest.mark.parametrize("row", ROWS)
def test_a_followed_function_goes_another_way(row: StateRow) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.tanh(x * y) + x, x @ y

    jitted, x, y = followed(function), torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(5):
        same(jitted(x, y), function(x, y))
    roots = set(jitted._compiled.follower._roots)
    with FLIPS[row.name]():
        same(jitted(x, y), function(x, y))
    new = set(jitted._compiled.follower._roots) - roots
    if row is GRAD_MODE:  # is compared with what each operand needs
        assert not new
    elif "autocast" in row.name:  # runs every call as PyTorch does
        assert new == {None}
    else:
        assert len(new) == 1 and None not in new
    same(jitted(x, y), function(x, y))


def test_a_followed_function_sees_a_flip_in_the_middle() -> None:
    def function(x: torch.Tensor) -> Any:
        integers = (x > 0).long()
        halves = integers / 2
        torch.set_default_dtype(torch.float64)
        try:
            return halves, integers / 2
        finally:
            torch.set_default_dtype(torch.float32)

    jitted, x = followed(function), torch.randn(4, 4)
    for _ in range(5):
        same(jitted(x), function(x))


@pytest.mark.parametrize(
    ("name", "eager", "shape", "chosen"),
    [
        ("flash attention", lambda q: functional.scaled_dot_product_attention(q, q, q) * 2, (1, 2, 8, 4), "bmm"),
        ("oneDNN", torch.nn.LSTM(4, 5).requires_grad_(False), (3, 2, 4), "sigmoid"),
    ],
)
def test_operators_are_those_that_eager_chooses(name: str, eager: Any, shape: tuple[int, ...], chosen: str) -> None:
    x, compiled = torch.randn(shape), jit(lambda x: eager(x), python="skip")
    for _ in range(4):
        compiled(x)
    assert chosen not in compiled.inspect("trace")
    with FLIPS[name]():
        for _ in range(4):
            same(compiled(x), eager(x))
    assert chosen in compiled.inspect("trace")


def test_the_first_use_of_a_gpu_is_one_reason() -> None:
    without = tuple(row.read() if row.scope is ReadScope.ALWAYS else None for row in STATE)
    within = tuple(value if row.scope is ReadScope.ALWAYS else 0 for row, value in zip(STATE, without, strict=True))
    assert list(changes(without, within)) == ["a GPU is in use"]
    assert list(changes(within, without)) == ["no GPU is in use any more"]


# --- what sees every operation ----------------------------------------------------------------------------------------


class _FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _compiling() -> Iterator[None]:
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False


def _while_traced(call: Callable[[], Any]) -> None:
    torch.jit.trace(lambda x: (call(), x)[1], (torch.ones(1),), check_trace=False)


def _within(context: Callable[[], Any]) -> Callable[[Callable[[], Any]], None]:
    def run(call: Callable[[], Any]) -> None:
        with context():
            call()

    return run


WATCHING: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "torch.compile or torch.export": _within(_compiling),
    "a dispatch mode": _within(_DispatchMode),
    "a function mode": _within(_FunctionMode),
    "a transform of torch.func": lambda call: torch.func.vmap(lambda x: (call(), x)[1])(torch.ones(2)),
    "torch.jit.trace": _while_traced,
    "forward gradients": _within(forward_ad.dual_level),
}
"""How to have a watcher active around a call, by its name."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*traced function.*")
@pytest.mark.parametrize("watcher", [pytest.param(watcher, id=watcher.name) for watcher in WATCHERS])
@pytest.mark.parametrize("python", ["auto", "run"])
def test_a_watched_call_is_the_original(watcher: Watcher, python: str) -> None:
    found: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 2)

    jitted, x = jit(function, python=python), torch.randn(4)
    for _ in range(20):
        jitted(x)
    compiled = jitted._compiled
    before = compiled.calls, compiled.follower.calls

    def call() -> None:
        assert watcher.is_active()
        found.append(jitted(x))

    WATCHING[watcher.name](call)
    assert len(found) == 1 and not watcher.is_active()
    same(found[0], function(x))
    assert (compiled.calls, compiled.follower.calls) == before, "a recording or a step answered"
    jitted(x)
    assert compiled.calls + compiled.follower.calls == sum(before) + 1
