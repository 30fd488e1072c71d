"""The comparison on a GPU: every case is right, what runs eagerly says so. Where there is no GPU, a CPU stands in."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy
import pytest
import torch
from benchmarks.cases import MULTIPLY_ADD, Case
from benchmarks.contestants import WrongResult
from benchmarks.cuda.__main__ import bench_for, main, measure
from benchmarks.cuda.cases import CASES, FULL_REDUCTIONS, normalized_images, rope
from benchmarks.cuda.contests import Check, generated_kernels, prepare
from benchmarks.cuda.groups import DTYPES, SMALL_GROUP
from benchmarks.cuda.report import kernels_text, page, picture, sheets
from benchmarks.cuda.targets import targets
from benchmarks.groups import ONE_ADDITION
from benchmarks.results import COMPILE, EAGER, JIT, Results, Row

from ingot import jit

CPU = torch.device("cpu")
GROUPS = [*DTYPES, SMALL_GROUP]
SVG = "{http://www.w3.org/2000/svg}"
MEASURED = ("a*b*c", "gelu, tanh", "column sum", "smooth_l1", "rope", "images from bytes")
"""Cases that are measured here; the others are in the tests of the comparison on the CPU."""


@pytest.fixture(scope="module")
def results():
    """What a quick run measures."""
    bench = bench_for(CPU, quick=True, with_compile=False, only=(*MEASURED, "a*b+c"))
    return measure(bench, GROUPS, {JIT: 0.1})


def test_every_case_is_measured_against_the_floor(results):
    asked = {case.name for case in CASES if any(part in case.name for part in (*MEASURED, "a*b+c"))}
    assert {"column sum", "column sum, 65,536 x 1,000", "bias+gelu, tanh"} < asked
    for dtype in DTYPES:
        assert {row.name for row in results.groups[dtype]} == asked
        for row in results.groups[dtype]:
            assert row.floor > 0
            assert set(row.seconds) == {EAGER, JIT}
    assert [row.name for row in results.groups["small"]] == ["a*b+c"]
    assert set(results.groups["small"][0].seconds) == {ONE_ADDITION, EAGER, JIT}
    assert set(FULL_REDUCTIONS) < {case.name for case in CASES}


def test_half_types_have_half_the_bytes_to_move(results):
    wide, half = ({row.name: row.nbytes for row in results.groups[dtype]} for dtype in DTYPES)
    assert wide["a*b*c"] == 2 * half["a*b*c"] == 4 * 4 * 256 * 256
    assert wide["column sum"] == 4 * (256 * 256 + 256)
    assert wide["images from bytes"] == 3 * 512 * 512 * (1 + 4) + 2 * 3 * 4


def test_page_names_every_case_and_target(results):
    text = page(sheets(results, quick=True))
    for row in results.rows(*DTYPES):
        assert text.count(f"| {row.name} |".replace("*", "\\*")) >= 2
    for target in targets(results):
        assert target.text in text


def test_picture_shows_every_case(results):
    texts = {element.text for element in ElementTree.fromstring(picture(results)).iter(f"{SVG}text")}
    assert {row.name for row in results.rows(*DTYPES)} | {*DTYPES, EAGER, JIT} <= texts
    assert COMPILE not in texts


def test_only_the_cases_asked_for_are_measured():
    bench = bench_for(CPU, quick=True, with_compile=False, only=("masked", "rms"))
    found = measure(bench, ["float32"], {})
    assert [row.name for row in found.groups["float32"]] == ["rms_norm", "masked softmax"]


def test_what_runs_eagerly_is_said():
    case = Case("looks at values", ("full",), lambda x: x * numpy.float32(x.numpy().max()), is_flat=True)
    contest = prepare(case, case.tensors(4, 4), with_compile=False)
    assert contest.kernels == 0
    row = Row("row", {JIT: 1.0}, 1, 1, {JIT: 0.0}, floor=1.0, kernels=contest.kernels, reason=contest.reason)
    assert kernels_text(row) == EAGER
    text = page(sheets(Results({}, (), {}, {"float32": (row,)}), quick=False))
    assert f"row ran eagerly: {contest.reason}" in text


def test_generated_kernels_are_counted():
    function = jit(MULTIPLY_ADD.eager)
    inputs = MULTIPLY_ADD.tensors(4, 4)
    assert generated_kernels(function, CPU)[0] == 0
    for _ in range(2):
        function(*inputs)
    assert generated_kernels(function, CPU) == (1, "")


def test_compiling_is_a_part_of_the_way_to_the_second_result():
    contest = prepare(MULTIPLY_ADD, MULTIPLY_ADD.tensors(4, 4), with_compile=False)
    assert 0.0 < contest.compile_seconds < contest.second_result[JIT]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_results_of_a_case_are_seen(case, dtype):
    inputs = case.tensors(128, 128, dtype)
    check = Check(case, inputs)
    check.require_close(check.expected)
    wrong = [tensor.clone() for tensor in check.expected]
    wrong[-1].view(-1)[-1] += 0.1 * wrong[-1].abs().max()
    with pytest.raises(WrongResult, match="result"):
        check.require_close(tuple(wrong))
    with pytest.raises(WrongResult, match="instead of"):
        check.require_close(tuple(tensor.double() for tensor in wrong))


def test_a_compiled_function_that_is_wrong_ends_the_run():
    calls = []

    def forgetful(x):
        calls.append(len(calls))
        return x + len(calls)

    case = replace(MULTIPLY_ADD, inputs=("full",), eager=forgetful)
    with pytest.raises(WrongResult, match=r"a\*b\+c, result 0"):
        prepare(case, case.tensors(4, 4), with_compile=False)


def test_rope_turns_pairs():
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    turned = rope(x, torch.zeros(1, 1, 4), torch.ones(1, 1, 4))
    assert turned.flatten().tolist() == [-3.0, -4.0, 1.0, 2.0]


def test_images_become_numbers():
    images = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)
    found = normalized_images(images, torch.tensor([0.5]).bfloat16(), torch.tensor([0.25]).bfloat16())
    assert found.dtype is torch.bfloat16
    assert found.flatten().tolist() == [-2.0, 2.0]


def test_targets_allow_more_to_full_reductions():
    rows = tuple(
        Row(
            name,
            {JIT: 1.2, COMPILE: 1.2},
            1,
            1,
            {JIT: 0.04},
            second_result={JIT: 0.1, COMPILE: 2.0},
            floor=1.0,
            kernels=1,
        )
        for name in ("softmax", "smooth_l1")
    )
    small = Row("a*b+c", {JIT: 4e-6}, 1, 1, kernels=1)
    found = {target.text: target for target in targets(Results({}, (), {}, {"float32": rows, "small": (small,)}))}
    assert (found["float32, over the floor"].where, found["float32, over the floor"].is_met) == ("softmax", False)
    assert found["float32, full reductions over the floor"].is_met
    assert not found["over torch.compile, geometric mean"].is_met
    assert found["over torch.compile"].is_met
    assert found["host time of a small call"].is_met
    assert found["time to compile a kernel"].reached == pytest.approx(40.0)
    assert found["second result over torch.compile's"].reached == pytest.approx(20.0)
    assert found["second result over torch.compile's, geometric mean"].reached == pytest.approx(20.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_other_comparison_is_named(capsys):
    assert main(["--quick"]) == 2
    assert "python -m benchmarks is the one for CPUs" in capsys.readouterr().err


@pytest.mark.cuda
def test_a_quick_run_on_a_gpu_saves_what_it_says(tmp_path, capsys):
    files = {"json": tmp_path / "figures.json", "markdown": tmp_path / "page.md", "picture": tmp_path / "bars.svg"}
    arguments = ["--quick", "--no-compile", *(f"--{name}={path}" for name, path in files.items())]
    assert main(arguments) == 0
    figures = json.loads(files["json"].read_text())
    assert list(figures["groups"]) == GROUPS
    assert "GPU" in figures["machine"]
    assert files["markdown"].read_text().startswith("# The comparison on an NVIDIA GPU")
    assert files["picture"].read_text().startswith("<svg")
    assert "Targets" in capsys.readouterr().out
