"""Processes that share a cache: the second one compiles nothing, several at once are right, damage is compiled anew."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot import GraphBuilder, JitCompiler
from ingot.runtime.disk_cache.entries import decode
from ingot.runtime.disk_cache.store import SUFFIX, DiskStore
from tests.warm_processes import run_python

GATE = """
import json
import torch
import ingot
from ingot.codegen.llvm.object_code import compilations
from ingot.runtime.disk_cache.process import process_store

@ingot.jit
def gate(x, y, weight):
    return (torch.sigmoid(x * y) * torch.tanh(x - y)) @ weight

torch.manual_seed(0)
x, y, weight = torch.randn(64, 256), torch.randn(64, 256), torch.randn(256, 256)
first, second = gate(x, y, weight), gate(x, y, weight)
tier = gate.tier
statistics = process_store()[0].statistics if process_store() else None
print(json.dumps({
    "is_right": torch.allclose(first, second, atol=1e-4),
    "tier": tier,
    "compilations": compilations(),
    "hits": statistics.hits if statistics else None,
    "damaged": statistics.damaged if statistics else None,
}))
"""
AT_ONCE = 16 if int(os.environ.get("INGOT_TEST_EXAMPLES", "0")) >= 1000 else 4


def run(tmp_path: Path, *directories: Path | str) -> list[tuple[dict[str, Any], list[str]]]:
    """What processes with these caches, all at once, have printed, and their logs."""
    script = tmp_path / "gate.py"
    script.write_text(GATE)

    def told(directory: Path | str) -> tuple[dict[str, Any], list[str]]:
        variables = {**os.environ, "INGOT_CACHE_DIR": str(directory), "INGOT_LOGS": "cache", "OMP_NUM_THREADS": "1"}
        done = run_python(str(script), env=variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), _of_the_disk(done.stderr)

    with ThreadPoolExecutor(len(directories)) as pool:
        found = list(pool.map(told, directories))
    assert all(one["is_right"] and one["tier"] == "skipping" for one, _ in found)
    return found


def _of_the_disk(said: str) -> list[str]:
    """The lines of the log that are not about what this process had already."""
    return [line for line in said.splitlines() if not line.startswith(("ingot cache: graph ", "ingot cache: kernel "))]


def test_processes_share_what_they_have_compiled_and_mend_what_is_damaged(tmp_path):
    directory = tmp_path / "cache"
    for found, said in run(tmp_path, *[directory] * AT_ONCE):
        assert found["compilations"] + found["hits"] > 0 and found["damaged"] == 0 and not said
    store = DiskStore(directory, 10**9)
    entries = [store.read(file) for file in store.files()]
    assert {"kernel", "native routines", "common functions", "products"} <= {entry.header.kind for entry in entries}
    assert "__main__.gate" in {entry.header.function for entry in entries}
    made_for = {(entry.header.graph, entry.header.config) for entry in entries if entry.header.kind == "kernel"}
    assert made_for and all(all(one) for one in made_for)

    ((found, said),) = run(tmp_path, directory)
    assert found["compilations"] == 0 and found["hits"] and not said

    paths = sorted(directory.glob(f"*{SUFFIX}"))
    contents = [path.read_bytes() for path in paths]
    for number, path in enumerate(paths):
        other = contents[(number + 1) % len(paths)]
        path.write_bytes([b"", contents[number][:-1], other, contents[number] + b"."][number % 4])
    ((found, said),) = run(tmp_path, directory)
    assert found["damaged"] == len(said) > 0 and found["hits"] == 0
    for line in said:
        name = line.removeprefix("ingot cache: ").partition(" ")[0]
        assert decode((directory / name).read_bytes(), name.removesuffix(SUFFIX))  # compiled again, and whole


def test_without_a_directory_that_can_be_trusted_everything_is_compiled(tmp_path):
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o777)
    (found, said), (of_none, nothing_said) = run(tmp_path, directory, "")
    assert found["compilations"] and found["hits"] is None
    assert len(said) == 1 and "nothing is kept: others can write to" in said[0]
    assert of_none["compilations"] and of_none["hits"] is None and not nothing_said
    assert not list(directory.iterdir())


@pytest.mark.parametrize("is_kept", [True, False])
def test_enable_caching_decides_about_kernels(monkeypatch, is_kept):
    asked: list[str | None] = []
    monkeypatch.setattr("ingot.runtime.cpu.kernels.process_code", lambda owner, _: asked.append(owner.function))
    builder = GraphBuilder()
    x = builder.input((7, 3 if is_kept else 5))
    builder.output(builder.ops.tanh(builder.ops.sin(x * 0.123)) + (1.25 if is_kept else 2.25))
    compiler = JitCompiler({"enable_caching": is_kept}, function="module.function")
    compiler.compile(builder.build()).execute([torch.ones(7, 3 if is_kept else 5)])
    assert asked == (["module.function"] if is_kept else [])
