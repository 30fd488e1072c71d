"""Points, scans and extrema: short innermost axes, running sums, reductions with indices."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.operations.cases import Data, OperationCase


def differences(points: Tensor) -> Tensor:
    return points[None] - points[:, None]


def distances(points: Tensor) -> Tensor:
    return (points[None] - points[:, None]).norm(dim=-1)


def unit_vectors(vectors: Tensor) -> Tensor:
    return vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-8)


def nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    return torch.cdist(points, centres).argmin(1)


def transmittance(density: Tensor) -> Tensor:
    alpha = 1 - torch.exp(-density)
    return alpha * torch.cumprod(1 - alpha + 1e-10, -1)


def running_mean(x: Tensor) -> Tensor:
    return torch.cumsum(x, 0) / torch.arange(1, x.shape[0] + 1, dtype=x.dtype)[:, None]


def running_total(x: Tensor) -> Tensor:
    return torch.cumsum(x * 0.5, -1)


def best_over_last(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = torch.max(x * 2, -1)
    return values, places


def best_over_first(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = torch.min(x * 2, 0)
    return values, places


def choice(logits: Tensor) -> Tensor:
    return (logits / 0.7).argmax(-1)


def choice_of_classes(scores: Tensor) -> Tensor:
    return scores.argmax(1)


def laplacian(field: Tensor) -> Tensor:
    around = field.roll(1, 0) + field.roll(-1, 0) + field.roll(1, 1) + field.roll(-1, 1)
    return around - 4 * field


def mirrored_average(x: Tensor) -> Tensor:
    return (x + x.flip(-1)) * 0.5


def _points(data: Data) -> Tensor:
    return data.floats(data.size(512), 3)


def _table(data: Data) -> Tensor:
    return data.floats(data.size(4096), data.size(1000))


CASES = (
    OperationCase("p[None] - p[:, None], (512, 3)", differences, lambda data: (_points(data),)),
    OperationCase("norm of the differences", distances, lambda data: (_points(data),)),
    OperationCase("unit vectors, (300000, 3)", unit_vectors, lambda data: (data.floats(data.size(300_000), 3),)),
    OperationCase(
        "cdist + argmin, (8192, 16) to 256",
        nearest_centre,
        lambda data: (data.floats(data.size(8192), 16), data.floats(data.size(256), 16)),
    ),
    OperationCase(
        "1 - exp, cumprod over last, (16384, 64)",
        transmittance,
        lambda data: (data.fractions(data.size(16_384), data.size(64)),),
    ),
    OperationCase("cumsum over last, (4096, 1000)", running_total, lambda data: (_table(data),)),
    OperationCase("cumsum over first, running mean", running_mean, lambda data: (_table(data),)),
    OperationCase("max with indices over last", best_over_last, lambda data: (_table(data),)),
    OperationCase("min with indices over first", best_over_first, lambda data: (_table(data),)),
    OperationCase("argmax over last, (64, 50257)", choice, lambda data: (data.floats(64, data.size(50_257)),)),
    OperationCase(
        "argmax over axis 1, (8, 21, 256, 256)",
        choice_of_classes,
        lambda data: (data.floats(8, data.size(21), data.size(256), data.size(256)),),
    ),
    OperationCase(
        "laplacian by roll, (2048, 2048)", laplacian, lambda data: (data.floats(data.size(2048), data.size(2048)),)
    ),
    OperationCase("x + flip(x)", mirrored_average, lambda data: (_table(data),)),
)
