"""A fixed part of PyTorch's database with gradients; `python -m tests.opinfo --gradients` is the whole of it."""

import pytest

from tests.opinfo.database import DTYPES, has_dtype, operators
from tests.opinfo.report import problems
from tests.opinfo.trials import COMPILED, try_operator
from tests.opinfo.workers import Task

GENERATED = [
    *("add", "addcmul", "amax", "clamp", "div.no_rounding_mode", "exp", "log_softmax", "logsumexp", "masked_fill"),
    *("mean", "mul", "nn.functional.gelu", "nn.functional.layer_norm", "nn.functional.rms_norm", "nn.functional.silu"),
    *("norm", "pow", "sigmoid", "softmax", "std", "sub", "sum", "tanh", "var_mean", "where"),
]
"""Operators with generated kernels in both passes."""
OTHERS = [
    *("__getitem__", "bmm", "cat", "cumsum", "einsum", "expand", "gather", "index_add", "linalg.solve", "matmul"),
    *("nn.functional.batch_norm", "nn.functional.conv2d", "nn.functional.cross_entropy", "nn.functional.dropout"),
    *("nn.functional.embedding", "nn.functional.linear", "scatter_add", "split", "t"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*GENERATED, *OTHERS])
def test_gradients_of_operators_are_eagers(name):
    operator = operators()[name]
    tasks = [
        Task(name, dtype, 2, list(try_operator(operator, DTYPES[dtype], 2, gradients=True)), gradients=True)
        for dtype in ("float32", "float64")
        if has_dtype(operator, DTYPES[dtype], gradients=True)
    ]
    assert tasks
    wrong = [problem for task in tasks for problem in problems(task)]
    assert not wrong, "\n".join(wrong)
    if name in GENERATED:
        assert COMPILED in {verdict.fate for task in tasks for verdict in task.verdicts}
