"""Overloads called by hand: those PyTorch's own samples do not reach, and the traps of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot import IngotError, JitCompiler
from ingot.base.errors import ExecutionError, UnsupportedError
from ingot.frontend.aten import lowering_for
from ingot.frontend.aten.table import ROWS
from ingot.ir.interpreter import Interpreter

from . import calls

COMPILER = JitCompiler()
NAN, INF = float("nan"), float("inf")


def overload_of(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def lowered(name: str, *arguments: Any, **keywords: Any) -> None:
    """The call becomes nodes that say what PyTorch says."""
    assert calls.check(calls.one_call(overload_of(name), *arguments, **keywords), COMPILER), (
        f"{name} is left to PyTorch"
    )


def left(name: str, *arguments: Any, **keywords: Any) -> None:
    """The call is left to PyTorch, whatever it answers."""
    with pytest.raises(IngotError):
        calls.graph_of(calls.Call(overload_of(name), arguments, keywords, ()))


FLOATS = torch.tensor([[0.5, -0.25, 0.75], [-0.0, 0.125, 0.9]])
OTHERS = torch.tensor([[0.25, 0.5, -2.0], [1.5, 3.0, -0.5]])
ABOVE_ONE = FLOATS.abs() + 1
WHOLE = torch.tensor([[5, -3, 7], [0, 1, -8]])
SMALL = torch.tensor([[1, 2, 3], [3, 2, 1]])
TRUTHS = torch.tensor([[True, False, True], [False, False, True]])
PAIRS = torch.complex(FLOATS, OTHERS)
GRADIENT = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


def cases() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments for every overload called by hand."""
    found: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def add(names: str, *arguments: Any, **keywords: Any) -> None:
        for name in names.split():
            found[name if "." in name else f"{name}.default"] = (arguments, keywords)

    add("absolute arccos arcsin arcsinh arctan arctanh negative positive square fix isfinite isreal", FLOATS)
    add("special_erf special_erfc special_erfinv special_exp2 special_expit special_expm1 special_log1p", FLOATS)
    add("special_sinc log_sigmoid relu6 selu contiguous conj detach_copy lift_fresh_copy zero mT adjoint", FLOATS)
    add("arccosh special_gammaln", ABOVE_ONE)
    add("_conj conj_physical _conj_physical view_as_real view_as_real_copy", PAIRS)
    add("complex polar", FLOATS, OTHERS)
    add("_neg_view", FLOATS)
    add("special_logit", FLOATS.abs())
    add("greater.Tensor greater_equal.Tensor less.Tensor less_equal.Tensor not_equal.Tensor", FLOATS, OTHERS)
    add("greater.Scalar greater_equal.Scalar less.Scalar less_equal.Scalar not_equal.Scalar gt.Scalar", FLOATS, 0.1)
    add("divide.Tensor true_divide.Tensor multiply.Tensor subtract.Tensor max.other min.other arctan2", FLOATS, OTHERS)
    add("divide.Scalar true_divide.Scalar multiply.Scalar subtract.Scalar fmod.Scalar copysign.Scalar", FLOATS, -0.3)
    add("divide.Tensor_mode", FLOATS, OTHERS, rounding_mode="trunc")
    add("divide.Scalar_mode div.Scalar_mode", WHOLE, -2, rounding_mode="floor")
    add("floor_divide.Scalar", WHOLE, 3)
    add("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar __or__.Scalar __xor__.Scalar", WHOLE, 6)
    add("bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor", 6, WHOLE)
    add("__and__.Tensor __or__.Tensor __xor__.Tensor __lshift__.Tensor __rshift__.Tensor", WHOLE, SMALL)
    add(
        "bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar __lshift__.Scalar __rshift__.Scalar",
        WHOLE,
        2,
    )
    add("bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Scalar_Tensor remainder.Scalar_Tensor", 37, SMALL)
    add("float_power.Tensor_Tensor", ABOVE_ONE, WHOLE)
    add("float_power.Tensor_Scalar", WHOLE, 3)
    add("float_power.Scalar pow.Scalar", 2, OTHERS)
    add("special_xlogy special_xlog1py xlogy.Tensor", FLOATS, ABOVE_ONE)
    add("special_xlogy.other_scalar special_xlog1py.other_scalar xlogy.Scalar_Other", FLOATS, 2.5)
    add("special_xlogy.self_scalar special_xlog1py.self_scalar xlogy.Scalar_Self", 2.5, ABOVE_ONE)
    add("where.ScalarSelf", TRUTHS, 2.0, FLOATS)
    add("where.ScalarOther", TRUTHS, FLOATS, 2.0)
    add("where.Scalar", TRUTHS, 1.0, 2.0)
    add("clip", FLOATS, -0.1, 0.6)
    add("clip.Tensor", FLOATS, OTHERS, ABOVE_ONE)
    add("clamp_max clamp_min", FLOATS, 0.3)
    add("lerp.Tensor", FLOATS, OTHERS, FLOATS)
    add("fill.Tensor", FLOATS, torch.tensor(2))
    add("copy", FLOATS, torch.tensor([1, 2, 3]))
    add("l1_loss", FLOATS, OTHERS)
    add("_reshape_alias", FLOATS, [3, 2], [2, 1])
    add("reshape _reshape_copy view_copy", FLOATS, [-1, 2])
    add("view_as reshape_as", FLOATS, torch.zeros(6))
    add("expand_as", FLOATS, torch.zeros(2, 2, 3))
    add("broadcast_to expand_copy", FLOATS, [2, 2, 3])
    add("flatten.using_ints", torch.zeros(2, 3, 4), 1, -1)
    add("swapaxes swapdims", torch.rand(2, 3, 4), 0, -1)
    add("movedim.int moveaxis.int", torch.rand(2, 3, 4), 0, -1)
    add("movedim.intlist moveaxis.intlist", torch.rand(2, 3, 4), [0, 1], [-1, 0])
    add("narrow", FLOATS, -1, 1, 2)
    add("select_copy.int", FLOATS, -1, -2)
    add("slice_copy.Tensor", FLOATS, 1, -2, None, 1)
    add("squeeze_copy.dims squeeze.dims", torch.rand(1, 3, 1), [0, 1])
    add("chunk", torch.rand(7, 2), 3)
    add("split.sizes unsafe_split_with_sizes", torch.rand(7, 2), [3, 4])
    add("split_copy.Tensor", torch.rand(7, 2), 3)
    add("tile", FLOATS, [2])
    add("concat concatenate", [FLOATS, WHOLE], -1)
    add("take_along_dim", FLOATS, torch.tensor([[0, 2]]), 1)
    add("softmax.int log_softmax.int special_softmax", FLOATS, 1, torch.float64)
    add("special_log_softmax", FLOATS, 1, dtype=torch.float64)
    add("count_nonzero.dim_IntList", FLOATS, [0])
    add("any.dims all.dims", TRUTHS, [0, 1], True)
    add("arange.start", 2, 7)
    add("norm.Scalar", FLOATS, 2)
    add("native_dropout_backward", GRADIENT, TRUTHS, 2.0)
    add("to.dtype", FLOATS, torch.bfloat16)
    add("_native_batch_norm_legit_no_training", FLOATS, None, None, FLOATS[0], ABOVE_ONE[0], 0.1, 1e-5)
    add("threshold_backward", GRADIENT, FLOATS, 0.0)
    add("sigmoid_backward tanh_backward silu_backward gelu_backward hardsigmoid_backward", GRADIENT, FLOATS)
    add("hardswish_backward", GRADIENT, FLOATS * 5)
    add("hardtanh_backward", GRADIENT, FLOATS, -0.2, 0.8)
    add("leaky_relu_backward", GRADIENT, FLOATS, 0.1, False)
    add("softplus_backward", GRADIENT, FLOATS, 2.0, 1.0)
    add("elu_backward", GRADIENT, 0.5, 1.5, 2.0, False, FLOATS)
    add("log_sigmoid_backward", GRADIENT, FLOATS, (-FLOATS.abs()).exp())
    add("mse_loss_backward", torch.tensor(0.5), FLOATS, OTHERS, 1)
    add("_softmax_backward_data _log_softmax_backward_data", GRADIENT, FLOATS, 1, torch.float32)
    add("slice_backward", GRADIENT, [2, 7], 1, 2, 5, 1)
    add("select_backward", GRADIENT, [2, 4, 3], 1, -1)
    add("slice_scatter", FLOATS, torch.ones(2, 1), 1, 1, 2)
    add("select_scatter", FLOATS, torch.ones(3), 0, -1)
    add("index.Tensor", FLOATS, [None, torch.tensor([[0, -1], [2, 1]])])
    add("_safe_softmax", torch.tensor([[1.0, -INF], [-INF, -INF]]), 1)
    add("_unsafe_view view", FLOATS, [3, 2])
    add("alias squeeze t", FLOATS)
    add("arange", 5)
    add("clamp", FLOATS, -0.1, 0.6)
    add("eq.Scalar ge.Scalar le.Scalar lt.Scalar rsub.Scalar sub.Scalar", FLOATS, 0.5)
    add("norm.ScalarOpt_dim", FLOATS, 1, [1])
    add("squeeze.dim squeeze_copy.dim", torch.rand(1, 3, 1), -1)
    add("nll_loss2d_forward", torch.rand(2, 3, 1, 2), torch.tensor([[[0, 2]], [[1, -100]]]), None, 1, -100)
    add("all.dim any.dim prod.dim_int", FLOATS, -1)
    add("div.Scalar", WHOLE, 4)
    add("eye.m", 2, 3)
    add("index_select", FLOATS, -1, torch.tensor([2, 0, 2]))
    add("max_pool2d", torch.tensor([[[1.0, NAN, 0.0, 4.0], [0.0, -0.0, -0.0, 0.0], [-INF, -INF, 3.0, 3.0]]]), [2], [1])
    pooled = torch.tensor(
        [[[1.0, NAN, 0.0, 4.0], [0.0, -0.0, -0.0, -0.0], [-INF, -INF, 3.0, 3.0], [2.0, 1.0, -0.0, INF]]]
    )
    add("avg_pool2d", pooled, [2], [1])
    add("avg_pool2d", pooled.double(), [1, 2], [2, 1], [0, 0], False, True, 3)
    add("avg_pool2d", pooled.bfloat16(), [2, 1])
    for given in (pooled, pooled.half(), torch.randn(2, 3, 6, 10, generator=torch.Generator().manual_seed(3))):
        add("_adaptive_avg_pool2d", given, [2, 2])
        add("_adaptive_avg_pool2d", given, [1, given.shape[-1]])
    for axes in (1, 2, 3):
        few = torch.randn(2, 3, *(4, 5, 2)[:axes], generator=torch.Generator().manual_seed(axes))
        for name in (f"upsample_nearest{axes}d", f"_upsample_nearest_exact{axes}d"):
            add(name, few, [8, 15, 2][:axes], *[None] * axes)
            add(name, few, [4, 20, 6][:axes], *[1.0, 4.0, 3.0][:axes])
    add("masked_fill.Tensor", FLOATS, TRUTHS, torch.tensor(2))
    add("native_batch_norm", FLOATS, OTHERS[0], OTHERS[1], FLOATS[0], ABOVE_ONE[0], False, 0.1, 1e-5)
    add("_fused_rms_norm", FLOATS.bfloat16(), [3], OTHERS[0].bfloat16(), None)
    mean, inverse = torch.zeros(2, 1), torch.ones(2, 1)
    add("native_layer_norm_backward", GRADIENT, FLOATS, [3], mean, inverse, OTHERS[0], OTHERS[1], [True] * 3)
    return found


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_calls_by_hand_give_what_pytorch_gives(name: str):
    arguments, keywords = CASES[name]
    lowered(name, *arguments, **keywords)


