"""The declared pipeline: stages whose printers are there, names that are unique, and every stage seen by its name."""

from __future__ import annotations

import itertools
import pkgutil
from typing import Any

import pytest
import torch

import ingot
from ingot.base.environment_variables import environment
from ingot.base.errors import ArgumentError, ConfigError
from ingot.base.stages import STAGES, Stage, declare_passes, named_stage, pass_names, refuse_unknown_passes
from ingot.codegen.ptx.target import gpu
from ingot.frontend.jit.rewrites.trace_passes import TRACE_PASSES
from ingot.passes.graph_passes import PASSES
from ingot.runtime.cuda.kernels import gpu_kernels, scheduled

ON_GPUS = ("ptx", "sass")
NAMES = [stage.name for stage in STAGES]
FRESH = itertools.count(1)


@pytest.mark.parametrize("stage", [pytest.param(stage, id=stage.name) for stage in STAGES])
def test_what_prints_a_stage_is_where_the_table_says(stage: Stage) -> None:
    owner, _, attribute = stage.printer.rpartition(".")
    found = pkgutil.resolve_name(f"ingot.{owner}")
    assert hasattr(found, attribute) or attribute in found.__annotations__
    if isinstance(found, type) and stage.takes not in ("Nest", "LLVM", "PTX"):
        assert found.__name__ == stage.gives.removeprefix("jit ")


def test_stages_follow_each_other() -> None:
    given = {stage.gives for stage in STAGES}
    assert {stage.takes for stage in STAGES} - given == {"call"}


def test_every_pass_is_known_by_a_name_of_its_own() -> None:
    names = [pass_.name for pass_ in (*TRACE_PASSES, *PASSES)]
    assert sorted(names) == sorted(pass_names()) and len(set(names)) == len(names)
    assert set(names).isdisjoint(NAMES)
    with pytest.raises(ValueError, match="sink_cat is the name of another pass"):
        declare_passes(next(pass_ for pass_ in PASSES if pass_.name == "sink_cat"))
    refuse_unknown_passes(names)
    with pytest.raises(ConfigError, match="there is no pass nests; there are"):
        refuse_unknown_passes(["sink_cat", "nests"])


def test_other_names_of_stages() -> None:
    assert [named_stage(name) for name in ("asm", "loops", "graph")] == ["assembly", "nests", "graph"]


def dumped(word: str, work: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("INGOT_DUMP", word)
    environment.cache_clear()
    capfd.readouterr()
    try:
        work()
    finally:
        monkeypatch.undo()
        environment.cache_clear()
    return capfd.readouterr().err


@pytest.mark.usefixtures("no_eager_comparison")
@pytest.mark.parametrize("word", [name for name in NAMES if name not in ON_GPUS] + ["asm", "loops"])
def test_every_stage_is_dumped_by_its_name_alone(
    word: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scale = 0.375 + next(FRESH) / 1024  # a kernel that no other test has compiled
    function: Any = ingot.jit(lambda x: torch.softmax(x * scale, -1))
    x = torch.randn(3, 5)

    def work() -> None:
        for _ in range(3):
            function(x)

    printed = dumped(word, work, monkeypatch, capfd)
    stage = named_stage(word)
    assert {line for line in printed.splitlines() if line.startswith("# ") and line[2:] in NAMES} == {f"# {stage}"}
    assert function.inspect(stage).splitlines()[0] in printed


@pytest.mark.parametrize("word", ON_GPUS)
def test_stages_of_gpus_are_dumped(
    word: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = ingot.GraphBuilder()
    builder.output(builder.ops.sigmoid(builder.input((64, 32)) * (0.625 + next(FRESH) / 1024)))
    (kernel,) = ingot.JitCompiler().compile(builder.build()).kernels()
    call, _ = scheduled(kernel, [torch.empty(64, 32, device="meta")], {})
    work = lambda: gpu_kernels.get(kernel.program, call.schedule, gpu((9, 0)))
    printed = dumped(word, work, monkeypatch, capfd)
    assert printed.startswith(f"# {word}\n")
    assert ".target sm_90" in printed if word == "ptx" else "EXIT" in printed or "no text: " in printed


def test_several_words_and_none(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    builder = ingot.GraphBuilder()
    builder.output(builder.input((4,)) * (0.125 + next(FRESH) / 1024))
    graph = builder.build()
    work = lambda: ingot.JitCompiler().compile(graph)
    printed = dumped("graph, clusters", work, monkeypatch, capfd)
    assert [line for line in printed.splitlines() if line.startswith("# ")] == ["# graph", "# clusters"]
    assert dumped("", work, monkeypatch, capfd) == ""


def test_unknown_words_are_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = r"INGOT_DUMP cannot name nest; it knows (?=.*nests)(?=.*sink_cat).*find_linears"
    with pytest.raises(ConfigError, match=expected):
        dumped("nest", lambda: environment(), monkeypatch, capfd)


def test_stages_that_are_not_there_are_refused() -> None:
    function: Any = ingot.jit(lambda x: x + 1)
    with pytest.raises(ArgumentError, match="there is no stage 'nest'; there are steps, segments, trace"):
        function.inspect("nest")
