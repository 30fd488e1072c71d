"""Compiled modules inside DistributedDataParallel and FSDP2 train to eager ones' weights, in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import ingot
from ingot.frontend.jit.autotune import eager_comparison
from tests.frontend.jit.gradients.comparing_gradients import is_compiled, same

STEPS = 8
TIME_OUT = timedelta(seconds=60)
"""Torch's own, for what processes wait for of each other."""


def _model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))


def _train(rank: int, meeting_place: str) -> None:
    """What one of the processes does. It keeps its programs, however long they take beside another process."""
    eager_comparison.ROUNDS = 0
    torch.set_num_threads(1)
    how = {"init_method": f"file://{meeting_place}", "timeout": TIME_OUT}
    distributed.init_process_group("gloo", rank=rank, world_size=2, **how)
    _train_replicas(rank)
    _train_shards(rank)
    _lose_the_other(rank)


def _step(module: Any, model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    def step(x):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _run(rank: int, steps: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> None:
    for number in range(STEPS):
        x = torch.randn(6, 16, generator=torch.Generator().manual_seed(100 * rank + number))
        losses = [step(x) for step in steps]
        for loss in losses[1:]:
            same(loss, losses[0])


def _train_replicas(rank: int) -> None:
    """DistributedDataParallel around a compiled model, and within a compiled step."""
    eager, model, third = (_model() for _ in range(3))
    compiled = ingot.jit(model)
    modules = [DistributedDataParallel(one) for one in (eager, compiled, third)]
    steps = [_step(*each) for each in zip(modules, (eager, model, third), strict=True)]
    whole: Any = ingot.jit(steps[2])
    _run(rank, [*steps[:2], whole])
    for trained in (model, third):
        same(list(trained.parameters()), list(eager.parameters()))
    (weight,) = [one.detach() for name, one in model.named_parameters() if name == "0.weight"]
    both = [torch.zeros_like(weight) for _ in range(2)]
    distributed.all_gather(both, weight)
    assert torch.equal(*both)
    assert is_compiled(compiled) and whole.tier != "skipping"


def _train_shards(rank: int) -> None:
    """`fully_shard` around compiled blocks, around a compiled model, and within a compiled step."""
    models = eager, blocks, outermost, third = [_model() for _ in range(4)]
    for place in (0, 2, 3):
        blocks[place] = ingot.jit(blocks[place])
    for model in models:
        fully_shard(model[0])
        fully_shard(model)
    compiled = eager, blocks, ingot.jit(outermost), third
    steps = [_step(*each) for each in zip(compiled, models, strict=True)]
    whole: Any = ingot.jit(steps[3])
    _run(rank, [*steps[:3], whole])
    weights = [[one.full_tensor() for one in model.parameters()] for model in models]
    for found in weights[1:]:
        same(found, weights[0])
    assert is_compiled(blocks[0]) and is_compiled(blocks[3]) and whole.tier != "skipping"
    assert "keeps" in blocks[3].explain()


def _lose_the_other(rank: int) -> None:
    """One process ends in the first step of a compiled model; the other one hears of it."""
    model = _model()
    module = DistributedDataParallel(ingot.jit(model))
    distributed.barrier()
    if rank == 1:
        module.register_forward_pre_hook(lambda *_: os._exit(0))
    with pytest.raises(RuntimeError):
        _step(module, model)(torch.randn(6, 16))


@pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="needs gloo")
def test_two_processes_train_to_eagers_weights(tmp_path: Path):
    module = "tests.frontend.jit.gradients.test_many_processes"
    # Ended at once: where gloo was used, torch's threads abort many a process that ends as usual, ingot or not.
    program = f"import os, sys, {module} as t; t._train(int(sys.argv[1]), sys.argv[2]); os._exit(0)"
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(rank), str(tmp_path / "meeting")], env=environment)
        for rank in range(2)
    ]
    assert [one.wait(timeout=300) for one in started] == [0, 0]