def test_rows_are_overloads_of_pytorch():
    for name in ROWS:
        assert lowering_for(overload_of(name)) is not None


def test_complex_numbers_that_are_no_tensors():
    lowered("mul.Tensor", FLOATS, 2j)
    lowered("add.Tensor", PAIRS, 1 - 2j)
    lowered("pow.Tensor_Scalar", PAIRS, 2)
    left("pow.Tensor_Scalar", PAIRS, 2j)
    left("pow.Tensor_Scalar", PAIRS, 0.5)
    left("add.Tensor", PAIRS, PAIRS, alpha=2j)
    left("sqrt.default", PAIRS)


def test_other_namespaces_and_libraries_have_no_lowering():
    for overload in (torch.ops.aten.mm.default, torch.ops.aten.sort.default, torch.ops.prims.add.default):
        assert lowering_for(overload) is None


# --- type promotion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float32])
def test_tensors_without_dimensions_outrank_numbers_only(dtype: torch.dtype):
    vector = torch.tensor([1, 2, 3]).to(dtype)
    for other in (torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor(3), 0.1, 3, True):
        for name in ("add.Tensor", "mul.Tensor", "div.Tensor", "sub.Tensor", "pow.Tensor_Tensor"):
            if (isinstance(other, bool) and name == "sub.Tensor") or (name[0] == "p" and not torch.is_tensor(other)):
                continue
            lowered(name, vector, other)
        lowered("lt.Tensor" if torch.is_tensor(other) else "lt.Scalar", vector, other)


