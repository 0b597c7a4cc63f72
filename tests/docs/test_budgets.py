"""Pages stay short enough to be read, and pages that explain an idea have a picture of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")

# The most words of a page, code included, by where it is. Studies are kept as they were written.
BUDGETS = {
    "README.md": 900,
    "docs/index.md": 550,
    "docs/overview.md": 900,
    "docs/tutorial.md": 1300,
    "docs/scale.md": 1700,
    "docs/guide/*.md": 1500,
    "docs/howto/live.md": 1700,
    "docs/howto/[!l]*.md": 1100,
    "docs/reference/*.md": 1500,
    "docs/theory/*.md": 1500,
    "docs/results/index.md": 1000,
}
PICTURED = (
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/results/index.md",
    "docs/theory/index.md",
    "docs/theory/local-steps.md",
    *sorted(str(page.relative_to(ROOT)) for page in (DOCS / "guide").glob("*.md")),
)
PAGES = [(page, most) for pattern, most in BUDGETS.items() for page in sorted(ROOT.glob(pattern))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(("page", "most"), PAGES, ids=lambda each: name(each) if isinstance(each, Path) else str(each))
def test_a_page_is_no_longer_than_its_budget(page: Path, most: int) -> None:
    assert len(page.read_text("utf-8").split()) <= most


def test_every_page_has_a_budget() -> None:
    """A new page is given one, unless it is a study."""
    written = {page for page in DOCS.rglob("*.md") if not {"results", "paper", "verification"} & {*page.parts}}
    assert written - {page for page, _ in PAGES} == {DOCS / "changelog.md"}


@pytest.mark.parametrize("page", PICTURED)
def test_a_page_that_explains_has_a_picture(page: str) -> None:
    pictures = PICTURE.findall((ROOT / page).read_text("utf-8"))
    assert pictures
    for place in pictures:
        assert place.startswith("https://") or ((ROOT / page).parent / place).is_file(), place
