"""docs/nvfuser-interface.md says what is so: every name on it is compared with the signatures of ingot."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot import DataType, FusionDefinition
from ingot.base.errors import AbsentNameError, DTypeError, UnknownOperatorError
from ingot.frontend.fusion_definition.defined_values import FusionScalar, FusionTensor
from ingot.ops import lookup
from ingot.ops.parameters import data_type
from ingot.ops.record import refused

PAGE = Path(__file__).parents[3] / "docs" / "nvfuser-interface.md"
NOTHING = (None, False, [], (), DataType.Null)
"""Defaults that say that nothing is given."""


@dataclass(frozen=True)
class Row:
    section: str
    text: str
    status: str

    @property
    def name(self) -> str:
        return self.text.partition("(")[0]

    @property
    def is_here(self) -> bool:
        return self.status.startswith("same")

    @property
    def parameters(self) -> list[tuple[str, Any]]:
        """Names and defaults, `inspect.Parameter.empty` where there is none."""
        definition = ast.parse(f"def f({self.text.partition('(')[2]}: ...").body[0]
        assert isinstance(definition, ast.FunctionDef)
        names = [argument.arg for argument in definition.args.args]
        defaults = [eval(ast.unparse(default), {"DataType": DataType}) for default in definition.args.defaults]
        missing = [inspect.Parameter.empty] * (len(names) - len(defaults))
        return list(zip(names, missing + defaults, strict=True))


def rows() -> list[Row]:
    found, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 2:
            found += [Row(section, text, cells[1]) for text in re.findall(r"`([^`]+)`", cells[0])]
    return found


ROWS = rows()


def in_section(section: str, is_here: bool) -> Any:
    chosen = [row for row in ROWS if row.section == section and row.is_here is is_here]
    assert chosen
    return pytest.mark.parametrize("row", chosen, ids=lambda row: row.name)


def test_every_row_says_same_or_why_not_and_no_name_comes_twice():
    for row in ROWS:
        assert row.is_here or row.status.startswith("not here, because "), row
    names = [(row.section, row.name) for row in ROWS]
    assert len(names) == len(set(names)) > 180


def same_default(theirs: Any, ours: Any) -> bool:
    if theirs is inspect.Parameter.empty:
        return True  # what nvFuser always wants may be left out here
    return theirs == ours or (theirs in NOTHING and ours in NOTHING)


@in_section("Operators", True)
def test_operator_takes_the_same_parameters(row: Row):
    signature = lookup(row.name).signature
    assert signature is not None
    for place, (name, default) in enumerate(row.parameters):
        parameter = signature.parameters[place]
        assert signature._canonical_name(name) == parameter.name, f"{name} is not parameter {place}"
        assert same_default(default, parameter.default), f"{name} has the default {parameter.default}"
    further = signature.parameters[len(row.parameters) :]
    assert all(parameter.default is not inspect.Parameter.empty for parameter in further)


@in_section("Operators", False)
def test_operator_that_is_not_here_says_why(row: Row):
    assert row.name in refused()
    with pytest.raises(UnknownOperatorError, match=r"see docs/nvfuser-interface\.md"):
        getattr(FusionDefinition().ops, row.name)


def test_every_refused_operator_is_on_the_page():
    assert set(refused()) == {row.name for row in ROWS if row.section == "Operators" and not row.is_here}


def compare_with_function(row: Row, function: Any) -> None:
    parameters = dict(inspect.signature(function).parameters)
    names = [name for name, _ in row.parameters]
    assert [name for name in parameters if name in names] == names, "in the same order"
    for name, default in row.parameters:
        assert same_default(default, parameters[name].default), f"{name} has the default {parameters[name].default}"
    for name, parameter in parameters.items():
        has_default = parameter.default is not inspect.Parameter.empty
        assert name in (*names, "self", "unknown") or has_default, f"{name} is needed here"


@in_section("FusionDefinition", True)
def test_method_takes_the_same_parameters(row: Row):
    compare_with_function(row, getattr(FusionDefinition, row.name))


@in_section("FusionDefinition", False)
def test_method_that_is_not_here_says_why(row: Row):
    with pytest.raises(AbsentNameError, match=r"schedules its kernels itself; see docs/nvfuser-interface\.md"):
        getattr(FusionDefinition(), row.name)


@in_section("Tensors and scalars", True)
def test_handles_have_the_same_names(row: Row):
    found = inspect.getattr_static(FusionTensor, row.name)
    assert inspect.isfunction(found) == row.text.endswith("()")
    assert hasattr(FusionScalar, row.name) or row.name in ("shape", "ndim")


@in_section("Tensors and scalars", False)
def test_name_that_handles_do_not_have_says_why(row: Row):
    with FusionDefinition() as fd:
        tensor = fd.define_tensor(1)
        fd.add_output(tensor)
    assert not hasattr(tensor, row.name)
    with pytest.raises(AbsentNameError, match=r"see docs/nvfuser-interface\.md"):
        getattr(tensor, row.name)


@in_section("DataType", True)
def test_data_type_is_there_and_computes_unless_the_page_says_otherwise(row: Row):
    member = DataType[row.name]
    if "names only" not in row.status:
        assert data_type(member) is (None if member is DataType.Null else member)
        return
    with pytest.raises(DTypeError, match=row.name):
        data_type(member)


@in_section("Caches", True)
def test_cache_takes_the_same_parameters(row: Row):
    owner, _, name = row.name.partition(".")
    without_owner = Row(row.section, row.text.partition(".")[2], row.status)
    compare_with_function(without_owner, getattr(getattr(ingot, owner), name))