def test_numbers_become_the_type_of_the_tensor():
    lowered("add.Tensor", torch.tensor([1, 2], dtype=torch.int8), 200)
    lowered("mul.Tensor", torch.tensor([True, False]), 2)
    lowered("clamp.default", WHOLE, 0.5, None)
    lowered("rsub.Scalar", torch.tensor([1.0, 2.0]).half(), 0.1)


def test_alpha_multiplies_without_rounding_in_between():
    for dtype in (torch.bfloat16, torch.float32, torch.int64):
        lowered("add.Tensor", FLOATS.mul(10).to(dtype), OTHERS.mul(10).to(dtype), alpha=3)
        lowered("rsub.Tensor", FLOATS.mul(10).to(dtype), OTHERS.mul(10).to(dtype), alpha=3)
    lowered("add.Scalar", FLOATS, 2, 0.5)
    left("add.Tensor", WHOLE, WHOLE, alpha=0.5)
    left("sub.Tensor", TRUTHS, WHOLE, alpha=2)


# --- division ---------------------------------------------------------------------------------------------------------


def test_integers_are_divided_towards_zero_or_down():
    for mode in ("trunc", "floor", None):
        for dtype in (torch.int64, torch.int8, torch.uint8):
            dividends = torch.tensor([7, 100, 0, 5, 121]).to(dtype)
            lowered("div.Tensor_mode", dividends, torch.tensor([2, 3, 5, 7, 11]).to(dtype), rounding_mode=mode)
    lowered("floor_divide.default", WHOLE, torch.tensor([-2, 3, -4]))


