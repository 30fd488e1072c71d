"""What is trained: models in training mode with weights of float32, computed in bfloat16 by autocast.

In: a device. Out: a module, a batch and what makes a loss of them. What always holds: two cases made alike have the
same weights and batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cuda.models.networks import NETWORKS, VOCABULARY, Network, llama, random_images, random_words
from benchmarks.models import AlexNet
from benchmarks.training.cases import Batch, Classifier, Loss

_SEED = 21
_SMALL_VOCABULARY, _SMALL_CLASSES = 101, 10


@dataclass(frozen=True)
class TrainedNetwork:
    """A network and how many classes it tells apart."""

    network: Network
    classes: int
    small_classes: int = _SMALL_CLASSES
    is_host_limited: bool = False
    """Whether eager spends the step's time on the host."""
    share: float = 1.0
    """About how long its row takes, in parts of GPT-2's: most of that is torch.compile's."""

    @property
    def name(self) -> str:
        return self.network.name

    def make(self, device: torch.device, is_small: bool) -> tuple[nn.Module, Batch]:
        module, (inputs,) = self.network.make(device, torch.float32, is_small)
        shape = inputs.shape if inputs.dtype is torch.int64 else inputs.shape[:1]
        numbers = torch.Generator().manual_seed(_SEED)
        labels = torch.randint(0, self.small_classes if is_small else self.classes, shape, generator=numbers)
        return module.train(), {"inputs": inputs, "labels": labels.to(device)}


def loss_on(device_type: str) -> Loss:
    """Cross entropy in float32 of what a model computes under autocast."""

    def loss(module: Callable[[torch.Tensor], torch.Tensor], batch: Batch) -> torch.Tensor:
        with torch.autocast(device_type, torch.bfloat16):
            logits = module(batch["inputs"])
        return functional.cross_entropy(logits.float().flatten(0, -2), batch["labels"].flatten())

    return loss


def _alexnet(is_small: bool) -> nn.Module:
    return AlexNet(2, _SMALL_CLASSES) if is_small else AlexNet(64, 1000)


def _classifier(is_small: bool) -> nn.Module:
    return Classifier(16, 2, _SMALL_CLASSES) if is_small else Classifier(1024, 4, 1000)


def _vectors(is_small: bool) -> tuple[torch.Tensor, ...]:
    return (torch.randn(8, 16) if is_small else torch.randn(1024, 1024),)


def _known(name: str) -> Network:
    return next(network for network in NETWORKS if network.name == name)


FIRST = TrainedNetwork(Network("MLP x1024, dropout", _classifier, _vectors), 1000, share=0.3)
"""What is trained small before anything is measured."""
CASES = (
    TrainedNetwork(_known("GPT-2 8x512"), VOCABULARY, _SMALL_VOCABULARY),
    TrainedNetwork(_known("GPT-2 1x128"), VOCABULARY, _SMALL_VOCABULARY, is_host_limited=True),
    FIRST,
    TrainedNetwork(_known("ResNet-18 x64"), 1000),
    TrainedNetwork(Network("AlexNet x128", _alexnet, random_images(128, 3, 224, 64)), 1000, share=0.4),
    TrainedNetwork(Network("Llama-like 4x512", llama, random_words(4, 512)), VOCABULARY, _SMALL_VOCABULARY),
)
"""Those that say most come first: what there is no time for is left out at the end."""
