"""The comparison of capture: cases are what they say, differences are found and told. No test looks at times."""

import json

import pytest
import torch
from benchmarks.capture import __main__ as command
from benchmarks.capture import calls, contests, disturbed, functions, slow, slow_cases
from benchmarks.capture.contests import Job, Row, Settings, difference
from benchmarks.capture.followed import FOLLOWED, KERNELS, followed
from benchmarks.capture.hugging_face import USES
from benchmarks.capture.lengths import Contest
from benchmarks.capture.models import FLOOR, LEAST, measure_model, over_least, over_sum
from benchmarks.capture.python_floor import CallsDiffer, answered
from benchmarks.capture.report import save, sheets
from benchmarks.capture.sections import SECTIONS
from benchmarks.capture.targets import share_of_limit, targets
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.measuring import Effort
from benchmarks.models import transformers_package
from benchmarks.results import COMPILE, EAGER, JIT

import ingot

SETTINGS = Settings(4096, Effort(1, 0.0), compile_functions=False, compile_models=False, small_models=True)
DISTURBED = pytest.mark.parametrize("case", disturbed.CASES, ids=lambda case: case.name)
SLOW = pytest.mark.parametrize("case", slow_cases.CASES, ids=lambda case: case.name)


# --- the cases --------------------------------------------------------------------------------------------------------


@DISTURBED
def test_a_function_computes_the_same_without_the_thing(case):
    x, y = torch.randn(2, 1 << 16, generator=torch.Generator().manual_seed(3))
    made = case.make()
    found, wanted = made.function(x, y, *made.more), case.plain(x, y)
    if case.name == "f-string of a shape":
        found = found[0]
    tolerance = 0.1 if case.name == "random.random" else contests.TOLERANCE
    assert difference(found, wanted, tolerance) == ""


def test_there_are_twenty_functions_of_different_names():
    assert len({case.name for case in disturbed.CASES}) == len(disturbed.CASES) == 20


@DISTURBED
def test_functions_made_alike_have_state_of_their_own(case):
    x, y = torch.randn(2, 64, generator=torch.Generator().manual_seed(3)).abs()
    one, other = case.make(), case.make()
    before = other.effects()
    for _ in range(5):
        one.function(x, y, *one.more)
    assert difference(other.effects(), before) == ""
    for _ in range(5):
        other.function(x, y, *other.more)
    assert difference(other.effects(), one.effects()) == ""


@SLOW
def test_slow_programs_made_alike_do_the_same(case):
    one, other = case.make(), case.make()
    for number in range(3):
        with torch.set_grad_enabled(case.needs_gradients):
            wanted = one.call(one.function, number)
            assert difference(other.call(other.function, number), wanted) == ""
    assert difference(other.state(), one.state()) == ""


def test_adamw_by_hand_is_adamw():
    program = slow_cases._adamw()
    optimized = slow_cases._optimizer()
    with torch.no_grad():
        for number in range(4):
            program.call(program.function, number)
            optimized.call(optimized.function, number)
    assert difference(optimized.state(), program.state()[0], tolerance=1e-5) == ""


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_function_is_measured_with_and_without_the_thing():
    (case,) = (case for case in disturbed.CASES if case.name == "counter")
    row = functions.measure_function(case, SETTINGS)
    assert set(row.seconds) == {EAGER, JIT, functions.PLAIN}
    assert row.is_equal


class _Computing(torch.nn.Module):
    def forward(self, words, table):
        found = torch.nn.functional.embedding(words, table)  # at once
        places = torch.arange(found.shape[0], dtype=found.dtype)  # at once
        other = found.view(-1, 4).contiguous()  # a view, and nothing
        total = (other * places[:, None]).to(torch.float32).sum()  # a segment
        return places if bool(total > 0) else total  # a segment's end, at once


def test_kernels_are_what_computes_in_a_followed_call():
    module, words, table = _Computing(), torch.arange(3), torch.rand(5, 4)
    with torch.no_grad():
        made = followed(module, lambda: module(words, table))
    assert [len(part) for part in made.kernels] == [0, 4]
    made.run_kernels()


