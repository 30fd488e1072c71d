"""The command `ingot`: what users type, and what they are told. One process starts it as they do."""

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from ingot.base.config import FLAGS
from ingot.base.stages import STAGES
from ingot.cli.listing import COLUMNS
from ingot.cli.main import main
from ingot.frontend.jit.rewrites.trace_passes import TRACE_PASSES
from ingot.ops import table
from ingot.passes.graph_passes import PASSES
from ingot.runtime.backends.registry import registered

GRAPH = "graph(%0: f32[s0]) {\n  %1 = mul(%0, 1.0:f32): f32[s0]\n  %2 = exp(%1): f32[s0]\n  return %2\n}\n"


@dataclass(frozen=True)
class Done:
    returncode: object
    stdout: str
    stderr: str


def ingot(*arguments: str, text: str = "") -> Done:
    """The command's entry point with these arguments, in this process."""
    stdin, stdout, stderr = io.TextIOWrapper(io.BytesIO(text.encode())), io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["ingot", *arguments])
        patch.setattr(sys, "stdin", stdin)
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            main()
    return Done(ended.value.code, stdout.getvalue(), stderr.getvalue())


@pytest.mark.parametrize("command", [("ops", "softmax"), ("ops", "sofmax")], ids=" ".join)
def test_a_process_of_its_own_tells_the_same(command: tuple[str, ...]):
    line = [sys.executable, "-m", "ingot", *command]
    done, wanted = subprocess.run(line, capture_output=True, text=True, check=False), ingot(*command)
    assert (done.returncode, done.stdout, done.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_help_lists_every_command():
    done = ingot("--help")
    assert done.returncode == 0
    for command in (
        *("ops", "flags", "passes", "backends", "verify", "optimize", "explain", "bench", "doctor", "demo"),
        *("cache", "compile", "run"),
    ):
        assert command in done.stdout


def test_lists_name_everything_there_is():
    listing = ingot("ops").stdout
    assert all(op.name[:12] in listing for op in table().values() if op.is_public)
    listing = ingot("flags").stdout
    assert all(flag.name[:12] in listing for flag in FLAGS)
    listing = ingot("passes").stdout
    assert all(part.name in listing for part in (*STAGES, *TRACE_PASSES, *PASSES))


def test_the_pipeline_is_told_as_json_too():
    found = json.loads(ingot("passes", "--json").stdout)
    assert [stage["name"] for stage in found["stages"]] == [stage.name for stage in STAGES]
    assert [pass_["name"] for pass_ in found["trace_passes"]] == [pass_.name for pass_ in TRACE_PASSES]
    assert [pass_["level"] for pass_ in found["graph_passes"]] == [pass_.level for pass_ in PASSES]


def test_backends_are_told_with_what_they_can_do():
    listing = ingot("backends").stdout
    assert all(backend.name in listing for backend in registered())
    told = json.loads(ingot("backends", "--json").stdout)
    assert list(told) == [backend.name for backend in registered()]
    assert all(set(row) == {*COLUMNS, "why not available"} for row in told.values())
    assert told["cpu"]["available"] == "yes" and told["cpu"]["why not available"] is None
    for row in told.values():
        assert (row["available"] == "yes") == (row["why not available"] is None)


def test_one_operator_is_described():
    done = ingot("ops", "softmax")
    assert "softmax(x, axis, dtype=None)" in done.stdout
    assert "composite" in done.stdout


def test_optimize_prints_the_graph_and_what_each_pass_did():
    done = ingot("optimize", "-", text=GRAPH)
    assert done.returncode == 0
    assert done.stdout == "graph(%0: f32[s0]) {\n  %1 = exp(%0): f32[s0]\n  return %1\n}\n"
    assert "2 operations became 1" in done.stderr
    untouched = ingot("optimize", "-", "--disable", "algebraic_simplification", "--no-report", text=GRAPH)
    assert untouched.stdout == GRAPH
    assert untouched.stderr == ""
    assert ingot("optimize", "-", "--level", "0", text=GRAPH).stdout == GRAPH


def test_verify_tells_what_it_read(tmp_path):
    file = tmp_path / "graph.txt"
    file.write_text(GRAPH)
    done = ingot("verify", str(file))
    assert done.returncode == 0
    assert done.stdout.startswith("correct: 1 inputs, 2 operations, 1 outputs, digest ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "-"], "line 1"),
        (["optimize", "-", "--disable", "nonsense"], "line 1"),
        (["ops", "sofmax"], "did you mean softmax"),
        (["nonsense"], "No such command"),
        (["verify", "/does/not/exist"], "No such file"),
    ],
)
def test_faults_are_one_message_and_a_failing_exit(arguments, message):
    done = ingot(*arguments, text="this is no graph")
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
