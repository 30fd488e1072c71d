"""Images and windows: bytes with the colours innermost, pools, interpolation, shuffled pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.operations.cases import Data, OperationCase


def gray_with_contrast(images: Tensor) -> Tensor:
    """Bytes in, bytes out, colours innermost."""
    values = images.float()
    gray = 0.299 * values[..., 0] + 0.587 * values[..., 1] + 0.114 * values[..., 2]
    return ((gray - 128) * 1.2 + 128).clamp(0, 255).to(torch.uint8)


def contrast(images: Tensor) -> Tensor:
    return ((images.float() - 128) * 1.2 + 128).clamp(0, 255).to(torch.uint8)


def sepia(images: Tensor) -> Tensor:
    red, green, blue = images.unbind(-1)
    return torch.stack(
        [
            0.393 * red + 0.769 * green + 0.189 * blue,
            0.349 * red + 0.686 * green + 0.168 * blue,
            0.272 * red + 0.534 * green + 0.131 * blue,
        ],
        -1,
    ).clamp(max=1)


def normalise(images: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return (images.float() / 255 - mean) / deviation


def to_planes(images: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Bytes with the colours innermost become planes of floats, as networks take them."""
    planes = images.permute(0, 3, 1, 2).float() / 255
    return ((planes - mean[:, None, None]) / deviation[:, None, None]).contiguous()


def average_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(F.relu(x), 2)


def average_pool_padded(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1)


def adaptive_pool(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 7)


def global_pool(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(F.relu(x), 1).flatten(1)


def largest_padded(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 3, 2, 1)


def largest(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 2)


def upsampled_nearest(x: Tensor, y: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest") + y


def upsampled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def downsampled(images: Tensor) -> Tensor:
    return F.interpolate(images, size=(224, 224), mode="bilinear", align_corners=False) * 2 - 1


def shuffled(x: Tensor) -> Tensor:
    return F.relu(F.pixel_shuffle(x, 2))


def _pictures(data: Data) -> Tensor:
    return data.bytes(8, data.size(256), data.size(256), 3)


def _colours(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    return _pictures(data), data.fractions(3), data.fractions(3) + 0.5


def _features(data: Data) -> Tensor:
    return data.floats(16, data.size(64), data.size(56), data.size(56))


def _features_last(data: Data) -> Tensor:
    return _features(data).to(memory_format=torch.channels_last)


CASES = (
    OperationCase("gray + contrast, uint8 (8, 256, 256, 3)", gray_with_contrast, lambda data: (_pictures(data),)),
    OperationCase("contrast, the same images", contrast, lambda data: (_pictures(data),)),
    OperationCase(
        "sepia, float32 (8, 256, 256, 3)", sepia, lambda data: (data.fractions(8, data.size(256), data.size(256), 3),)
    ),
    OperationCase("normalise, uint8 NHWC", normalise, _colours),
    OperationCase("normalise, uint8 NHWC to NCHW", to_planes, _colours),
    OperationCase("relu + avg_pool2d 2", average_pool, lambda data: (_features(data),)),
    OperationCase(
        "avg_pool2d 3, stride 1, padded, channels_last", average_pool_padded, lambda data: (_features_last(data),)
    ),
    OperationCase("adaptive_avg_pool2d 7", adaptive_pool, lambda data: (_features(data),)),
    OperationCase("relu + global average, channels_last", global_pool, lambda data: (_features_last(data),)),
    OperationCase("relu + max_pool2d 3, stride 2, padded", largest_padded, lambda data: (_features(data),)),
    OperationCase("relu + max_pool2d 2, channels_last", largest, lambda data: (_features_last(data),)),
    OperationCase(
        "interpolate nearest x2 + add",
        upsampled_nearest,
        lambda data: (
            _features(data),
            data.floats(16, data.size(64), 2 * data.size(56), 2 * data.size(56)),
        ),
    ),
    OperationCase("interpolate bilinear x2", upsampled, lambda data: (_features(data),)),
    OperationCase(
        "interpolate bilinear 384 to 224, images",
        downsampled,
        lambda data: (data.fractions(8, 3, data.size(384), data.size(384)),),
    ),
    OperationCase("pixel_shuffle 2 + relu", shuffled, lambda data: (_features(data),)),
)
