"""A part of all operators, data types and forms has PTX; `every_operator` tells how to try all of them."""

from __future__ import annotations

from collections import Counter

from ingot.loops.gpu.schedule import Columns, ThreadGroups, Tiles
from tests.codegen.ptx.every_operator import fused_cases
from tests.warm_processes import run_python


def test_no_operator_ends_the_process():
    """In another one, which would end."""
    done = run_python("-m", "tests.codegen.ptx.every_operator", "--every", "97")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 of them without code" in done.stdout


def test_fusions_reach_every_form():
    schedules = [case.schedule for case in fused_cases()]
    forms = Counter(type(schedule) for schedule in schedules)
    assert forms.keys() >= {ThreadGroups, Columns, Tiles}
    for form in (ThreadGroups, Columns):
        assert {bool(schedule.iterations) for schedule in schedules if type(schedule) is form} == {True, False}
        assert any(schedule.is_split for schedule in schedules if type(schedule) is form)
