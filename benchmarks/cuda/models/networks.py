"""The models, written out in plain PyTorch, in eval mode, with random weights.

In: a device and a type. Out: a module and its inputs. What always holds: two models made alike have the same weights
and inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 50257


@dataclass(frozen=True)
class Network:
    name: str
    make_module: Callable[[bool], nn.Module]
    """Takes whether it is to be small."""
    make_inputs: Callable[[bool], tuple[torch.Tensor, ...]]

    def make(self, device: torch.device, dtype: torch.dtype, is_small: bool = False) -> tuple[nn.Module, Any]:
        """The module and its arguments."""
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.device(device):
            torch.manual_seed(20)
            module = self.make_module(is_small)
            module.apply(_spread)
            inputs = self.make_inputs(is_small)
        given = tuple(one.to(dtype) if one.dtype.is_floating_point else one for one in inputs)
        return module.to(dtype).eval(), given


def _spread(module: nn.Module) -> None:
    """Weights as trained models have them, so that values neither vanish nor explode."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
        module.running_mean.normal_(std=0.1)
        module.running_var.uniform_(0.5, 1.5)


# --- language models --------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention; with rotary positions, if it is given their cosines and sines."""

    def __init__(self, width: int, heads: int, has_bias: bool):
        super().__init__()
        self.heads = heads
        self.enter = nn.Linear(width, 3 * width, bias=has_bias)
        self.leave = nn.Linear(width, width, bias=has_bias)

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor] | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        split = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.enter(x).chunk(3, -1))
        query, key, value = split
        if turns is not None:
            query, key = turned(query, *turns), turned(key, *turns)
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.leave(made.transpose(1, 2).reshape(batch, length, width))


def turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of elements, half a head apart, turned by the angle of their position."""
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, has_bias=True)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, positions: int = 1024):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.words.weight)


class RootMeanSquareNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.norms = nn.ModuleList(RootMeanSquareNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, has_bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((width, inner), (width, inner), (inner, width))
        )

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), turns)
        given = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(given)) * self.up(given))


class Llama(nn.Module):
    speeds: torch.Tensor

    def __init__(self, width: int, heads: int, layers: int, inner: int, vocabulary: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, inner) for _ in range(layers))
        self.norm, self.head = RootMeanSquareNorm(width), nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        self.register_buffer("speeds", 10000.0 ** (-torch.arange(half) / half))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        places = torch.arange(words.shape[1], device=words.device, dtype=torch.float32)
        angles = torch.outer(places, self.speeds.float()).repeat(1, 2)
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, turns)
        return self.head(self.norm(x))


def _gpt2(is_small: bool) -> nn.Module:
    return Gpt2(32, 2, 2, 101) if is_small else Gpt2(768, 12, 12, VOCABULARY)


def llama(is_small: bool) -> nn.Module:
    return Llama(32, 2, 2, 80, 101) if is_small else Llama(768, 12, 12, 2048, VOCABULARY)


def random_words(batch: int, length: int) -> Callable[[bool], tuple[torch.Tensor, ...]]:
    return lambda is_small: (
        torch.randint(0, 101, (2, 7)) if is_small else torch.randint(0, VOCABULARY, (batch, length)),
    )


# --- images -----------------------------------------------------------------------------------------------------------


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms around a residual."""

    def __init__(self, channels: int, wider: int, stride: int):
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider)
        self.second, self.second_norm = nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider)
        self.aside = nn.Identity()
        if stride != 1 or channels != wider:
            self.aside = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = functional.relu(self.first_norm(self.first(x)), inplace=True)
        made = self.second_norm(self.second(made))
        made += self.aside(x)
        return functional.relu(made, inplace=True)


class ResNet18(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        for level in range(4):
            before, now = width * 2 ** max(level - 1, 0), width * 2**level
            blocks += [ResidualBlock(before, now, 1 if level == 0 else 2), ResidualBlock(now, now, 1)]
        self.blocks, self.last = nn.Sequential(*blocks), nn.Linear(8 * width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(images)), inplace=True), 3, 2, 1)
        return self.last(torch.flatten(functional.adaptive_avg_pool2d(self.blocks(x), 1), 1))


class GroupNormBlock(nn.Module):
    """Group norm, SiLU and a convolution, twice, around a residual, as networks that remove noise have it."""

    def __init__(self, channels: int, wider: int, groups: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(groups, channels), nn.GroupNorm(groups, wider)])
        self.convolutions = nn.ModuleList([nn.Conv2d(channels, wider, 3, 1, 1), nn.Conv2d(wider, wider, 3, 1, 1)])
        self.aside = nn.Identity() if channels == wider else nn.Conv2d(channels, wider, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.convolutions[0](functional.silu(self.norms[0](x)))
        return self.convolutions[1](functional.silu(self.norms[1](made))) + self.aside(x)


class UNetBlocks(nn.Module):
    """Down two levels and up again, each level joined with what it was on the way down."""

    def __init__(self, width: int, groups: int):
        super().__init__()
        sizes = (width, 2 * width, 4 * width)
        self.enter, self.leave = nn.Conv2d(4, width, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)
        self.down = nn.ModuleList(GroupNormBlock(*pair, groups) for pair in zip((width, *sizes), sizes, strict=False))
        self.smaller = nn.ModuleList(nn.Conv2d(size, size, 3, 2, 1) for size in sizes[:2])
        self.middle = GroupNormBlock(sizes[2], sizes[2], groups)
        self.larger = nn.ModuleList(nn.Conv2d(2 * size, size, 3, 1, 1) for size in sizes[:2])
        self.up = nn.ModuleList(GroupNormBlock(2 * size, size, groups) for size in sizes[:2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, kept = self.enter(x), []
        for block, smaller in zip(self.down, (*self.smaller, None), strict=True):
            x = block(x)
            if smaller is not None:
                kept.append(x)
                x = smaller(x)
        x = self.middle(x)
        for level in (1, 0):
            x = self.larger[level](functional.interpolate(x, scale_factor=2, mode="nearest"))
            x = self.up[level](torch.cat([x, kept[level]], 1))
        return self.leave(x)


def _resnet(is_small: bool) -> nn.Module:
    return ResNet18(8, 10) if is_small else ResNet18(64, 1000)


def _unet(is_small: bool) -> nn.Module:
    return UNetBlocks(8, 2) if is_small else UNetBlocks(128, 32)


def random_images(
    batch: int, channels: int, size: int, small_size: int = 32
) -> Callable[[bool], tuple[torch.Tensor, ...]]:
    def make(is_small: bool) -> tuple[torch.Tensor, ...]:
        count, side = (2, small_size) if is_small else (batch, size)
        return (torch.randn(count, channels, side, side),)

    return make


NETWORKS = (
    Network("GPT-2 1x128", _gpt2, random_words(1, 128)),
    Network("GPT-2 8x512", _gpt2, random_words(8, 512)),
    Network("Llama-like 1x64", llama, random_words(1, 64)),
    Network("Llama-like 4x1024", llama, random_words(4, 1024)),
    Network("ResNet-18 x1", _resnet, random_images(1, 3, 224)),
    Network("ResNet-18 x64", _resnet, random_images(64, 3, 224)),
    Network("U-Net blocks x4", _unet, random_images(4, 4, 64)),
)
