"""Rules for other sizes against PyTorch: every rule, for every pair of shapes, is right or says nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ingot.frontend.jit.follow import following
from ingot.frontend.jit.follow.steps.metadata_rules import foretell
from ingot.frontend.jit.follow.steps.observing import observe
from ingot.frontend.jit.follow.steps.step_tree import Outcome, Wait, metadata_of
from ingot.frontend.jit.trace.trace import all_of

UNARY = [(), (1,), (5,), (0,), (2, 3), (1, 3), (3, 1), (0, 3), (2, 0), (2, 3, 4), (1, 3, 1), (2, 1, 4), (4, 1, 1)]
PAIRS = [
    *(((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 1), (1, 3)), ((2, 3), (3,)), ((1, 1), (4, 5)), ((2, 3), (2, 4))),
    *(((4, 1), (4, 1)), ((0, 3), (1, 3)), ((2, 3), ()), ((), ()), ((2, 3, 4), (3, 1)), ((5, 1, 4), (5, 4, 1))),
    *(((2, 3, 4), (2, 1, 4)), ((1, 3, 1), (1, 3, 1)), ((7, 2), (2,)), ((7, 2), (3,)), ((1, 0), (4, 1)), ((3,), (3,))),
]
PRODUCTS = [
    *(((2, 3), (3, 4)), ((1, 3), (3, 1)), ((5, 1), (1, 2)), ((2, 3), (4, 5)), ((0, 3), (3, 4)), ((2, 0), (0, 3))),
    *(((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (1, 4, 1)), ((2, 3, 4), (3, 4, 5)), ((6, 3, 2), (6, 2, 7))),
    *(((2, 2, 3, 4), (2, 2, 4, 5)), ((1, 5, 3, 2), (1, 5, 2, 3)), ((2, 1, 3, 4), (2, 3, 4, 2))),
]


def _tensors(shapes: Any, kind: str, dtype: torch.dtype) -> list[torch.Tensor]:
    if kind == "transposed":
        return [torch.ones(shape[::-1], dtype=dtype).permute(tuple(range(len(shape)))[::-1]) for shape in shapes]
    return [torch.ones(shape, dtype=dtype) for shape in shapes]


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Learn = tuple[Callable[..., Any], Callable[[list[torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]]


def _check(call: Learn, shapes: list[Any], kind: str = "plain", dtype: torch.dtype = torch.float32) -> int:
    """Learn from each shape, foretell every other one; gives how many were foretold."""
    function, arrange = call
    foretold = 0
    for seen, given in itertools.product(shapes, shapes):
        tensors = _tensors(seen, kind, dtype)
        try:
            args, kwargs = arrange(tensors)
            _, known = observe(function, args, kwargs, all_of(torch.Tensor, args))
        except (RuntimeError, IndexError, ValueError):
            continue
        tensors = _tensors(given, kind, dtype)
        try:
            args, kwargs = arrange(tensors)
        except RuntimeError:
            continue
        operands = all_of(torch.Tensor, args)
        guess = foretell(function, args, kwargs, known, tuple(map(metadata_of, operands)))
        if guess is not None and guess.wait in (Wait.LATER, Wait.IN_PLACE):
            foretold += 1
            _, real = observe(function, args, kwargs, operands)  # raises where eager raises and the rule does not
            _is_right(guess, real, (function, seen, given, kind))
    return foretold


def _is_right(guess: Outcome, real: Outcome, where: Any) -> None:
    assert guess.wait is real.wait, where
    assert guess.results == real.results, (where, guess.results, real.results)
    assert guess.container is real.container, where


def _plain(*others: Any, **named: Any) -> Callable[[list[torch.Tensor]], Any]:
    return lambda tensors: ((*tensors, *others), dict(named))


def _of_list(*others: Any) -> Callable[[list[torch.Tensor]], Any]:
    return lambda tensors: ((tensors, *others), {})


SINGLE: dict[str, Learn] = {
    "exp": (torch.exp, _plain()),
    "add number": (torch.Tensor.add, _plain(2)),
    "rsub": (torch.rsub, _plain(1.0)),
    "gelu": (F.gelu, _plain()),
    "silu": (F.silu, _plain()),
    "clamp": (torch.clamp, _plain(0.0, 1.0)),
    "compare": (torch.Tensor.__gt__, _plain(0)),
    "double": (torch.Tensor.double, _plain()),
    "to": (torch.Tensor.to, _plain(torch.float16)),
    "clone": (torch.clone, _plain()),
    "contiguous": (torch.Tensor.contiguous, _plain()),
    "zeros_like": (torch.zeros_like, _plain()),
    "add_": (torch.Tensor.add_, _plain(1.0)),
    "mul_": (torch.Tensor.mul_, _plain(2)),
    "softmax": (torch.softmax, _plain(-1)),
    "log_softmax": (torch.log_softmax, _plain(0)),
    "cumsum": (torch.cumsum, _plain(0)),
    "tril": (torch.tril, _plain()),
    "flip": (torch.flip, _plain((0,))),
    "roll": (torch.roll, _plain(1, 0)),
    "layer_norm": (torch.layer_norm, _plain((3,))),
    "layer_norm of two axes": (torch.layer_norm, _plain((3, 4))),
    "sum": (torch.sum, _plain()),
    "sum of an axis": (torch.sum, _plain(-1)),
    "sum of axes": (torch.sum, _plain((0, -1), True)),
    "sum of the middle": (torch.Tensor.sum, _plain(dim=1, keepdim=False)),
    "mean": (torch.mean, _plain(0, keepdim=True)),
    "prod": (torch.prod, _plain(0)),
    "amax": (torch.amax, _plain(-1, keepdim=True)),
    "amin": (torch.amin, _plain((0,))),
    "max": (torch.max, _plain()),
    "max of an axis": (torch.max, _plain(1)),
    "min of an axis": (torch.min, _plain(0, True)),
    "argmax": (torch.argmax, _plain()),
    "argmin of an axis": (torch.argmin, _plain(-1)),
    "any": (torch.any, _plain(0)),
    "all": (torch.all, _plain()),
    "logsumexp": (torch.logsumexp, _plain(-1, True)),
    "var": (torch.var, _plain(-1)),
    "diff": (torch.diff, _plain()),
    "glu": (torch.nn.functional.glu, _plain(-1)),
}
DOUBLE: dict[str, Learn] = {
    "add": (torch.add, _plain()),
    "mul": (torch.Tensor.__mul__, _plain()),
    "where": (torch.where, lambda tensors: ((tensors[0] > 0, *tensors), {})),
    "masked_fill": (torch.masked_fill, lambda tensors: ((tensors[0], tensors[1] > 2, 1.0), {})),
    "maximum": (torch.max, _plain()),
    "add_": (torch.Tensor.add_, _plain()),
    "copy_": (torch.Tensor.copy_, _plain()),
    "cat": (torch.cat, _of_list()),
    "cat of the last": (torch.cat, _of_list(-1)),
    "stack": (torch.stack, _of_list()),
    "stack of the last": (torch.stack, _of_list(-1)),
    "addcmul": (torch.addcmul, lambda tensors: ((tensors[0], tensors[0], tensors[1]), {"value": 2.0})),
}
MATRICES: dict[str, Learn] = {
    "matmul": (torch.matmul, _plain()),
    "operator": (torch.Tensor.__matmul__, _plain()),
    "mm": (torch.mm, _plain()),
    "bmm": (torch.bmm, _plain()),
}
USELESS = ("contiguous", "zeros_like", "var", "diff", "glu", "copy_")
"""Those for which no rule says anything, or only for other layouts."""


@pytest.mark.parametrize("kind", ["plain", "transposed"])
@pytest.mark.parametrize("name", SINGLE)
def test_rules_of_one_operand(name, kind):
    foretold = _check(SINGLE[name], [(shape,) for shape in UNARY], kind)
    assert foretold or kind == "transposed" or name in USELESS


@pytest.mark.parametrize("name", DOUBLE)
@pytest.mark.parametrize("kind", ["plain", "transposed"])
def test_rules_of_two_operands(name, kind):
    foretold = _check(DOUBLE[name], PAIRS, kind)
    assert foretold or kind == "transposed" or name in USELESS


@pytest.mark.parametrize("kind", ["plain", "transposed"])
@pytest.mark.parametrize("name", MATRICES)
def test_rules_of_products(name, kind):
    assert _check(MATRICES[name], PRODUCTS, kind)


def test_rules_of_linear():
    shapes = [
        *(((2, 3), (4, 3), (4,)), ((5, 3), (4, 3), (4,)), ((5, 2), (4, 3), (4,)), ((1, 3), (1, 3), (1,))),
        *(((2, 5, 3), (4, 3), (4,)), ((1, 1, 3), (4, 3), (4,)), ((0, 3), (4, 3), (4,)), ((2, 3), (4, 3), (1,))),
        *(((3,), (4, 3), (4,)), ((2, 2, 2, 3), (4, 3), (4,)), ((2, 5, 3), (7, 3), (7,))),
    ]
    assert _check((F.linear, _plain()), shapes)
    assert _check((F.linear, _plain()), [shape[:2] for shape in shapes])
    added = [((4,), (2, 3), (3, 4)), ((4,), (7, 3), (3, 4)), ((7, 4), (7, 3), (3, 4)), ((5,), (7, 3), (3, 4))]
    assert _check((torch.addmm, _plain()), added)


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"padding": (1, 0), "stride": (1, 2)}, {"dilation": 2}, {"padding": "same"}],
)
def test_rules_of_convolutions(options):
    shapes = [
        *(((1, 2, 8, 8), (3, 2, 3, 3), (3,)), ((2, 2, 9, 7), (3, 2, 3, 3), (3,)), ((4, 2, 3, 3), (3, 2, 3, 3), (3,))),
        *(((1, 2, 2, 8), (3, 2, 3, 3), (3,)), ((1, 1, 8, 8), (1, 1, 1, 1), (1,)), ((2, 4, 1, 1), (3, 4, 1, 1), (3,))),
        *(((2, 4, 5, 5), (3, 4, 1, 1), (3,)), ((0, 2, 8, 8), (3, 2, 3, 3), (3,)), ((1, 3, 8, 8), (3, 2, 3, 3), (3,))),
    ]
    foretold = _check((torch.conv2d, _plain(**options)), shapes)
    assert foretold or options.get("padding") == "same"


def test_rules_of_norms_with_weights():
    shapes = [
        ((2, 3), (3,), (3,)),
        ((7, 3), (3,), (3,)),
        ((1, 3), (3,), (3,)),
        ((2, 4), (3,), (3,)),
        ((0, 3), (3,), (3,)),
    ]
    call = (torch.layer_norm, lambda tensors: ((tensors[0], (3,), tensors[1], tensors[2]), {}))
    assert _check(call, shapes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_rules_of_other_dtypes(dtype):
    for name in ("exp", "add number", "sum", "softmax", "to", "max of an axis"):
        _check(SINGLE[name], [(shape,) for shape in UNARY], dtype=dtype)
    _check(DOUBLE["add"], PAIRS, dtype=dtype)


def test_other_dtypes_have_to_be_seen():
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    _, known = observe(torch.add, (x, y), {}, [x, y])
    assert foretell(torch.add, (x, y), {}, known, (metadata_of(x), metadata_of(y))) is not None
    assert foretell(torch.add, (x, y), {}, known, (metadata_of(x), metadata_of(y.double()))) is None
    assert foretell(torch.add, (x, y[0, 0]), {}, known, (metadata_of(x), metadata_of(y[0, 0]))) is None


def test_other_sizes_do_not_run_what_is_pending():
    from tests.frontend.jit.follow.following_checks import followed

    def function(x):
        return torch.softmax(torch.tanh(x) * 2 + 1, -1).sum(-1)

    jitted = followed(function)
    for length in range(2, 12):
        x = torch.randn(3, length)
        torch.testing.assert_close(jitted(x), function(x))
    root = next(iter(jitted._compiled.follower._roots.values()))
    learned = sum(map(len, root.tree.outcomes.values()))
    observed: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "observe", lambda *given: observed.append(given) or observe(*given))
        for length in range(20, 30):
            x = torch.randn(3, length)
            torch.testing.assert_close(jitted(x), function(x))
    assert not observed
    assert sum(map(len, root.tree.outcomes.values())) > learned
