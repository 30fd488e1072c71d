"""The comparison runs, compares results before it measures, and saves what it says it saves. No test looks at times."""

import json
import math
import warnings
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.cases import MULTIPLY_ADD, POINTWISE, REDUCTIONS, SMALL_FUNCTIONS
from benchmarks.contestants import WrongResult, define, prepare, require_close
from benchmarks.groups import GROUPS, ONE_ADDITION
from benchmarks.measuring import Contestant, Effort, geometric_mean, race
from benchmarks.memory_speed import WAYS, in_huge_pages, moving
from benchmarks.model_contests import contest_of_model
from benchmarks.models import Model
from benchmarks.pictures import bars, curves
from benchmarks.results import COMPILE, EAGER, INGOT, JIT, Results, Row
from benchmarks.targets import targets

from ingot import IngotWarning

CASES = [*POINTWISE, *REDUCTIONS, *SMALL_FUNCTIONS[2:]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Everything one quick run leaves behind."""
    folder = tmp_path_factory.mktemp("benchmark")
    files = {"json": folder / "figures.json", "markdown": folder / "tables.md", "pictures": folder / "pictures"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IngotWarning)  # whether models compile is for other tests to say
        main(["--quick", "--no-compile", "--repeats", "1", *(f"--{name}={path}" for name, path in files.items())])
    return files


def test_figures_are_saved_for_every_group(saved):
    figures = json.loads(saved["json"].read_text())
    assert list(figures["groups"]) == list(GROUPS)
    for rows in figures["groups"].values():
        for row in rows:
            assert row["nbytes"] > 0
            assert all(math.isfinite(spent) and spent > 0 for spent in row["seconds"].values()), row
    assert [row["name"] for row in figures["groups"]["reductions"]] == [case.name for case in REDUCTIONS]


def test_tables_name_every_case(saved):
    text = saved["markdown"].read_text()
    for case in CASES:
        assert f"| {case.name} |".replace("*", "\\*") in text
    assert "## Targets" in text


@pytest.mark.parametrize("name", ["benchmark.svg", "linear-cost.svg"])
def test_pictures_are_well_formed(saved, name):
    root = ElementTree.parse(saved["pictures"] / name).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "ingot" in {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}


def test_only_the_groups_asked_for_are_measured(capsys):
    results = main(["--quick", "--no-compile", "--repeats", "1", "--group", "small"])
    assert list(results.groups) == ["small"]
    assert set(results.groups["small"][0].seconds) == {ONE_ADDITION, EAGER, INGOT, JIT}
    assert "Small tensors" in capsys.readouterr().out


def test_rounds_must_be_positive(capsys):
    with pytest.raises(SystemExit):
        main(["--repeats", "0"])
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("rows, columns", [(8, 8), (33, 33)])
def test_fused_and_eager_agree(case, rows, columns):
    tensors = case.tensors(rows, columns)
    expected = case.eager(*tensors)
    require_close(
        case, define(case, tensors).execute(tensors), expected if isinstance(expected, tuple) else (expected,)
    )


def test_a_wrong_result_ends_the_run():
    wrong = replace(MULTIPLY_ADD, name="wrong", fused=lambda ops, a, b, c: a * b - c)
    with pytest.raises(WrongResult, match="wrong, result 0"):
        prepare(wrong, wrong.tensors(4, 4), with_compile=False)


def test_contestants_take_turns():
    turns: list[str] = []
    contestants = {
        name: Contestant(lambda name=name: turns.append(name), lambda name=name: turns.append(f"{name} ready"))
        for name in ("one", "other")
    }
    timings = race(contestants, Effort(rounds=3, shortest_turn=0.0))
    assert turns[-12:] == ["one ready", "one", "other ready", "other"] * 3
    assert {name: len(timing.rounds) for name, timing in timings.items()} == {"one": 3, "other": 3}


def test_short_calls_are_repeated_in_a_turn():
    calls: Counter[str] = Counter()
    contestant = Contestant(lambda: calls.update(["call"]))
    race({"short": contestant}, Effort(rounds=1, shortest_turn=0.001))
    assert calls["call"] > 20


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("reads, writes", [(1, 0), (0, 1), (2, 1), (3, 2)])
def test_yardstick_moves_every_element(ways, reads, writes):
    elements = 1 << 14
    arrays = [in_huge_pages(torch.full((elements,), float(number))) for number in range(writes + reads)]
    moving(arrays, reads, writes, ways)()
    read = [float(number) for number in range(writes, writes + reads)]
    moved = read[0] + 2 * sum(read[1:]) if read else 2.0
    assert [array.unique().tolist() for array in arrays] == [[moved]] * writes + [[number] for number in read]


def test_copy_in_huge_pages_keeps_values_and_dtype():
    tensor = torch.arange(1000, dtype=torch.int16).view(10, 100)
    copy = in_huge_pages(tensor)
    assert copy.dtype == tensor.dtype
    assert torch.equal(copy, tensor)


def test_targets_name_the_worst_row():
    good = Row("good", {EAGER: 2.0, INGOT: 1.0}, 10, 10, {INGOT: 0.001})
    bad = Row("bad", {EAGER: 1.0, INGOT: 2.0}, 10, 10, {INGOT: 0.001})
    found = {target.text: target for target in targets(Results({}, (), {}, {"pointwise": (good, bad)}))}
    over_eager = found["pointwise, over eager"]
    assert (over_eager.where, over_eager.reached, over_eager.is_met) == ("bad", 0.5, False)
    assert found["median time to compile"].is_met
    assert not any("torch.compile" in text for text in found)


def test_targets_hold_for_both_ways_in():
    row = Row("row", {EAGER: 2.0, INGOT: 1.0, JIT: 4.0}, 10, 10, {INGOT: 0.001})
    found = {target.text: target for target in targets(Results({}, (), {}, {"pointwise": (row,), "small": (row,)}))}
    assert found["pointwise, over eager"].is_met
    assert found["pointwise, ingot.jit, over eager"].reached == 0.5
    assert found["small calls through ingot.jit, over eager"].reached == 0.5


@pytest.mark.parametrize("group", ["models", "frozen"])
def test_targets_of_models_are_means(group):
    rows = tuple(
        Row(str(times), {EAGER: times, COMPILE: 1.0, JIT: 1.0}, 1, 1, second_result={COMPILE: 40.0, JIT: times})
        for times in (1.0, 4.0)
    )
    over_eager, over_compile, sooner = targets(Results({}, (), {}, {group: rows}))
    assert over_eager.reached == pytest.approx(2.0)
    assert over_compile.is_met
    assert sooner.reached == pytest.approx(20.0)


def test_a_model_that_gives_something_else_ends_the_run():
    class Forgetful(torch.nn.Module):
        calls = 0

        def forward(self, x):
            type(self).calls += 1
            return x + self.calls

    model = Model("forgetful", lambda is_small: (Forgetful(), {"x": torch.ones(3)}))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(WrongResult, match="forgetful, result 0"):
            contest_of_model(model, is_small=True, with_compile=False)


def test_a_cliff_is_seen():
    rows = tuple(Row(str(size), {INGOT: size * cost}, size, 0) for size, cost in ((10, 1.0), (20, 1.1), (40, 3.3)))
    (cliff,) = targets(Results({}, (), {}, {"linear": rows}))
    assert cliff.where == "40"
    assert cliff.reached == pytest.approx(3.0)
    assert not cliff.is_met


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)


def test_bars_are_as_long_as_their_values():
    root = ElementTree.fromstring(bars("a < b", {"group": {"case": {COMPILE: 1.0, INGOT: 3.0}}}, "x"))
    rectangles = [element.attrib for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    short, long = (float(rectangle["width"]) for rectangle in rectangles[-2:])
    assert long == pytest.approx(3 * short, rel=1e-3)


def test_curves_rise_with_their_values():
    root = ElementTree.fromstring(curves("cost", "elements", "ns", {INGOT: [(1e3, 1.0), (1e6, 10.0)]}))
    (first, last) = (element.attrib for element in root.iter("{http://www.w3.org/2000/svg}circle"))
    assert float(first["cx"]) < float(last["cx"])
    assert float(first["cy"]) > float(last["cy"])
