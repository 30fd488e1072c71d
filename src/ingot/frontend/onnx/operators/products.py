"""Products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.model_values import sizes_of
from ingot.frontend.onnx.operator_table import NodeCall, defines


@defines("MatMul")
def _matmul(call: NodeCall) -> torch.Tensor:
    return torch.matmul(call.tensor(0), call.tensor(1))


@defines("Gemm")
def _gemm(call: NodeCall) -> torch.Tensor:
    a, b, c = call.tensor(0), call.tensor(1), call.optional(2)
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    a = a.t() if call.attribute("transA", 0) else a
    if alpha == beta == 1.0 and call.attribute("transB", 0) and c is not None and c.dim() == 1:
        return functional.linear(a, b, c)
    product = torch.mm(a, b.t() if call.attribute("transB", 0) else b)
    product = product if alpha == 1.0 else product * alpha
    if c is None:
        return product
    return product + (c if beta == 1.0 else c * beta)


@defines("Einsum")
def _einsum(call: NodeCall) -> torch.Tensor:
    return torch.einsum(call.attribute("equation"), *call.tensors())


def window_padding(
    call: NodeCall, x: torch.Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The padding before and after each axis that windows slide along, by `auto_pad` or `pads`."""
    count, mode = len(kernel), call.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = list(call.attribute("pads", [0] * (2 * count)))
        return pads[:count], pads[count:]
    if mode == "VALID":
        return [0] * count, [0] * count
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ImportedModelError(f"auto_pad {mode!r} is not known")
    before, after = [], []
    for size, width, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        results = -(-size // stride)
        needed = max((results - 1) * stride + (width - 1) * dilation + 1 - size, 0)
        less, more = needed // 2, needed - needed // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return before, after


def padded(x: torch.Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> torch.Tensor:
    """A tensor with values around its last axes."""
    pads = [one for pair in zip(reversed(before), reversed(after), strict=True) for one in pair]
    return functional.pad(x, pads, value=value) if any(pads) else x


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@defines("Conv")
def _convolution(call: NodeCall) -> torch.Tensor:
    x, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    count = weight.dim() - 2
    if count not in _CONVOLUTIONS:
        raise ImportedModelError(f"convolutions along {count} axes are not known to PyTorch")
    strides, dilations = call.attribute("strides", [1] * count), call.attribute("dilations", [1] * count)
    before, after = window_padding(call, x, sizes_of(weight)[2:], strides, dilations)
    group = call.attribute("group", 1)
    if before != after:
        x, before = padded(x, before, after), [0] * count
    return _CONVOLUTIONS[count](x, weight, bias, list(strides), before, list(dilations), group)


@defines("ConvTranspose")
def _transposed_convolution(call: NodeCall) -> torch.Tensor:
    x, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    count = weight.dim() - 2
    strides, dilations = call.attribute("strides", [1] * count), call.attribute("dilations", [1] * count)
    more = list(call.attribute("output_padding", [0] * count))
    kernel = [(width - 1) * dilation + 1 for width, dilation in zip(sizes_of(weight)[2:], dilations, strict=True)]
    full = [
        (size - 1) * stride + width + extra
        for size, stride, width, extra in zip(x.shape[2:], strides, kernel, more, strict=True)
    ]
    before, after = _cropping(call, full, x.shape[2:], strides)
    group = call.attribute("group", 1)
    if before == after and min(before, default=0) >= 0:
        return _TRANSPOSED[count](x, weight, bias, list(strides), before, more, group, list(dilations))
    whole = _TRANSPOSED[count](x, weight, None, list(strides), 0, more, group, list(dilations))
    cropped = padded(whole, [-one for one in before], [-one for one in after])
    return cropped if bias is None else cropped + bias.reshape(-1, *[1] * count)


def _cropping(
    call: NodeCall, full: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """How much is cut off before and after each axis of a transposed convolution's whole result."""
    count, mode, wanted = len(full), call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if wanted is None:
        pads = list(call.attribute("pads", [0] * (2 * count))) if mode in ("NOTSET", "") else [0] * (2 * count)
        return pads[:count], pads[count:]
    total = [whole - size for whole, size in zip(full, wanted, strict=True)]
    half = [one // 2 for one in total]
    rest = [one - lower for one, lower in zip(total, half, strict=True)]
    return (half, rest) if mode == "SAME_UPPER" else (rest, half)
