"""Every session printed in the documents is run, and must print what the document says.

Blocks marked ```python gpu need an NVIDIA GPU, and run where there is one.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

from tests.warm_processes import run_python

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_SESSIONS = [document for document in DOCUMENTS if ">>>" in document.read_text()]
GPU_BLOCK = re.compile(r"^```python gpu\n.*?^```$", re.MULTILINE | re.DOTALL)


def session(text: str, has_gpu: bool) -> str:
    """What of a document can be run here."""
    return text if has_gpu else GPU_BLOCK.sub("", text)


def test_there_are_sessions_to_run():
    assert {"README.md", "jit.md", "architecture.md", "tour.md", "ir.md", "adding-an-operator.md", "cuda.md"} <= {
        document.name for document in WITH_SESSIONS
    }


def test_blocks_for_gpus_are_left_out_where_there_is_none():
    text = "before\n```python\n>>> 1\n1\n```\n```python gpu\n>>> 2\n2\n```\n```python\n>>> 3\n3\n```\nafter\n"
    assert session(text, has_gpu=True) == text
    assert session(text, has_gpu=False) == text.replace("```python gpu\n>>> 2\n2\n```", "")


@pytest.mark.parametrize("document", WITH_SESSIONS, ids=lambda document: document.name)
def test_session_prints_what_the_document_says(document, tmp_path):
    # In a process of its own: a document may add operators to the table.
    copy = tmp_path / document.name
    copy.write_text(session(document.read_text(), torch.cuda.is_available()))
    variables = {**os.environ, "INGOT_CACHE_DIR": str(tmp_path / "cache")}  # other documents record the same functions
    done = run_python("-m", "doctest", str(copy), env=variables)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda document: document.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("decision", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda path: path.name)
def test_decision_states_context_decision_and_consequences(decision):
    headings = re.findall(r"^## (.*)$", decision.read_text(), re.MULTILINE)
    assert headings[:3] == ["Context", "Decision", "Consequences"] and headings[3:] in ([], ["Alternatives"])


def test_measurements_and_decisions_link_to_each_other():
    text = (ROOT / "docs" / "measurements.md").read_text()
    sections = re.findall(r"^## Decision (\d+)\n\[[^\]]+\]\(decisions/0*(\d+)-", text, re.MULTILINE)
    assert sections and all(title == link for title, link in sections)
    linking = {
        number
        for decision in (ROOT / "docs" / "decisions").glob("*.md")
        for number in re.findall(r"\.\./measurements\.md#decision-(\d+)", decision.read_text())
        if int(decision.name[:4]) == int(number)
    }
    assert linking == {title for title, _ in sections}


def test_make_help_lists_every_target():
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith("make")]
    assert listed == targets.split() and "bench-capture" in listed


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda example: example.name)
def test_example_runs(example):
    done = run_python(str(example))
    assert done.returncode == 0, done.stderr
    assert done.stdout