def test_an_effect_that_happens_too_rarely_is_a_difference(monkeypatch):
    """A jit that calls the original once, and then answers with what that gave."""

    def forgetful(function):
        results = []

        def call(*args):
            results.extend([] if results else [function(*args)])
            return results[0]

        return call

    monkeypatch.setattr(ingot, "jit", forgetful)
    by_name = {case.name: case for case in disturbed.CASES}
    for name in ("counter", "print", "list.append", "dict.update", "logging", "time.perf_counter", "random.random"):
        assert functions.measure_function(by_name[name], SETTINGS).difference, name
    case = next(case for case in slow_cases.CASES if "changed in place" in case.name)
    assert "state" in slow.measure_slow(case, SETTINGS).difference
    assert "effects" in calls.measure_operation(SETTINGS).difference


def test_slow_calls_are_numbered_on_and_the_last_of_a_cycle_counted():
    made: list[int] = []
    program = slow_cases.Program(lambda: None, lambda function, number: made.append(number))
    player = slow.Player(program, program.function, slow_cases.Slow("", lambda: program, cycle=5, measured_from=3))
    player.next()
    player.measured_calls()
    player.measured_calls()
    assert made == [0, 4, 5, 9, 10]


def test_what_raises_is_a_row_that_differs():
    def fail():
        raise ValueError("no\nlonger")

    row = Job("broken", fail).run()
    assert row.difference == "raised ValueError: no"
    assert not row.is_equal


def test_a_model_has_a_floor():
    (use,) = (use for use in USES if use.name == "Llama generates, static cache, sampled")
    row = measure_model(use, SETTINGS)
    assert set(row.seconds) == {EAGER, JIT, FLOOR, FOLLOWED, KERNELS, LEAST}
    assert over_least(row) is not None and over_sum(row) is not None
    assert row.is_equal
    assert row.torch_calls is not None and row.torch_calls > 500


def test_models_use_both_caches_and_both_ways_to_choose():
    names = [use.name for use in USES if use.is_exact]
    assert len(names) == len(set(names)) == 16
    assert {use.name for use in USES} >= {"BERT, mask", "DeBERTa", "Mamba", "Swin", "Mixtral", "SegFormer", "DETR"}


@pytest.mark.parametrize("use", [use for use in USES if "dynamic" in use.name], ids=lambda use: use.name)
def test_texts_are_worth_comparing(use):
    """A model that says one word for ever would say it with wrong figures, too."""
    transformers_package().logging.set_verbosity_error()
    with contests.quiet(), torch.no_grad():
        module, inputs = use.model.make(True)
        tokens = use.run(module, inputs, True)
    assert all(len(set(text.tolist())) > 5 for text in tokens)


def test_ten_lengths_share_their_recordings():
    contest = Contest(SETTINGS)
    assert len(contest.lengths) == 10
    first, last = contest.measure(contest.lengths[0]), contest.measure(contest.lengths[-1])
    assert first.is_equal and last.is_equal
    assert first.recordings == last.recordings
    assert first.recordings is None or first.recordings >= 1


# --- comparing --------------------------------------------------------------------------------------------------------

ONES = torch.ones(3)


@pytest.mark.parametrize(
    "found, wanted",
    [
        (ONES, ONES + 1),
        (ONES, ONES.double()),
        (ONES, torch.ones(3, requires_grad=True)),
        (3.0, ONES),
        ((ONES, 1), (ONES, 2)),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 1}, {"b": 1, "a": 1}),
        ("text", "another"),
        (1, 1.0),
        (True, 1),
        (1.0, 1.5),
        (None, ONES),
    ],
)
def test_differences_are_told(found, wanted):
    assert difference(found, wanted).startswith("result")


def test_equal_results_do_not_differ():
    assert difference({"a": [ONES, 1.0, "x"]}, {"a": [ONES + 1e-7, 1.0 + 1e-7, "x"]}) == ""


# --- the floor --------------------------------------------------------------------------------------------------------


def test_answers_come_from_the_list_while_python_runs():
    seen: list[float] = []
    x = torch.ones(3)

    def call():
        total = (x + 1).sum().item()
        seen.append(total)
        return x.add_(1)

    contestant, torch_calls = answered(call)
    assert torch_calls == 4
    before = x.clone()
    contestant.call()
    assert torch.equal(x, before)
    assert seen[-1] == seen[-2]


