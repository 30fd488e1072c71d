"""What a call costs by itself: on tensors so small that hardly anything is computed.

In: nothing. Out: a row for a small function, for models with much state to check and next to nothing to compute, and
for one operation of a function that Python has to run through. What always holds: results and effects were compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

import ingot
from benchmarks.capture.contests import Job, Row, Settings, difference, medians, quiet
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.contestants import JIT_CALLS
from benchmarks.groups import ONE_ADDITION
from benchmarks.measuring import Call
from benchmarks.model_contests import TOLERANCE
from benchmarks.models import transformers_package
from benchmarks.results import EAGER, JIT

ELEMENTS, OPERATIONS = 64, 50
LAYERS = (1, 12)
SMALL_CALL, FOLLOWED = "x*y+x", f"one of {OPERATIONS} operations beside list.append"


def calls(settings: Settings) -> list[Job]:
    """Overhead alone."""
    return [
        Job(SMALL_CALL, partial(measure_small, settings)),
        *(Job(_model_name(layers), partial(measure_guards, layers, settings)) for layers in LAYERS),
        Job(FOLLOWED, partial(measure_operation, settings)),
    ]


def measure_small(settings: Settings) -> Row:
    x, y = torch.rand(2, ELEMENTS)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * y + x

    jitted = ingot.jit(function)
    more = {ONE_ADDITION: partial(torch.add, x, y)}
    return _measure(SMALL_CALL, jitted, partial(function, x, y), partial(jitted, x, y), settings, more)


def measure_guards(layers: int, settings: Settings) -> Row:
    """A model with next to nothing to compute, called with one token: guards, launches and small products."""
    package = transformers_package()
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 16}
    configuration = package.BertConfig(**sizes, num_hidden_layers=layers, max_position_embeddings=8)
    torch.manual_seed(20)
    module: Any = package.BertModel(configuration).eval()
    forward, words = module.forward, torch.ones(1, 1, dtype=torch.int64)
    jitted = ingot.jit(forward)
    return _measure(_model_name(layers), jitted, partial(forward, words), partial(jitted, words), settings)


def _model_name(layers: int) -> str:
    return f"BERT of {layers} layer{'s' * (layers > 1)}, 8 features, one token"


def measure_operation(settings: Settings) -> Row:
    x = torch.rand(ELEMENTS)

    def make() -> tuple[Callable[[Tensor], Tensor], list[int]]:
        seen: list[int] = []

        def function(x: Tensor) -> Tensor:
            seen.append(len(seen))
            for _ in range(OPERATIONS // 2):
                x = torch.tanh(x * 1.01)
            return x

        return function, seen

    (function, seen), (other, seen_by_other) = make(), make()
    jitted = ingot.jit(other)
    return _measure(
        *(FOLLOWED, jitted, partial(function, x), partial(jitted, x), settings),
        calls_each=OPERATIONS,
        effects=lambda: difference(list(seen_by_other), list(seen), where="effects"),
    )


def _measure(
    name: str,
    jitted: Any,
    eager: Call,
    ours: Call,
    settings: Settings,
    more: Mapping[str, Call] | None = None,
    calls_each: int = 1,
    effects: Callable[[], str] = str,
) -> Row:
    with quiet(), torch.no_grad():
        differs = ""
        for number in range(JIT_CALLS):
            wanted = eager()
            differs = differs or difference(ours(), wanted, TOLERANCE, f"call {number}")
        differs = differs or effects()
        everyone = {**(more or {}), EAGER: eager, JIT: ours}
        seconds = medians(everyone, settings.calls_of_microseconds, calls_each)
    return Row(name, seconds, differs, tier_of(jitted), recordings_of(jitted))
