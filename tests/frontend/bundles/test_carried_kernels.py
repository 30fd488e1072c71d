"""Bundles that carry compiled kernels: who uses them compiles nothing, and nobody uses them unasked."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot
from ingot.frontend.bundles import carried_kernels
from ingot.runtime.disk_cache.directory import Untrusted, open_trusted
from ingot.runtime.disk_cache.entries import CacheEntry, decode, encode
from ingot.runtime.disk_cache.identity import identity
from ingot.runtime.disk_cache.store import DiskStore
from tests.warm_processes import run_python

LOADING = """
import json, sys
import torch
import ingot
from ingot.codegen.llvm.object_code import compilations

is_right = True
for path, calls in json.loads(sys.argv[1]).items():
    loaded = ingot.load(path, trust_kernels=True)
    for sizes in calls:
        torch.manual_seed(0)
        given = [torch.randn(*size) for size in sizes]
        results = [loaded(*(one.clone() for one in given)) for _ in range(6)]
        is_right &= all(torch.allclose(one, results[0], atol=1e-4) for one in results)
print(json.dumps({"compilations": compilations(), "is_right": is_right}))
"""


def in_another_process(directory: Path, calls: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a process with a cache of its own tells of calling bundles, and what it says of their kernels."""
    variables = {**os.environ, "INGOT_CACHE_DIR": str(directory), "INGOT_LOGS": "cache", "OMP_NUM_THREADS": "1"}
    done = run_python("-c", LOADING, json.dumps(calls), env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), [line for line in done.stderr.splitlines() if "the kernels of" in line]


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.norm = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64), torch.nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.outer(functional.gelu(self.inner(x)))).transpose(0, 1).contiguous()


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def attending(x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x * 0.5, x + 1)


def saved(folder: Path, **options: Any) -> str:
    path = folder / "gate.ingot"
    ingot.save(ingot.jit(gate), path, (torch.randn(9, 33), torch.randn(9, 33)), **options)
    return str(path)