def test_results_kept_by_their_arguments_do_not_disturb_the_floor():
    """As lru_cache of size one: eager's calls in between take the place of what was kept."""
    kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    x = torch.ones(3)

    def call():
        y = x + 1
        if id(y) not in kept:
            kept.clear()
            kept[id(y)] = (y, y * 2)
        return kept[id(y)][1].exp()

    contestant, torch_calls = answered(call)
    assert torch_calls == 2
    for _ in range(2):
        call()
        assert contestant.prepare is not None
        contestant.prepare()
        contestant.call()


def test_other_calls_than_the_recorded_ones_are_an_error():
    steps = iter(range(10))

    def call():
        x = torch.ones(3)
        for _ in range(next(steps)):
            x = x.exp()

    with pytest.raises(CallsDiffer):
        answered(call)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_tiers_and_recordings_are_read_from_the_function_itself():
    skipping = ingot.jit(lambda x: x * 2 + 1)
    following = ingot.jit(lambda x: x * 2 + 1, python="run")
    assert (tier_of(skipping), recordings_of(skipping)) == ("new", 0)
    for _ in range(3):
        skipping(torch.ones(8))
        following(torch.ones(8))
    assert (tier_of(skipping), recordings_of(skipping)) == ("skipping", 1)
    assert tier_of(following) == "following"
    assert (tier_of(len), recordings_of(len)) == ("", None)


# --- tables and targets -----------------------------------------------------------------------------------------------

ROW = Row("case", {EAGER: 2e-3, COMPILE: 1e-3, JIT: 1e-3, functions.PLAIN: 5e-4, FLOOR: 1e-3}, "", "following", 2, 100)
WRONG = Row("wrong", {}, "result[0]: 1 instead of 2", remarks=("wrong: no floor",))


@pytest.mark.parametrize("name", SECTIONS)
def test_tables_show_rows_that_were_not_measured(name):
    table, goals = sheets({"threads": "1"}, {name: (ROW, WRONG)}, quick=True)
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "WRONG: wrong: result[0]: 1 instead of 2" in table.remarks
    assert "wrong: no floor" in table.remarks
    assert "| wrong |" in table.as_markdown()
    assert any("threads 1" in remark for remark in goals.remarks)


def test_targets_say_what_is_missed():
    name = next(case.name for case in slow_cases.CASES if case.wanted_over_eager)
    adamw = Row(name, {EAGER: 1e-3, JIT: 5e-4}, "", "", 7)
    lengths = Row("length 5", {EAGER: 1.0, JIT: 1.0}, "", "", 4)
    sections = {"functions": (ROW,), "slow": (adamw,), "models": (ROW, WRONG), "lengths": (lengths,)}
    found = {target.text: target for target in targets(sections)}
    assert found["functions, speed of the same without it"].reached == 0.5
    assert not found["much to gain, over eager"].is_met
    assert found["much to gain, recordings after the third call"].reached == 7
    assert not found["lengths, recordings"].is_met
    assert found["models, over eager"].is_met
    assert found["results or effects that differ"].where == "wrong"


def test_the_limit_of_slow_cases_leaves_a_microsecond():
    assert share_of_limit(Row("", {EAGER: 1e-6, JIT: 2.05e-6})) == pytest.approx(1.0)
    assert share_of_limit(WRONG) is None


def test_a_wrong_result_makes_the_status_one(monkeypatch, tmp_path, capsys):
    rows = {"calls": lambda how: [Job("a", lambda: ROW), Job("b", lambda: WRONG)]}
    monkeypatch.setattr(command, "SECTIONS", rows)
    figures, tables = tmp_path / "figures.json", tmp_path / "tables.md"
    given = ["--compile", "none", "--quick", f"--json={figures}", f"--markdown={tables}"]
    assert command.main(given) == 1
    assert "result[0]: 1 instead of 2" in capsys.readouterr().out
    saved = json.loads(figures.read_text())["sections"]["calls"]
    assert [row["is_equal"] for row in saved] == [True, False]
    assert "## Targets" in tables.read_text()
    assert command.main([*given, "--row", "a"]) == 0


def test_rounds_must_be_positive(capsys):
    with pytest.raises(SystemExit):
        command.main(["--repeats", "0"])
    assert "at least 1" in capsys.readouterr().err


def test_figures_are_saved_in_folders_that_are_not_there_yet(tmp_path):
    path = tmp_path / "build" / "figures.json"
    save({"threads": "1"}, {"calls": (ROW,)}, path)
    assert json.loads(path.read_text())["sections"]["calls"][0]["seconds"][EAGER] == 2e-3
