"""A fixed part of PyTorch's database through following; `python -m tests.opinfo --python run` is the whole of it."""

import pytest

from tests.opinfo.database import DTYPES, PUBLISHED, has_dtype, operators
from tests.opinfo.report import fate_of_operator, problems
from tests.opinfo.trials import COMPILED, try_operator
from tests.opinfo.workers import Task

WAITING = [
    *(
        "add",
        "addcmul",
        "amax",
        "bmm",
        "cat",
        "clamp",
        "exp",
        "log_softmax",
        "masked_fill",
        "matmul",
        "max.binary",
        "mean",
    ),
    *("mul", "nn.functional.gelu", "nn.functional.layer_norm", "nn.functional.linear", "nn.functional.rms_norm"),
    *("nn.functional.scaled_dot_product_attention", "softmax", "stack", "sum", "var_mean", "where"),
]
"""Operators that can wait."""
OTHERS = [
    *(
        "__getitem__",
        "__rsub__",
        "argsort",
        "bernoulli",
        "chunk",
        "div.floor_rounding",
        "einsum",
        "gather",
        "index_put",
    ),
    *("linalg.cholesky", "masked_select", "meshgrid.list_of_tensors", "nn.functional.batch_norm", "nonzero"),
    *("nn.functional.cross_entropy", "nn.functional.dropout", "nn.functional.embedding", "pow", "scatter_add", "split"),
    *("squeeze", "tensor_split", "topk", "unbind", "view"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*WAITING, *OTHERS])
def test_followed_operator_gives_what_eager_gives(name):
    operator = operators()[name]
    dtypes = ("float32", PUBLISHED[1 + len(name) % (len(PUBLISHED) - 1)])
    tasks = [
        Task(name, dtype, 1, list(try_operator(operator, DTYPES[dtype], 1, python="run")), python="run")
        for dtype in dtypes
        if has_dtype(operator, DTYPES[dtype])
    ]
    wrong = [problem for task in tasks for problem in problems(task)]
    assert not wrong, "\n".join(wrong)
    if name in WAITING:
        assert fate_of_operator(tasks) == COMPILED
