"""Compiled modules inside DistributedDataParallel train to the weights that eager ones train to, in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import ingot
from ingot.frontend.jit.autotune import eager_comparison
from tests.frontend.jit.gradients.comparing_gradients import is_compiled, same

STEPS = 8


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))


def _train(rank: int, meeting_place: str) -> None:
    """What one of the processes does. It keeps its programs, however long they take beside another process."""
    eager_comparison.ROUNDS = 0
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2)
    eager, model = _model(), _model()
    compiled = ingot.jit(model)
    modules = DistributedDataParallel(compiled), DistributedDataParallel(eager)
    optimizers = [torch.optim.AdamW(one.parameters(), 1e-2) for one in (model, eager)]
    for step in range(STEPS):
        x = torch.randn(6, 16, generator=torch.Generator().manual_seed(100 * rank + step))
        for module, optimizer in zip(modules, optimizers, strict=True):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
    same(list(model.parameters()), list(eager.parameters()))
    (weight,) = [one.detach() for name, one in model.named_parameters() if name == "0.weight"]
    both = [torch.zeros_like(weight) for _ in range(2)]
    distributed.all_gather(both, weight)
    assert torch.equal(*both)
    assert is_compiled(compiled)
    distributed.barrier()


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