def test_integers_divided_by_zero_are_an_error():
    left("floor_divide.default", WHOLE, 0)
    left("div.Tensor_mode", WHOLE, 0, rounding_mode="trunc")
    graph, inputs = calls.graph_of(calls.Call(overload_of("floor_divide.default"), (WHOLE, torch.tensor([0])), {}, ()))
    for run in (lambda: Interpreter(graph).run(inputs), lambda: COMPILER.compile(graph).execute(inputs)):
        with pytest.raises(ExecutionError, match="ZeroDivision"):
            run()


def test_floors_of_real_quotients_are_left():
    left("floor_divide.default", FLOATS, OTHERS)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_negative_and_empty_axes():
    for dim in ([-1], [0, -1], [], None):
        lowered("sum.dim_IntList", FLOATS, dim, True)
        lowered("var.correction", FLOATS, dim)
        lowered("logsumexp.default", FLOATS, [-1])
    left("sum.dim_IntList", FLOATS, [2])
    left("all.dims", TRUTHS, [])


def test_reductions_of_nothing():
    nothing = torch.zeros(2, 0)
    for name in ("sum.dim_IntList", "mean.dim"):
        lowered(name, nothing, [1])
    lowered("prod.dim_int", nothing, 1)
    lowered("all.dim", nothing, 1)
    lowered("_softmax.default", nothing, 1, False)
    for name in ("amax.default", "argmax.default", "max.dim"):
        left(name, nothing, *([[1]] if name == "amax.default" else [1]))


def test_bools_and_halves_are_summed_in_wider_types():
    lowered("sum.default", TRUTHS)
    lowered("sum.default", TRUTHS, dtype=torch.float16)
    lowered("cumsum.default", TRUTHS, 1)
    for dtype in (torch.bfloat16, torch.float16):
        halves = torch.full((300,), 1.001, dtype=dtype)
        lowered("sum.default", halves)
        lowered("mean.default", halves)
        lowered("std.correction", torch.arange(300).to(dtype))


