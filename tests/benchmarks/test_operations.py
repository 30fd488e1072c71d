"""The comparison of operations: every result is compared, and a wrong one is told. No test looks at times."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from benchmarks.capture.contests import Job, Row
from benchmarks.measuring import Effort
from benchmarks.operations import __main__ as command
from benchmarks.operations.cases import Data, OperationCase
from benchmarks.operations.contests import SECTIONS, measure_case
from benchmarks.operations.report import over_faster, sheets
from benchmarks.results import COMPILE, EAGER, JIT

QUICK = ["--quick", "--repeats", "1", "--size", "small"]


@pytest.fixture(autouse=True)
def on_one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(command, "SHORTEST_TURN", 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_cases_have_names_of_their_own_and_make_the_same_tensors_twice():
    cases = [case for section in SECTIONS.values() for case in section]
    assert len({case.name for case in cases}) == len(cases) >= 30
    for case in cases:
        for one, other in zip(case.make(Data(True)), case.make(Data(True)), strict=True):
            assert torch.equal(one, other)


def test_wrong_results_are_told():
    calls: list[float] = []

    def growing(x: torch.Tensor) -> torch.Tensor:
        calls.append(1.0)
        return x + len(calls)

    row = measure_case(OperationCase("growing", growing, lambda data: (data.floats(4),)), Effort(1, 0.0), False, True)
    assert "not close" in row.difference


def test_the_command_prints_and_saves_everything(tmp_path, capsys):
    figures, tables = tmp_path / "figures.json", tmp_path / "tables.md"
    given = [*QUICK, "--row", "unit vectors", "--row", "sepia", f"--json={figures}", f"--markdown={tables}"]
    assert command.main(given) == 0
    saved = json.loads(figures.read_text())["sections"]
    assert {name: len(rows) for name, rows in saved.items()} == {"geometry": 1, "images": 1, "lookups": 0}
    assert saved["geometry"][0]["seconds"].keys() == {EAGER, JIT}
    assert "sepia" in capsys.readouterr().out and "in the geometric mean" in tables.read_text()


def test_a_wrong_result_makes_the_status_one(monkeypatch, capsys):
    monkeypatch.setattr(command, "jobs", lambda *_: [Job("b", lambda: Row("b", {}, "result: 1 instead of 2"))])
    assert command.main([*QUICK, "--only", "images"]) == 1
    assert "WRONG: b: result: 1 instead of 2" in capsys.readouterr().out


def test_rows_are_compared_with_the_faster_of_both():
    rows = [Row("a", {EAGER: 4e-3, COMPILE: 1e-3, JIT: 2e-3}), Row("b", {EAGER: 4e-3, JIT: 2e-3})]
    assert [over_faster(row) for row in rows] == [0.5, 2.0]
    (sheet,) = sheets({"threads": "1"}, {"geometry": rows}, quick=False)
    assert sheet.remarks[-2].startswith("All 2 rows: 1 lost by more than 3%, 2.00x over eager")
