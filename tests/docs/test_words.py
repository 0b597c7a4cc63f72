"""Pages, help texts, docstrings and messages say what they mean in words that a reader expects."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from fedgauge.cli import app

ROOT = Path(__file__).parents[2]


class Phrase(NamedTuple):
    """Words that only we understand.

    Attributes:
        pattern: a regular expression, in lower case.
        instead: what to write.
        example: a text that has it.
    """

    pattern: str
    instead: str
    example: str


PHRASES = (
    Phrase(r"\baffords\b|\baffordable\b", "how many local steps to use", "The federation affords 3 local steps."),
    Phrase(r"\b(?:a|short|long) ways? of \w+ steps", "a run of so many steps", "on a way of 200 steps"),
    Phrase(r"\b(?:short|long) ways\b", "short runs", "On short ways, runs are compared."),
    Phrase(r"\b(?:rest|part|half|end|much|enough) of the way\b", "of the run, of the progress", "the rest of the way"),
    Phrase(r"\bthe way ends\b", "the run ends", "the value of f at which the way ends"),
    Phrase(r"\b(?:is|are|was|were|be|been|being) (?:only )?looked at\b", "evaluated, compared", "f is looked at often"),
    Phrase(r"\blooking takes\b", "evaluations take", "so that looking takes a quarter of the work"),
    Phrase(r"\blooks again\b|\bto look again\b", "tries again, compares", "to look again later"),
    Phrase(r"\bl_\w+ seen\b|\bratios? (?:\w+ )*seen\b", "measured", "the ratios L_h and L_g seen in each round"),
    Phrase(r"\bl_\w+ that was seen\b", "measured", "the L_h that was seen"),
    Phrase(r"\b(?:constants|losse?s?) (?:that (?:was|were) )?seen\b", "measured, observed", "no loss that was seen"),
    Phrase(r"\bwhat was seen\b", "what was observed", "what was seen on the way"),
    Phrase(r"(?<!`)\binstruments?\b(?!`)", "a measurement", "The result is an instrument, not a guarantee."),
    Phrase(
        r"\b(?:budget|not|must|can|could) pays? for\b|\bbudget (?:\w+ ){0,2}pays for\b",
        "the budget covers them, or they exceed it",
        "The budget does not pay for them.",
    ),
    Phrase(r"\bfates?\b", "outcome", "what became the fate of a candidate"),
    Phrase(r"\btold off\b", "split into groups", "samples that can be told off in groups"),
    Phrase(r"\bwhat of (?:them|it|an? [\w ]+?) is here\b", "which of them are installed", "and what of them is here"),
    Phrase(r"\bhow-many\w*", "the stride", "every how-manyth of each worker"),
    Phrase(r"\bgone (?:up|down) to\b", "raised to, lowered to", "when it was gone up to"),
    Phrase(r"\b(?:goes|go|went) by (?:the|it|local)\b", "uses, depends on, counts", "a rule that goes by the rate"),
    Phrase(r"\bwhat of the\b|\bless what of\b", "the part of it that", "less what of the communication is hidden"),
    Phrase(r"\bwhichever says less\b", "whichever bound is smaller", "by 4.3 or A.2, whichever says less"),
    Phrase(r"\brun in vain\b", "did not tell", "numbers that were run in vain"),
    Phrase(r"\bbytes that are here\b", "the bytes downloaded so far", "after the 10 bytes that are here"),
    Phrase(r"\btreats otherwise\b", "with options of their own", "parameters that it treats otherwise"),
    Phrase(r"\bis the end with which\b", "is the conservative endpoint", "is the end with which a bound still holds"),
)
ANY = re.compile("|".join(f"(?:{each.pattern})" for each in PHRASES))

# What is kept under docs/results was measured and written down at its time; so were the results that Sphinx puts beside
# them, in docs/paper and docs/verification.
ARCHIVED = {"results", "paper", "verification"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if ARCHIVED.isdisjoint(page.relative_to(ROOT).parts)),
]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
STUDIES = sorted(
    page
    for place in ("docs/results", "papers/wang2024/results", "verification/results")
    for page in (ROOT / place).glob("*.md")
)
PROCESS = re.compile(
    r"another day|scratch script|looked at (?:once|afterwards|again)|by hand on|was hoped for|in a hurry|this session"
)
# The paper's own package is left out: its results, whose lenses have such names, are kept as they were.
SOURCES = [
    *(ROOT / "src").rglob("*.py"),
    *ROOT.glob("planning/src/**/*.py"),
    *ROOT.glob("integrations/*/src/**/*.py"),
    *ROOT.glob("verification/src/**/*.py"),
    *ROOT.glob("explorer/src/**/*.py"),
    *ROOT.glob("inspection/src/**/*.py"),
]
TEMPLATES = [*(ROOT / "src").rglob("*.html"), *(ROOT / "explorer").rglob("*.html")]


def complaints(place: str, text: str) -> list[str]:
    """What to write instead, for each phrase in a text."""
    flat = " ".join(text.lower().split())
    if not ANY.search(flat):
        return []
    found = [(each, re.search(each.pattern, flat)) for each in PHRASES]
    return [f"{place}: '{match[0]}'; write: {each.instead}" for each, match in found if match]


def literals(code: str) -> Iterator[tuple[int, str]]:
    """The lines and texts of all string literals, docstrings included; what an f-string puts in is left out."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


def in_code(place: str, code: str) -> list[str]:
    """The complaints about the literals of a module."""
    # Parsing every module takes seconds. Those without such words are passed over, however their literals are broken.
    if not complaints(place, re.sub(r'["\']\s*\n\s*[rf]{0,2}["\']', "", code)):
        return []
    return sorted({each for line, text in literals(code) for each in complaints(f"{place}:{line}", text)})


def helps(command: Any, path: str = "fedgauge") -> Iterator[tuple[str, str]]:
    """The help of a command and of its options, and of the commands in it."""
    yield path, command.help or ""
    for option in command.params:
        yield f"{path} {option.name}", getattr(option, "help", None) or ""
    for name, inner in getattr(command, "commands", {}).items():
        yield from helps(inner, f"{path} {name}")


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda each: each.instead)
def test_a_phrase_is_found(phrase: Phrase) -> None:
    assert re.search(phrase.pattern, phrase.example.lower())
    assert complaints("here", phrase.example.replace(" ", "\n  ", 1))
    assert not complaints("here", phrase.instead)


def test_a_phrase_is_found_in_code_however_it_is_broken() -> None:
    lines = ['f"The gauge affor"', 'f"ds {number} local"', '" steps, and f is looked"', '" at twice."']
    code = "raise InputError(\n    " + "\n    ".join(lines) + "\n)\n"
    assert len(in_code("module.py", code)) == 2
    assert not in_code("module.py", "affords = 3  # the gauge affords this")


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_in_plain_words(page: Path) -> None:
    assert complaints(page.name, page.read_text("utf-8")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_in_plain_words(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert [each for cell in cells for each in complaints(path.name, "".join(cell["source"]))] == []


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_studies_do_not_tell_how_the_work_went(page: Path) -> None:
    assert PROCESS.findall(" ".join(page.read_text("utf-8").lower().split())) == []


def test_docstrings_and_messages_are_in_plain_words() -> None:
    assert len(SOURCES) > 200
    found = [each for path in SOURCES for each in in_code(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    assert found == []


def test_help_is_in_plain_words() -> None:
    texts = dict(helps(typer.main.get_command(app)))
    assert len(texts) > 500
    assert [each for place, text in texts.items() for each in complaints(place, text)] == []
