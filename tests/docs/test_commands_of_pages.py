"""What the tutorial and the how-to pages tell a reader to do is done here, so that it goes on working."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from fedgauge.cli import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")
DATA = next(code for kind, code in BLOCK.findall((DOCS / "tutorial.md").read_text("utf-8")) if kind == "python")

# Each page after those whose files it uses.
PAGES = [
    ("tutorial.md", "howto/explore.md"),
    ("howto/own-model.md", "howto/own-partition.md"),
    ("howto/track.md",),
    ("howto/inspect.md",),
    ("guide/drift.md",),
]


def run(code: str) -> None:
    exec(compile(code, "a block of the page", "exec"), {"__name__": "__main__"})


def words(text: str) -> str:
    """The words of a text, however wide a terminal was when the tables in it were drawn."""
    return " ".join(re.sub("─+", "─", text).split())


@pytest.mark.parametrize("pages", PAGES, ids=lambda pages: Path(pages[0]).stem)
def test_pages_can_be_followed(
    pages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "path", [*sys.path])
    run(DATA)
    for page in pages:
        printed = ""
        for kind, code in BLOCK.findall((DOCS / page).read_text("utf-8")):
            if kind == "python":
                if name := NAMED.match(code):
                    Path(name[1]).write_text(code, encoding="utf-8")
                run(code)
                printed = capsys.readouterr().out or printed
            elif kind == "console":
                for line in code.replace("\\\n", " ").splitlines():
                    prompt, command, *arguments = shlex.split(line)
                    assert (prompt, command) == ("$", "fedgauge"), line
                    assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
                printed = capsys.readouterr().out
            elif not code.startswith("fedgauge "):  # an output that the page shows is that of what came before
                assert words(code) in words(printed)


def test_the_tutorial_ends_with_a_report(tmp_path: Path) -> None:
    """The commands that the page promises are all there, in this order."""
    commands = re.findall(r"^\$ fedgauge (\w+)", (DOCS / "tutorial.md").read_text("utf-8"), re.MULTILINE)
    assert commands == ["data", "simulate", "gauge", "measure", "plan", "simulate", "runs", "report"]


@pytest.mark.parametrize("page", ["README.md", "docs/guide/gauge.md"])
def test_the_gauge_prints_what_the_first_pages_show(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    blocks = BLOCK.findall((DOCS.parent / page).read_text("utf-8"))
    place = next(i for i, (_, code) in enumerate(blocks) if code.startswith("$ fedgauge gauge digits --percent 50"))
    assert main(shlex.split(blocks[place][1])[2:]) == 0
    assert words(blocks[place + 1][1]) in words(capsys.readouterr().out)
