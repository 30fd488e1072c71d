"""Processes one after the other: the second answers its first calls with what the first has recorded, where that holds.

Each program is a function or a module of one script, over state of all kinds. The first process calls all of them until
they are kept; later ones change what they read before their first call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIBRARY = """
import enum
from collections import namedtuple
from dataclasses import dataclass

SCALE = 2.0
NAMES = {"relu", "tanh"}
Pair = namedtuple("Pair", ["left", "right"])


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


@dataclass
class Config:
    width: int = 3
    kind: Kind = Kind.FIRST
    pair: Pair = Pair(1.0, 2.0)


class Slotted:
    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 3.0


def helper(x):
    return x * SCALE


def another(x):
    return x + 1
"""
SCRIPT = """
import json, sys
import torch
import ingot
import library
from library import Config, Kind, Pair, Slotted

config, slotted, values, table = Config(), Slotted(), [1.0, 2.0], {"bias": 1.0}
default = 1.0


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.dropout = torch.nn.Dropout(0.5)
        self.scale = 2.0

    def forward(self, x):
        return self.dropout(torch.relu(self.linear(x))) * self.scale


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(2)])
        self.register_buffer("offset", torch.ones(8))

    def forward(self, x):
        for block in self.blocks:
            x = block(x) + self.offset
        return {"result": x, "size": x.shape[0]}


def of_global(x):
    return x * default + 1

def of_module(x):
    return library.helper(x) + 1

def of_enum(x):
    return x + 1 if config.kind is Kind.FIRST else x - 1

def of_width(x):
    return x.sum() * config.width

def of_named_tuple(x):
    return x * config.pair.left - config.pair.right

def of_slot(x):
    return x * slotted.factor

def of_list(x):
    return sum(x * value for value in values)

def of_dictionary(x):
    return x + table["bias"] if "bias" in table else x

def of_set(x):
    return torch.relu(x) if "relu" in library.NAMES else x

def with_default(x, factor=2.0):
    return x * factor

def of_keyword(x, *, power=2):
    return x ** power

def of_patched(x):
    return torch.nn.functional.softplus(x)

def of_order(x):
    for name in {"first", "second", "third", "fourth", "fifth"}:
        x = x * 2 if name == "second" else x + 1
    return x

def of_members(x):
    return x + 1 if "first" in {"first", "second", "third"} and x.dim() == 2 else x

def of_helper(x):
    return library.another(x) * 3


FUNCTIONS = [value for name, value in list(globals().items()) if name.startswith(("of_", "with_"))]
x = torch.randn(4, 8)


def change_functions():
    global default
    default = 5.0
    library.SCALE = 7.0
    library.another = lambda x: x - 1
    config.kind, config.width, config.pair = Kind.SECOND, 9, Pair(3.0, 4.0)
    slotted.factor = 8.0
    values.append(5.0)
    del table["bias"]
    library.NAMES.discard("relu")
    with_default.__defaults__ = (6.0,)
    of_keyword.__kwdefaults__["power"] = 3
    original = torch.nn.functional.softplus
    torch.nn.functional.softplus = lambda x: original(x) + 1

def change_weights(outer):
    torch.nn.init.ones_(outer.blocks[0].linear.weight)

def change_mode(outer):
    outer.blocks[0].dropout.p = 0.0

def change_tied(outer):
    outer.blocks[1].linear.weight = outer.blocks[0].linear.weight

def change_strides(outer):
    outer.offset = torch.ones(1).expand(8)

def change_scale(outer):
    outer.blocks[1].scale = 4.0

def change_hook(outer):
    outer.blocks[0].register_forward_hook(lambda module, args, result: result * 2)

def change_forward(outer):
    outer.blocks[0].forward = lambda x: x

def change_order(outer):
    outer.blocks = torch.nn.ModuleList([outer.blocks[0], outer.blocks[0]])

CHANGES = [value for name, value in list(globals().items()) if name.startswith("change_")][1:]


def same(found, expected):
    if isinstance(expected, dict):
        return type(found) is dict and found["size"] == expected["size"] and same(found["result"], expected["result"])
    return torch.allclose(found, expected, atol=1e-6)


def tried(subject):
    jitted = ingot.jit(subject)
    expected = subject(x)
    results = [jitted(x) for _ in range(20)]
    compiled = (jitted.forward if isinstance(subject, torch.nn.Module) else jitted)._compiled
    return [all(same(found, expected) for found in results), compiled.taken_up, compiled.recordings]


how = sys.argv[1]
if how == "changed":
    change_functions()
if how == "class":
    Block.forward = lambda self, x: self.linear(x)
told = {}
with torch.no_grad():
    for function in FUNCTIONS:
        told[function.__name__] = tried(function)
    for change in CHANGES:
        outer = Outer().eval()
        if how == "changed":
            change(outer)
        told[change.__name__] = tried(outer)
print(json.dumps(told))
"""


def _run(folder: Path, how: str, **variables: str) -> dict[str, Any]:
    environment = {**os.environ, "INGOT_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, str(folder / "script.py"), how]
    ran = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert all(is_right for is_right, _, _ in told.values()), told
    return told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script, and a cache that a first process has filled."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "cache").mkdir(mode=0o700)
    _run(tmp_path, "nothing", PYTHONHASHSEED="1")
    return tmp_path


def test_second_process_records_nothing_unless_something_has_changed(folder: Path) -> None:
    told = _run(folder, "nothing", PYTHONHASHSEED="3")  # by which sets have another order
    anew = {name for name, (_, taken_up, _) in told.items() if taken_up != 1}
    assert anew == {"of_order"}, told  # the order of a set's members may be another one
    told = _run(folder, "nothing", MKL_VERBOSE="0")  # which a library below PyTorch reads
    # Modules of one class take up what the first of them has kept.
    assert not any(taken_up for name, (_, taken_up, _) in told.items() if not name.startswith("change_")), told
    told = _run(folder, "changed")
    assert told.pop("change_weights")[1:] == [1, 0]
    del told["of_order"], told["of_members"]
    assert all(taken_up == 0 for _, taken_up, _ in told.values()), told
    told = _run(folder, "class")
    assert told["change_weights"][1:] == [0, 1]
