"""PyTorch's own samples of its operators, a few of each: every call that is lowered gives what PyTorch gives.

`python -m tests.frontend.aten.sweep` takes all operators and all samples.
"""

from __future__ import annotations

import torch

from ingot.frontend.aten.table import ROWS

from .sweep import DTYPES, sweep
from .test_calls_of_gpus import CALLS_OF_GPUS
from .test_direct_calls import CASES

OPERATORS = """
__getitem__ abs acos acosh add addcdiv addcmul alias_copy all amax amin aminmax angle any arange argmax argmin asin
asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cat
ceil clamp clamp_max clamp_min clone copysign cos cosh count_nonzero cumprod cumsum deg2rad detach diff div eq erf
erfc erfinv exp exp2 expand expand_copy expm1 eye fill float_power floor floor_divide fmax fmin fmod frac full
full_like gather gcd ge gt heaviside hypot index_select isclose isinf isnan isneginf isposinf ldexp le lerp lgamma
linalg.vector_norm log log10 log1p log2 log_softmax logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit logsumexp lt masked.normalize masked_fill max maximum mean min minimum mul nan_to_num nanmean
nansum narrow narrow_copy native_dropout_backward native_group_norm native_layer_norm ne neg new_full new_ones
new_zeros nextafter nn.functional.batch_norm nn.functional.binary_cross_entropy_with_logits nn.functional.celu
nn.functional.cross_entropy nn.functional.elu nn.functional.embedding nn.functional.gelu nn.functional.glu
nn.functional.group_norm nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish
nn.functional.hardtanh nn.functional.huber_loss nn.functional.kl_div nn.functional.layer_norm
nn.functional.leaky_relu nn.functional.logsigmoid nn.functional.mish nn.functional.mse_loss nn.functional.nll_loss
nn.functional.pad nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.prelu nn.functional.relu
nn.functional.relu6 nn.functional.rms_norm nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss
nn.functional.soft_margin_loss nn.functional.softplus nn.functional.softshrink nn.functional.threshold norm ones
ones_like permute permute_copy pow prod rad2deg reciprocal remainder repeat reshape roll round rsqrt rsub
scalar_tensor select select_scatter sgn sigmoid sign signbit sin sinc sinh slice slice_scatter softmax special.entr
special.xlog1py split split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy stack std std_mean sub
sum t t_copy take_along_dim tan tanh to transpose transpose_copy tril triu trunc unbind unbind_copy unsafe_split
unsqueeze unsqueeze_copy var var_mean view view_copy where xlogy zeros zeros_like
"""
"""Operators whose calls, together with those made by hand, are calls of every overload that has a lowering."""


def test_samples_give_what_pytorch_gives():
    findings = sweep(OPERATORS.split(), DTYPES, most=1, derivatives=False, compiled=1)
    assert not findings.wrong, "\n\n".join(findings.wrong)
    missing = ROWS.keys() - findings.lowered.keys() - CASES.keys() - CALLS_OF_GPUS.keys()
    assert not missing, f"no call of {', '.join(sorted(missing))} was checked"


def test_samples_of_complex_numbers_give_what_pytorch_gives():
    names = """abs add addcmul angle cat conj_physical div eq exp expand fill imag isfinite masked_fill mean mul ne neg
    permute pow real reciprocal reshape sgn sigmoid square stack sub sum triu view_as_real where zeros_like"""
    findings = sweep(names.split(), (torch.complex64, torch.complex128), most=1, derivatives=False, compiled=1)
    assert not findings.wrong, "\n\n".join(findings.wrong)
    assert {"mul.Tensor", "div.Tensor", "exp.default", "abs.default", "sum.default"} <= findings.lowered.keys()


def test_samples_of_derivatives_give_what_pytorch_gives():
    names = ["nn.functional.layer_norm", "nn.functional.gelu", "softmax", "nn.functional.mse_loss", "narrow"]
    findings = sweep(names, (torch.float32, torch.bfloat16), most=2, derivatives=True, compiled=1)
    assert not findings.wrong, "\n\n".join(findings.wrong)
    assert {"native_layer_norm_backward.default", "gelu_backward.default"} <= findings.lowered.keys()
