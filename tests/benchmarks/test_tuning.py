"""The comparison of tuning: a case is tuned, raced and told. No test looks at times."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.measuring import Effort
from benchmarks.tuning import __main__ as command
from benchmarks.tuning.contests import ODD_SHAPES, contests, measure

from ingot.tune import tuner


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ingot.tune.measurement.Workbench.seconds",
        lambda bench, candidates, rounds: [[0.9 ** len(one.changes)] * rounds for one in candidates],
    )
    monkeypatch.setattr(tuner, "_findings", {})
    monkeypatch.setattr(tuner, "read", lambda key: None)


def test_cases_and_odd_shapes_are_all_there():
    found = contests()
    assert len(found) == 16 + len(ODD_SHAPES) and len(set(ODD_SHAPES)) == len(ODD_SHAPES) == 20


def test_a_case_is_tuned_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cases = {(case.name, rows): case for case, rows, _ in contests()}
    row = measure(cases["gate", 333], 333, 77, 2, Effort(1, 0.0))
    assert row.is_equal and row.candidates == 2 and row.chosen and row.speedup > 0
    arguments = [
        "--quick",
        "--row",
        "column sum",
        "--part",
        "2/3",
        "--steps",
        "2",
        "--json",
        str(tmp_path / "all.json"),
    ]
    assert command.main(arguments) == 0
    assert command.main([*arguments, "--read"]) == 0
    told = capsys.readouterr().out
    assert told.count("10001 x 17") == 2


@pytest.mark.parametrize("wrong", [["--part", "3/2"], ["--part", "x"], ["--read"], ["--steps", "0"]], ids=str)
def test_wrong_options_are_refused(wrong: list[str]):
    with pytest.raises(SystemExit):
        command.options(wrong)