def test_extrema_take_the_first_of_equals_and_any_nan():
    for values in ([1.0, 3.0, 3.0, 2.0], [1.0, NAN, 5.0, NAN], [NAN, INF, -INF, 0.0], [-INF, -INF, -INF, -INF]):
        row = torch.tensor([values, list(reversed(values))])
        for name in ("max.dim", "min.dim", "argmax.default", "argmin.default"):
            lowered(name, row, 1)
        lowered("max.default", row)
        lowered("aminmax.default", row, dim=1)
    lowered("max.dim", TRUTHS, -1, True)
    lowered("max.dim", torch.tensor(2.0), 0)


def test_nan_and_infinities_in_comparing_functions():
    values = torch.tensor([NAN, 1.0, INF, -INF, NAN, 0.0, -0.0, 2.0])
    others = torch.tensor([1.0, NAN, INF, INF, NAN, -1.0, 3.0, -INF])
    for name in ("fmax.default", "fmin.default", "maximum.default", "logaddexp.default", "hypot.default"):
        lowered(name, values, others)
    for name in ("heaviside.default", "copysign.Tensor", "xlogy.Tensor", "special_xlog1py.default"):
        lowered(name, values, others)
    for name in ("sign.default", "sgn.default", "nan_to_num.default", "angle.default", "special_entr.default"):
        lowered(name, values)
    for name in ("softshrink.default", "hardshrink.default", "hardsigmoid.default", "relu.default", "elu.default"):
        lowered(name, values)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 0, 1, 2, 3, -1, -2, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_powers_of_special_values(dtype, exponent):
    values = torch.tensor([NAN, 1.0, INF, -INF, 0.0, -0.0, -2.0, 4.0], dtype=dtype)
    is_no_root = dtype is torch.float16 and abs(exponent) == 0.5  # what is a root for all others
    (left if is_no_root else lowered)("pow.Tensor_Scalar", values, exponent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_norms_of_single_numbers_are_their_distance_from_zero(dtype):
    limits = torch.finfo(dtype)
    values = torch.tensor([limits.max, -limits.max, limits.tiny, -limits.tiny, -0.0, NAN, -INF, 3.0], dtype=dtype)
    for order in (2, 1, INF, -INF):
        lowered("linalg_vector_norm.default", values.view(8, 1), order, [1])
        lowered("linalg_vector_norm.default", values.view(1, 8, 1), order, [0, -1], True)
        lowered("linalg_vector_norm.default", values[0], order)
        lowered("norm.ScalarOpt_dim", values.view(8, 1), order, [-1], False)


# --- what has no meaning here -----------------------------------------------------------------------------------------


def test_options_of_memory_are_left():
    image = torch.zeros(1, 2, 2, 2)
    left("clone.default", image, memory_format=torch.channels_last)
    left("zeros.default", [2], layout=torch.sparse_coo)
    left("_to_copy.default", PAIRS, dtype=torch.float32)
    lowered("_to_copy.default", FLOATS, dtype=torch.complex64)
    lowered("_to_copy.default", FLOATS, dtype=torch.float64, memory_format=torch.preserve_format)
    lowered("zeros.default", [2], dtype=torch.int16, device=torch.device("cpu"), pin_memory=False)


def test_what_a_type_cannot_hold_is_left():
    left("masked_fill.Scalar", WHOLE, TRUTHS, 0.5)
    left("full.default", [2], 300, dtype=torch.int8)
    lowered("masked_fill.Scalar", WHOLE[:1], TRUTHS, 2.0)
    lowered("constant_pad_nd.default", WHOLE, [1, 1], 3.0)


def test_arguments_by_name_and_missing_ones():
    lowered("add.Tensor", self=FLOATS, other=OTHERS)
    with pytest.raises(UnsupportedError, match="'other' is missing"):
        calls.graph_of(calls.Call(overload_of("add.Tensor"), (FLOATS,), {}, ()))


def test_slices_beyond_the_end_are_cut_and_selections_left():
    lowered("slice.Tensor", FLOATS, 1, -100, 100, 2)
    lowered("slice.Tensor", FLOATS, 0, 5, 9)
    lowered("split.Tensor", torch.zeros(0, 2), 3)
    left("select.int", FLOATS, 0, 2)
    left("narrow.default", FLOATS, 0, 1, 5)
