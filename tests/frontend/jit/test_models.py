"""Whole models give what they give eagerly: recorded, compiled, and run again; under other inputs, too."""

import re
import warnings
from typing import Any

import pytest
import torch
from benchmarks.models import MODELS

from ingot import jit


def made(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return model.make(is_small=True)


def fields(result):
    """Every tensor of a result by its name, and everything else as it is."""
    if isinstance(result, torch.Tensor):
        return {"": result}
    named = result.items() if hasattr(result, "items") else enumerate(result)
    return {f"{name}.{inner}": value for name, part in named for inner, value in fields(part).items()}


def require_equal(found, expected):
    assert type(found) is type(expected)
    mine, its = fields(found), fields(expected)
    assert list(mine) == list(its)
    for name, tensor in its.items():
        assert mine[name].dtype == tensor.dtype
        torch.testing.assert_close(
            mine[name], tensor, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def other_values(tensor):
    return tensor.flip(0) if tensor.dtype == torch.int64 else torch.randn_like(tensor)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_call_gives_what_eager_gives(model):
    module, inputs = made(model)
    compiled: Any = jit(module, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            require_equal(compiled(**inputs), module(**inputs))
        changed = {name: other_values(tensor) for name, tensor in inputs.items()}
        require_equal(compiled(**changed), module(**changed))
    kernels = re.search(r"became (\d+) kernels?", compiled.forward.explain())
    assert kernels is not None
    assert int(kernels[1]) > 0


def test_changed_weights_count():
    module, inputs = made(next(model for model in MODELS if model.name == "MLP"))
    compiled: Any = jit(module)
    with torch.no_grad():
        for _ in range(2):
            compiled(**inputs)
        for parameter in module.parameters():
            parameter.mul_(0.5)
        require_equal(compiled(**inputs), module(**inputs))
