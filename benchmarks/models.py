"""Whole models in eval mode, with random weights and inputs: built from configurations, nothing is downloaded.

A model is made at one of two sizes: one that is worth measuring, and one that is small enough for tests. What always
holds: two models made alike have the same weights and inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Model:
    name: str
    build: Callable[[bool], Made]
    """Takes whether it is to be small; gives a module and its keyword arguments."""

    def make(self, is_small: bool) -> Made:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(20)
            module, inputs = self.build(is_small)
        return module.eval(), inputs


# --- written out ------------------------------------------------------------------------------------------------------


class AlexNet(nn.Module):
    """The network of 2012, in one column, on images of 3 channels."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, width, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        )
        self.pool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            *(nn.Dropout(), nn.Linear(144 * width, 64 * width), nn.ReLU(inplace=True)),
            *(nn.Dropout(), nn.Linear(64 * width, 64 * width), nn.ReLU(inplace=True)),
            nn.Linear(64 * width, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(images)), 1))


class LongShortTermMemory(nn.Module):
    """One layer of an LSTM with plain operations: a cell in a loop over time."""

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.of_input = nn.Linear(features, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden)

    def forward(self, sequence: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        state = memory = sequence.new_zeros(sequence.shape[0], self.hidden)
        states = []
        for moment in sequence.unbind(1):
            enter, forget, change, leave = (self.of_input(moment) + self.of_state(state)).chunk(4, 1)
            memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(change)
            state = torch.sigmoid(leave) * torch.tanh(memory)
            states.append(state)
        return torch.stack(states, 1), (state, memory)


class Perceptron(nn.Module):
    """Blocks of LayerNorm, Linear, GELU and Linear around a residual."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def _alexnet(is_small: bool) -> Made:
    module = AlexNet(8, 10) if is_small else AlexNet(64, 1000)
    return module, {"images": torch.randn(2, 3, 64, 64) if is_small else torch.randn(4, 3, 224, 224)}


def _lstm(is_small: bool) -> Made:
    if is_small:
        return LongShortTermMemory(8, 16), {"sequence": torch.randn(2, 5, 8)}
    return LongShortTermMemory(128, 256), {"sequence": torch.randn(16, 32, 128)}


def _perceptron(is_small: bool) -> Made:
    if is_small:
        return Perceptron(16, 2), {"x": torch.randn(3, 16)}
    return Perceptron(256, 4), {"x": torch.randn(512, 256)}


# --- from the transformers package ------------------------------------------------------------------------------------


def transformers_package() -> Any:
    """The package, imported at the first need: it takes seconds, and would look for models on the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    return transformers


def _words(is_small: bool) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 100, (2, 7)) if is_small else torch.randint(0, 1000, (4, 128))}


def _images(is_small: bool) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32) if is_small else torch.randn(4, 3, 128, 128)}


def sizes_for(is_small: bool, **names: tuple[Any, Any]) -> dict[str, Any]:
    """Settings of a configuration, each given as (worth measuring, small)."""
    return {name: pair[is_small] for name, pair in names.items()}


def _bert(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        hidden_size=(256, 32),
        num_hidden_layers=(4, 2),
        num_attention_heads=(4, 2),
        intermediate_size=(1024, 64),
        vocab_size=(1000, 100),
    )
    return package.BertModel(package.BertConfig(**sizes)), _words(is_small)


def _gpt2(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(is_small, n_embd=(256, 32), n_layer=(4, 2), n_head=(4, 2), vocab_size=(1000, 100))
    return package.GPT2Model(package.GPT2Config(**sizes, use_cache=False)), _words(is_small)


def _llama(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        hidden_size=(256, 32),
        num_hidden_layers=(4, 2),
        num_attention_heads=(4, 4),
        num_key_value_heads=(2, 2),
        intermediate_size=(688, 80),
        vocab_size=(1000, 100),
    )
    return package.LlamaModel(package.LlamaConfig(**sizes, use_cache=False)), _words(is_small)


def _vit(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        hidden_size=(192, 24),
        num_hidden_layers=(4, 2),
        num_attention_heads=(3, 2),
        intermediate_size=(768, 48),
        image_size=(128, 32),
    )
    return package.ViTModel(package.ViTConfig(**sizes, patch_size=16)), _images(is_small)


def _t5_encoder(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        d_model=(256, 32),
        num_layers=(4, 2),
        num_heads=(4, 2),
        d_ff=(1024, 64),
        d_kv=(64, 16),
        vocab_size=(1000, 100),
    )
    return package.T5EncoderModel(package.T5Config(**sizes, use_cache=False)), _words(is_small)


def _resnet(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        embedding_size=(32, 8),
        hidden_sizes=([64, 128, 256, 512], [8, 16]),
        depths=([2, 2, 2, 2], [1, 1]),
    )
    return package.ResNetModel(package.ResNetConfig(**sizes, layer_type="basic")), _images(is_small)


def _convnext(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small, hidden_sizes=([48, 96, 192, 384], [8, 16]), depths=([2, 2, 4, 2], [1, 1]), num_stages=(4, 2)
    )
    return package.ConvNextModel(package.ConvNextConfig(**sizes)), _images(is_small)


MODELS = (
    Model("BERT", _bert),
    Model("GPT-2", _gpt2),
    Model("Llama", _llama),
    Model("ViT", _vit),
    Model("T5 encoder", _t5_encoder),
    Model("ResNet", _resnet),
    Model("ConvNeXt", _convnext),
    Model("AlexNet", _alexnet),
    Model("LSTM", _lstm),
    Model("MLP", _perceptron),
)
