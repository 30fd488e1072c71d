"""Models as they are trained, with random weights and data: built from configurations, nothing is downloaded.

In: whether a model is to be small. Out: a module in training mode, a batch, and what makes a loss of them. What always
holds: two cases made alike have the same weights and batches. No bias stands before a batch norm, which takes its
gradient away but for roundings, and Adam would make steps of full size of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models import AlexNet, LongShortTermMemory, Made, sizes_for, transformers_package

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Batch], torch.Tensor]
"""Takes a module, compiled or not, and a batch."""
SEED = 20


@dataclass(frozen=True)
class TrainingCase:
    name: str
    build: Callable[[bool], Made]
    """Takes whether it is to be small; gives a module and a batch."""
    loss: Loss

    def make(self, is_small: bool) -> Made:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            module, batch = self.build(is_small)
        return module.train(), batch


def whole_step(module: Any, optimizer: torch.optim.Optimizer, loss: Loss) -> Callable[[Batch], torch.Tensor]:
    """A step as people write it."""

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        found = loss(module, batch)
        found.backward()
        optimizer.step()
        return found.detach()

    return step


def own_loss(module: Any, batch: Batch) -> torch.Tensor:
    """Models of the transformers package that get labels give a loss."""
    return module(**batch).loss


def loss_of_classes(module: Any, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(module(batch["inputs"]), batch["labels"])


# --- written out ------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Linear layers with dropout between them."""

    def __init__(self, width: int, layers: int, classes: int, dropout: float = 0.1):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = self.dropout(F.gelu(layer(norm(x))))
        return self.last(x)


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms around a residual, which a third one fits where shapes change."""

    def __init__(self, channels: int, wanted: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, wanted, 3, stride, 1, bias=False), nn.BatchNorm2d(wanted), nn.ReLU(inplace=True)),
            *(nn.Conv2d(wanted, wanted, 3, 1, 1, bias=False), nn.BatchNorm2d(wanted)),
        )
        is_same = stride == 1 and channels == wanted
        self.fit = nn.Identity() if is_same else nn.Conv2d(channels, wanted, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.fit(x))


class ResidualNetwork(nn.Module):
    """Stages of residual blocks, each with twice the channels of the one before."""

    def __init__(self, width: int, stages: int, blocks: int, classes: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        channels = [width * 2**stage for stage in range(stages)]
        self.stages = nn.Sequential(
            *(
                ResidualBlock(channels[max(stage - (block == 0), 0)], channels[stage], 2 if block == 0 else 1)
                for stage in range(stages)
                for block in range(blocks)
            )
        )
        self.last = nn.Linear(channels[-1], classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.stages(self.first(images)).mean((2, 3)))


class SequenceClassifier(nn.Module):
    """The last state of an LSTM, as classes."""

    def __init__(self, features: int, hidden: int, classes: int):
        super().__init__()
        self.memory = LongShortTermMemory(features, hidden)
        self.last = nn.Linear(hidden, classes)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.last(self.memory(sequence)[1][0])


def _batch(*shape: int, classes: int = 10) -> Batch:
    return {"inputs": torch.randn(shape), "labels": torch.randint(0, classes, shape[:1])}


def _classifier(is_small: bool) -> Made:
    return (Classifier(16, 2, 10), _batch(8, 16)) if is_small else (Classifier(256, 4, 10), _batch(512, 256))


def _residual_network(is_small: bool) -> Made:
    if is_small:
        return ResidualNetwork(4, 2, 1, 10), _batch(4, 3, 8, 8)
    return ResidualNetwork(32, 4, 2, 10), _batch(16, 3, 32, 32)


def _alexnet(is_small: bool) -> Made:
    return (AlexNet(2, 10), _batch(2, 3, 64, 64)) if is_small else (AlexNet(16, 10), _batch(16, 3, 128, 128))


def _lstm(is_small: bool) -> Made:
    if is_small:
        return SequenceClassifier(8, 8, 10), _batch(4, 4, 8)
    return SequenceClassifier(128, 256, 10), _batch(16, 32, 128)


# --- from the transformers package ------------------------------------------------------------------------------------


def _silent_package() -> Any:
    """The package without its warnings."""
    package = transformers_package()
    package.logging.set_verbosity_error()
    return package


def _words(batch: int, length: int, vocabulary: int) -> Batch:
    words = torch.randint(0, vocabulary, (batch, length))
    return {"input_ids": words, "labels": words}


def _gpt2(batch: int, length: int, **sizes: int) -> Callable[[bool], Made]:
    def build(is_small: bool) -> Made:
        package = _silent_package()
        chosen = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50} if is_small else sizes
        words = _words(2, 6, 50) if is_small else _words(batch, length, sizes["vocab_size"])
        return package.GPT2LMHeadModel(package.GPT2Config(**chosen, n_positions=128, use_cache=False)), words

    return build


def _bert(is_small: bool) -> Made:
    package = _silent_package()
    sizes = sizes_for(
        is_small,
        hidden_size=(256, 16),
        num_hidden_layers=(4, 1),
        num_attention_heads=(4, 2),
        intermediate_size=(1024, 32),
        vocab_size=(1000, 50),
    )
    words = _words(2, 6, 50) if is_small else _words(4, 128, 1000)
    return package.BertForMaskedLM(package.BertConfig(**sizes)), words


def _llama(is_small: bool) -> Made:
    package = _silent_package()
    sizes = sizes_for(
        is_small,
        hidden_size=(256, 16),
        num_hidden_layers=(4, 1),
        num_attention_heads=(4, 4),
        num_key_value_heads=(2, 2),
        intermediate_size=(688, 32),
        vocab_size=(1000, 50),
    )
    words = _words(2, 6, 50) if is_small else _words(4, 128, 1000)
    return package.LlamaForCausalLM(package.LlamaConfig(**sizes, use_cache=False)), words


def padded(build: Callable[[bool], Made]) -> Callable[[bool], Made]:
    """The same with sentences of different lengths: neither attention nor the loss looks behind their ends."""

    def build_padded(is_small: bool) -> Made:
        module, batch = build(is_small)
        count, length = batch["input_ids"].shape
        lengths = torch.linspace(length // 2, length, count).long()
        mask = (torch.arange(length) < lengths[:, None]).long()
        return module, batch | {"attention_mask": mask, "labels": batch["labels"].masked_fill(mask == 0, -100)}

    return build_padded


CASES = (
    TrainingCase("MLP x512 h256, dropout", _classifier, loss_of_classes),
    TrainingCase("GPT-2 1x32 h64", _gpt2(1, 32, n_embd=64, n_layer=2, n_head=2, vocab_size=1000), own_loss),
    TrainingCase("GPT-2 4x128 h256", _gpt2(4, 128, n_embd=256, n_layer=4, n_head=4, vocab_size=1000), own_loss),
    TrainingCase("BERT 4x128 h256", _bert, own_loss),
    TrainingCase("BERT 4x128 h256, padded", padded(_bert), own_loss),
    TrainingCase("Llama 4x128 h256", _llama, own_loss),
    TrainingCase("ResNet x16", _residual_network, loss_of_classes),
    TrainingCase("AlexNet x16", _alexnet, loss_of_classes),
    TrainingCase("LSTM x16", _lstm, loss_of_classes),
)
