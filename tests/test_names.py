"""One name for one thing: no two classes of ingot share one. And no folder holds more modules than fit on a page."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import ingot

SOURCES = Path(ingot.__file__).parent
TESTS = Path(__file__).parent
MOST_MODULES = 16


def _classes(folder: Path) -> dict[str, list[str]]:
    """Where the classes of each name are, local ones included."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(folder)}:{node.lineno}")
    return found


def _crowded(folder: Path, most: int) -> dict[str, int]:
    counts = defaultdict(int)
    for path in folder.rglob("*.py"):
        counts[str(path.parent.relative_to(folder))] += path.name != "__init__.py"
    return {name: count for name, count in counts.items() if count > most}


def test_a_class_has_a_name_of_its_own():
    classes = _classes(SOURCES)
    assert "Graph" in classes
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


@pytest.mark.parametrize("folder", [SOURCES, TESTS], ids=["src", "tests"])
def test_folders_hold_few_modules(folder: Path):
    assert _crowded(folder, MOST_MODULES) == {}


def test_doubled_names_and_crowded_folders_are_found(tmp_path: Path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(f"class Same: ...\nclass {name.title()}: ...\n")
    assert _classes(tmp_path) == {"Same": ["one.py:1", "other.py:1"], "One": ["one.py:2"], "Other": ["other.py:2"]}
    assert _crowded(tmp_path, 1) == {".": 2}
    assert _crowded(tmp_path, 2) == {}
