"""A fixed part of PyTorch's database through `ingot.jit`; `python -m tests.opinfo` is the whole of it."""

import contextlib
from typing import Any

import pytest
import torch

from ingot import jit
from tests.opinfo.database import DTYPES, FUNCTION, PUBLISHED, Call, has_dtype, operators
from tests.opinfo.report import fate_of_operator, page, problems
from tests.opinfo.trials import COMPILED, CRASH, EAGER, LIBRARY, Verdict, try_call, try_operator
from tests.opinfo.workers import MOST_CRASHES, Task, run_tasks

SAMPLES = 2
OTHERS = [dtype for dtype in PUBLISHED if dtype != "float32"]


def _words(text: str) -> list[str]:
    return text.split()


KERNELS = _words("""
    __radd__ __rpow__ __rsub__ abs acos add addcdiv addcmul all amax amin any asinh atan2 bfloat16 ceil clamp copysign
    cos count_nonzero deg2rad diff div.no_rounding_mode eq erf exp expm1 fmax fmod ge heaviside hypot
    isclose isnan lerp lgamma log1p log_softmax logaddexp logical_and logit logsumexp masked_fill maximum mean mul
    nan_to_num neg nn.functional.celu nn.functional.cross_entropy nn.functional.gelu nn.functional.hardswish
    nn.functional.huber_loss nn.functional.layer_norm nn.functional.leaky_relu nn.functional.mse_loss
    nn.functional.normalize nn.functional.relu nn.functional.rms_norm nn.functional.silu nn.functional.softplus norm pow
    prod reciprocal remainder round rsqrt sigmoid sign sin softmax sqrt std sub sum tanh trunc var var_mean where
    xlogy
""")
LIBRARY_CALLS = _words("""
    __getitem__ addmm argmax baddbmm cat cumsum diagonal expand fft.rfft flip gather index_add index_put index_select
    linalg.qr logcumsumexp masked_scatter matmul nn.functional.avg_pool2d nn.functional.conv2d nn.functional.embedding
    nn.functional.interpolate.bilinear nn.functional.linear nn.functional.max_pool2d
    nn.functional.scaled_dot_product_attention permute repeat roll scatter_add select sort split stack take tril unbind
    view zeros_like div.floor_rounding
""")
EAGER_ONLY = ["nonzero", "masked_select", "item", "unique"]
CHOSEN = [*KERNELS, *LIBRARY_CALLS, *EAGER_ONLY, "empty_like", "nn.functional.dropout", "normal"]


def tried(name, device="cpu"):
    """An operator with float32 and with another dtype, which is not the same for all operators."""
    operator = operators()[name]
    return [
        Task(name, dtype, SAMPLES, list(try_operator(operator, DTYPES[dtype], SAMPLES, device=device)), device)
        for dtype in ("float32", OTHERS[len(name) % len(OTHERS)])
        if has_dtype(operator, DTYPES[dtype], device)
    ]


def test_every_sample_is_recorded_though_functions_take_so_many_kinds_of_calls(monkeypatch):
    for module in ("ingot.frontend.jit.cache.recording_table", "tests.opinfo.trials"):
        monkeypatch.setattr(f"{module}.MOST_SPECIALISATIONS", 2)
    fates = [verdict.fate for verdict in try_operator(operators()["add"], torch.float32, 6)]
    assert len(fates) > 6 and EAGER not in fates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", CHOSEN)
def test_operator_gives_what_eager_gives(name, device):
    tasks = tried(name, device)
    wrong = [problem for task in tasks for problem in problems(task)]
    assert not wrong, "\n".join(wrong)
    if name in KERNELS:
        assert fate_of_operator(tasks) == COMPILED
    elif name in EAGER_ONLY:
        assert fate_of_operator(tasks) == EAGER


# --- the trials themselves --------------------------------------------------------------------------------------------


class Impostor:
    """A compiled function whose results are another function's."""

    def __init__(self, function, other):
        self._real: Any = jit(function)
        self._other = other
        self._compiled = self._real._compiled

    def __call__(self, *args, **kwargs):
        with contextlib.suppress(ValueError):
            self._real(*args, **kwargs)
        return self._other(*args, **kwargs)


