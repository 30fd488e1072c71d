"""The HTML report: well-formed, self-contained, everything named and everything escaped."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.frontend.jit.api.report.drawing import Box, drawn
from ingot.frontend.jit.api.report.program_picture import MOST_OPERATIONS

jit: Any = ingot.jit
HOSTILE = "<script>document.title='taken'</script>\"'&<img src=x onerror=alert(1)>"
_VOID = {"meta", "br", "img"}


class Page(HTMLParser):
    """Elements and texts of a page; an element that is not closed in its turn is an error."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y).cumsum(0) * torch.tanh(x - y)


seen: list[float] = []


def noted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    hidden = torch.softmax(x * y, -1) + 1
    seen.append(hidden.sum().item())
    return hidden / seen[-1]


def called(function: Any, calls: int = 6, **options: Any) -> Any:
    compiled = jit(function, **options)
    with torch.no_grad():
        for _ in range(calls):
            compiled(torch.ones(16, 16), torch.ones(16, 16))
    return compiled


def reported(compiled: Any, directory: Path) -> Page:
    compiled.report(directory / "report.html")
    assert [path.name for path in directory.iterdir()] == ["report.html"]
    return Page((directory / "report.html").read_text(encoding="utf-8"))


def test_a_report_names_every_kernel_and_folds_machine_code(tmp_path: Path):
    compiled = called(gate, config={"enable_profiling": True})
    page = reported(compiled, tmp_path)
    names = [kernel.name for kernel in compiled.stats().kernels]
    assert len(names) == 3 and set(names) <= set(page.texts)
    assert {"nests", "llvm", "assembly"} <= set(page.texts)
    assert all("open" not in attributes for tag, attributes in page.elements if tag == "details")
    assert page.tags.count("svg") == 1 and {"mul", "sigmoid", "cumsum", "tanh", "result"} <= set(page.texts)
    assert sum(attributes.get("class") == "bar" for _, attributes in page.elements) == 2 * len(names)


def test_a_report_loads_nothing(tmp_path: Path):
    page = reported(called(gate), tmp_path)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not any(
        name in attributes for _, attributes in page.elements for name in ("src", "href", "onload", "onclick")
    )
    assert "url(" not in "".join(page.texts) and "@import" not in "".join(page.texts)


def test_followed_functions_show_the_lines_that_stopped_them(tmp_path: Path):
    page = reported(called(noted, calls=20, python="run"), tmp_path)
    assert "seen.append(hidden.sum().item())" in page.texts
    assert "following" in page.texts and "svg" in page.tags


def test_hostile_names_are_escaped(tmp_path: Path):
    compiled = called(gate, name=HOSTILE)
    page = reported(compiled, tmp_path)
    assert any(HOSTILE in text for text in page.texts) and not {"script", "img"} & set(page.tags)
    Page(compiled._repr_html_())
    picture = drawn([Box(HOSTILE, HOSTILE, '"><script>', HOSTILE), Box("b", "", "red")], [(0, 1)], HOSTILE)
    assert not {"script", "img"} & set(Page(picture).tags)


def test_functions_that_were_never_called_and_those_that_branch_have_reports(tmp_path: Path):
    assert "new" in reported(jit(gate), tmp_path).texts

    @jit
    def bounded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.exp(x)
        return hidden.clamp(max=1) if hidden.max().item() > 100 else hidden * y

    with torch.no_grad():
        for scale in (1.0, 9.0, 1.0, 9.0):
            bounded(torch.ones(8, 8) * scale, torch.ones(8, 8))
    assert reported(bounded, tmp_path).tags.count("svg") == 3


def test_large_programs_are_drawn_by_kernel(tmp_path: Path):
    def deep(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(MOST_OPERATIONS):
            x = torch.sin(x * y)
        return x

    page = reported(called(deep), tmp_path)
    assert page.tags.count("rect") < 20 and "sin" not in page.texts


def test_modules_have_reports_and_a_bad_path_is_an_error_that_leaves_nothing(tmp_path: Path):
    compiled = jit(nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval())
    with torch.no_grad():
        for _ in range(4):
            compiled(torch.ones(2, 4))
    assert "svg" in reported(compiled, tmp_path).tags and compiled._repr_html_()
    with pytest.raises(ingot.IngotError, match="cannot be written"):
        compiled.report(tmp_path / "absent" / "report.html")


_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(_BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_report(tmp_path: Path):
    assert _BROWSER is not None
    (tmp_path / "page").mkdir()
    reported(called(gate, name=HOSTILE), tmp_path / "page")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    switches += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    switches += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,1600", "--dump-dom"]
    command = [_BROWSER, *switches, f"--screenshot={tmp_path / 'shot.png'}"]
    done = subprocess.run(
        [*command, f"file://{tmp_path}/page/report.html"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "<title>ingot: &lt;script&gt;" in done.stdout and "</svg>" in done.stdout
    assert "taken" not in Page(done.stdout).texts
    assert (tmp_path / "shot.png").stat().st_size > 10_000