def members(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: str, change: Callable[[CacheEntry], bytes]) -> None:
    """Change every entry of a bundle's kernels."""
    parts = members(path)
    changed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(parts["kernels.cache"])) as before,
        zipfile.ZipFile(changed, "w") as after,
    ):
        for name in before.namelist():
            after.writestr(name, change(decode(before.read(name))))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**parts, "kernels.cache": changed.getvalue()}.items():
            archive.writestr(name, content)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A bundle that carries kernels."""
    return saved(tmp_path, kernels=True)


@pytest.fixture
def store(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskStore:
    """An empty cache that loading takes kernels into."""
    found = DiskStore(tmp_path / "cache", 10**9)
    monkeypatch.setattr(carried_kernels, "process_store", lambda: (found, identity()))
    return found


# --- being used -------------------------------------------------------------------------------------------------------


def test_loading_compiles_nothing_on_the_same_machine(tmp_path: Path):
    ingot.save(
        ingot.jit(Layer().eval()), tmp_path / "layer.ingot", [torch.randn(3, 64), torch.randn(5, 64)], kernels=True
    )
    ingot.save(ingot.jit(attending), tmp_path / "attending.ingot", torch.randn(1, 2, 32, 16), kernels=True)
    calls = {
        saved(tmp_path, kernels=True): [[(9, 33), (9, 33)]],
        str(tmp_path / "layer.ingot"): [[(5, 64)], [(3, 64)]],
        str(tmp_path / "attending.ingot"): [[(1, 2, 32, 16)]],
    }
    told, said = in_another_process(tmp_path / "cache", calls)
    assert told == {"compilations": 0, "is_right": True}, said
    assert len(said) == 3 and all(" 0 damaged" in line and " 0 used" not in line for line in said)


def test_what_is_damaged_is_compiled(path: str, tmp_path: Path):
    content = bytearray(Path(path).read_bytes())
    content[content.index(b"kernels.cache") + 200] ^= 1
    Path(path).write_bytes(content)
    told, (line,) = in_another_process(tmp_path / "cache", {path: [[(9, 33), (9, 33)]]})
    assert told["compilations"] > 0 and told["is_right"]
    assert "are not used: Bad CRC-32" in line


def test_damaged_entries_are_left_out(path: str, store: DiskStore):
    rewritten(path, lambda entry: encode(entry)[:-1] + b"?" if entry.header.kind == "kernel" else encode(entry))
    ingot.load(path, trust_kernels=True)
    kinds = {store.read(file).header.kind for file in store.files()}
    assert kinds and "kernel" not in kinds


def test_entries_of_other_versions_and_processors_are_left_out(path: str, store: DiskStore):
    for change in ({"ingot": "0.0.1"}, {"llvm": "1"}, {"cpu": "8086"}, {"features": "none"}):
        rewritten(path, lambda entry, change=change: encode(replace(entry, header=replace(entry.header, **change))))
        loaded = ingot.load(path, trust_kernels=True)
        assert not store.files(), change
    x, y = torch.randn(9, 33), torch.randn(9, 33)
    for _ in range(3):
        assert torch.allclose(loaded(x, y), gate(x, y), atol=1e-6)


def test_entries_that_a_cache_has_are_not_replaced(path: str, store: DiskStore):
    ingot.load(path, trust_kernels=True)
    before = {file.key: store.read(file).header.created for file in store.files()}
    rewritten(path, lambda entry: encode(replace(entry, header=replace(entry.header, created="later"))))
    ingot.load(path, trust_kernels=True)
    assert {file.key: store.read(file).header.created for file in store.files()} == before != {}


# --- not being used ---------------------------------------------------------------------------------------------------


def test_nothing_is_loaded_without_trust(path: str, store: DiskStore):
    ingot.load(path)
    assert not store.files()
    ingot.load(path, trust_kernels=True)
    assert store.files()


def test_what_others_can_write_is_not_trusted(path: str, tmp_path: Path, store: DiskStore):
    folder, link = tmp_path / "folder", tmp_path / "link.ingot"
    folder.mkdir(0o700)
    moved = Path(path).rename(folder / "gate.ingot")
    link.symlink_to(moved)
    for place, mode in ((moved, 0o666), (moved, 0o620), (folder, 0o777), (folder, 0o770)):
        usual = place.stat().st_mode
        place.chmod(mode)
        for name in (moved, link):
            with pytest.raises(Untrusted):
                open_trusted(name)
            ingot.load(name, trust_kernels=True)
        assert not store.files(), (place, oct(mode))
        place.chmod(usual)
    ingot.load(link, trust_kernels=True)
    assert store.files()


def test_what_is_no_plain_file_is_not_trusted(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "not a plain file"), (".", "not a plain file"), ("missing", "No such file")):
        with pytest.raises(Untrusted, match=reason):
            open_trusted(tmp_path / name)


def test_a_bundle_holds_no_code_unless_asked(tmp_path: Path, store: DiskStore):
    path = saved(tmp_path)  # over the one with kernels
    assert sorted(members(path)) == ["manifest.json", "traces/0.txt", "weights.safetensors"]
    ingot.load(path, trust_kernels=True)
    assert not store.files()


def test_trust_is_said_plainly(tmp_path: Path):
    path: Any = saved(tmp_path)
    answer: Any = "yes"
    with pytest.raises(ingot.IngotError, match="trust_kernels must be True or False"):
        ingot.load(path, trust_kernels=answer)


# --- saving -----------------------------------------------------------------------------------------------------------


def test_a_bundle_carries_the_kernels_of_its_program_alone(tmp_path: Path):
    other = ingot.jit(lambda x: torch.exp(x) * 3 - 1)
    for _ in range(3):
        other(torch.randn(9, 33))
    parts = members(saved(tmp_path, kernels=True))
    with zipfile.ZipFile(io.BytesIO(parts["kernels.cache"])) as carried:
        headers = [decode(carried.read(name)).header for name in carried.namelist()]
    names = [header.name for header in headers if header.kind == "kernel" and "cast" not in header.name]
    assert [name.rpartition("_")[0] for name in names] == ["mul_sigmoid_sub_tanh_mul"]
    assert {"common functions", "native routines"} <= {header.kind for header in headers}


def test_saving_with_kernels_changes_nothing(tmp_path: Path):
    def drawing(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.rand_like(x) * x

    x = torch.ones(9, 33)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    ingot.save(ingot.jit(drawing, python="skip"), tmp_path / "drawing.ingot", x, kernels=True)
    assert torch.equal(torch.rand(2), expected) and torch.equal(x, torch.ones(9, 33))


def test_without_a_cache_there_is_nothing_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carried_kernels, "process_store", lambda: None)
    with pytest.raises(ingot.IngotError, match="there is no cache: INGOT_CACHE_DIR"):
        saved(tmp_path, kernels=True)
    assert not list(tmp_path.iterdir())


def test_without_a_cache_kernels_are_compiled(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carried_kernels, "process_store", lambda: None)
    loaded = ingot.load(path, trust_kernels=True)
    x, y = torch.randn(9, 33), torch.randn(9, 33)
    for _ in range(3):
        assert torch.allclose(loaded(x, y), gate(x, y), atol=1e-6)
