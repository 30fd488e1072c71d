"""Normalizations and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.model_values import sizes_of
from ingot.frontend.onnx.operator_table import NodeCall, defines


@defines("BatchNormalization", since=7)
def _batch_norm(call: NodeCall) -> torch.Tensor:
    if call.attribute("training_mode", 0) or len(call.node.outputs) > 1:
        raise ImportedModelError("statistics are not updated: export the model for inference")
    x, scale, bias, mean, variance = call.tensors()
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, call.attribute("epsilon", 1e-5))


@defines("InstanceNormalization")
def _instance_norm(call: NodeCall) -> torch.Tensor:
    x, scale, bias = call.tensors()
    return functional.instance_norm(x, weight=scale, bias=bias, eps=call.attribute("epsilon", 1e-5))


@defines("LayerNormalization")
def _layer_norm(call: NodeCall) -> Any:
    x, scale, bias = call.tensor(0), call.tensor(1), call.optional(2)
    axis, epsilon = call.attribute("axis", -1), call.attribute("epsilon", 1e-5)
    rank = x.dim() - axis % x.dim()
    sizes = list(sizes_of(scale)) if scale.dim() == rank else list(x.shape[axis:])
    if list(sizes_of(scale)) == sizes and (bias is None or list(sizes_of(bias)) == sizes):
        result = functional.layer_norm(x, sizes, scale, bias, epsilon)
    else:
        result = functional.layer_norm(x, sizes, None, None, epsilon) * scale
        result = result if bias is None else result + bias
    if len(call.node.outputs) == 1:
        return result
    axes = list(range(axis % x.dim(), x.dim()))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return result, mean, torch.rsqrt(variance + epsilon)


@defines("RMSNormalization", since=23)
def _rms_norm(call: NodeCall) -> torch.Tensor:
    x, scale = call.tensor(0), call.tensor(1)
    axis = call.attribute("axis", -1)
    rank = x.dim() - axis % x.dim()
    sizes = list(sizes_of(scale)) if scale.dim() == rank else list(x.shape[axis:])
    return functional.rms_norm(x, sizes, None, call.attribute("epsilon", 1e-5)) * scale


@defines("GroupNormalization", since=18)
def _group_norm_by_group(call: NodeCall) -> torch.Tensor:
    """Scale and bias belong to groups."""
    x, scale, bias = call.tensors()
    repeats = x.shape[1] // call.attribute("num_groups")
    return _group_norm(call, x, scale.repeat_interleave(repeats), bias.repeat_interleave(repeats))


@defines("GroupNormalization", since=21)
def _group_norm_by_channel(call: NodeCall) -> torch.Tensor:
    return _group_norm(call, *call.tensors())


def _group_norm(call: NodeCall, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x, call.attribute("num_groups"), scale, bias, call.attribute("epsilon", 1e-5))


@defines("LRN")
def _local_response_norm(call: NodeCall) -> torch.Tensor:
    x, size = call.tensor(0), call.attribute("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    spread = [0, 0] * (x.dim() - 2) + [before, after]
    squares = functional.pad(x * x, spread).unfold(1, size, 1).sum(-1)
    alpha, beta, bias = call.attribute("alpha", 1e-4), call.attribute("beta", 0.75), call.attribute("bias", 1.0)
    return x / torch.pow(bias + alpha / size * squares, beta)


@defines("LpNormalization")
def _lp_norm(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.attribute("axis", -1)
    norm = torch.linalg.vector_norm(x, call.attribute("p", 2), axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


@defines("MeanVarianceNormalization")
def _mean_variance_norm(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), list(call.attribute("axes", [0, 2, 3]))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) / (torch.sqrt(variance) + 1e-9)


_SOFTMAX = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}


@defines("Softmax", "LogSoftmax")
def _softmax_of_rows(call: NodeCall) -> torch.Tensor:
    """Before version 13 all axes from one on are one row."""
    x, axis = call.tensor(0), call.attribute("axis", 1)
    axis = axis % x.dim() if x.dim() else 0
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    return _SOFTMAX[call.node.operator](rows, -1).reshape(x.shape)


@defines("Softmax", "LogSoftmax", since=13)
def _softmax(call: NodeCall) -> torch.Tensor:
    return _SOFTMAX[call.node.operator](call.tensor(0), call.attribute("axis", -1))


@defines("Hardmax", since=13)
def _hardmax(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.attribute("axis", -1)
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)
