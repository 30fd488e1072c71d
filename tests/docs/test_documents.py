"""Every session printed in the documents is run, and must print what the document says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_SESSIONS = [document for document in DOCUMENTS if ">>>" in document.read_text()]


def test_there_are_sessions_to_run():
    assert {"README.md", "tour.md", "ir.md", "adding-an-operator.md"} <= {document.name for document in WITH_SESSIONS}


@pytest.mark.parametrize("document", WITH_SESSIONS, ids=lambda document: document.name)
def test_session_prints_what_the_document_says(document):
    # In a process of its own: a document may add operators to the table.
    done = subprocess.run([sys.executable, "-m", "doctest", str(document)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda document: document.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda example: example.name)
def test_example_runs(example):
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