def problem_of(function, other, *args):
    return try_call(Impostor(function, other), Call(FUNCTION, function, args, {})).problem


def doubled(x):
    return x * 2


@pytest.mark.parametrize(
    "other, problem",
    [
        (lambda x: x * 2.01, "elements differ"),
        (lambda x: (x * 2).double(), "dtype"),
        (lambda x: (x * 2)[:1], "shape"),
        (lambda x: (x * 2).T.contiguous().T, "strides"),
        (lambda x: x.mul_(2), "result 0 is tensor 0"),
        (lambda x: (x * 2, None), "a tuple, where eager gives a Tensor"),
        (lambda x: x.no_such_method(), "raises AttributeError"),
    ],
)
def test_wrong_results_are_seen(other, problem):
    assert problem in problem_of(doubled, other, torch.randn(3, 4))


def test_changed_arguments_are_seen():
    def writes(x):
        x.add_(1)
        return x.sum()

    def keeps(x):
        return (x + 1).sum()

    assert "arguments" in problem_of(keeps, writes, torch.randn(3))
    assert "result 0" not in problem_of(writes, keeps, torch.randn(3))


def test_more_exact_results_than_eagers_are_right():
    def rounded(x):
        return ((x + 100.0) - 100.0).sum()

    x = torch.rand(64).bfloat16()
    assert problem_of(rounded, lambda x: x.double().sum().to(x.dtype), x) == ""
    assert problem_of(rounded, lambda x: x.sum() + 8, x) != ""


def test_memory_that_eager_does_not_write_may_hold_anything():
    def partly(x):
        seed = torch.empty((), dtype=torch.int64)
        if not torch.are_deterministic_algorithms_enabled():
            seed.fill_(7)  # what happens to be there, time after time
        return x * 2, seed

    x = torch.randn(3)
    assert problem_of(partly, lambda x: (x * 2, torch.tensor(8)), x) == ""
    assert "dtype" in problem_of(partly, lambda x: (x * 2, torch.tensor(8.0)), x)
    assert "elements differ" in problem_of(lambda x: (x * 2, torch.tensor(7)), lambda x: (x * 2, torch.tensor(8)), x)


def test_missing_errors_are_seen():
    def refuses(x):
        raise ValueError("no")

    assert "raises nothing" in problem_of(refuses, doubled, torch.ones(2))


# --- processes and pages ----------------------------------------------------------------------------------------------


def test_verdicts_come_back_from_processes():
    (done,) = run_tasks([Task("abs", "float32", 1)], jobs=1)
    assert [verdict.variant for verdict in done.verdicts] == ["function", "in place", "out="]
    assert not any(verdict.problem for verdict in done.verdicts)


def test_a_process_that_dies_costs_what_it_was_at():
    (done,) = run_tasks([Task("abs", "no such dtype", 1)], jobs=1)
    assert [verdict.problem for verdict in done.verdicts] == ["crash: the process ended with code 1"] * MOST_CRASHES


def test_crashes_are_counted_apart_from_what_is_wrong():
    verdicts = [
        Verdict(FUNCTION, COMPILED),
        Verdict(FUNCTION, COMPILED, problem="wrong"),
        Verdict("", EAGER, problem=CRASH),
    ]
    text = page([Task("abs", "float32", None, verdicts, "cuda")])
    assert "| all | 1 | 3 | 2 | 0 | 1 | 0 | 1 | 1 |" in text
    assert "every CUDA GPU operator" in text


def test_page_names_every_operator():
    tasks = [*tried("nn.functional.relu"), *tried("sort"), *tried("nonzero")]
    text = page(tasks)
    assert "## With generated kernels\n\n`nn.functional.relu`\n" in text
    assert "## Library calls alone\n\n`sort`\n" in text
    assert "## Always eager\n\n`nonzero`\n" in text
    assert "| the shape of what an operator returns depends on values |" in text
    assert fate_of_operator(tasks[-1:]) == EAGER
    assert {verdict.fate for verdict in tasks[0].verdicts} <= {COMPILED, LIBRARY}
