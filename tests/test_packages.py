"""Every package says in its docstring what comes in, what goes out and what always holds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ingot

ROOT = Path(ingot.__file__).parent
PACKAGES = sorted(ROOT.rglob("__init__.py"))


def test_packages_are_found():
    assert {ROOT / "__init__.py", ROOT / "ir" / "__init__.py"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.parent.relative_to(ROOT.parent).as_posix())
def test_package_says_what_comes_in_what_goes_out_and_what_holds(package: Path):
    text = ast.get_docstring(ast.parse(package.read_text())) or ""
    missing = [part for part in ("In: ", "Out: ", "always holds: ") if part not in " ".join(text.split())]
    assert not missing, f"{package}: {missing}"
