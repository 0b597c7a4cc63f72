"""The pages of what stands beside the library, where the paper's results and the falsifier's are kept.

Sphinx reads pages below ``docs`` only, and follows no links, so that it gets copies of those directories. The pages
refer to each other by the files' true places, as plain git hosts follow them; here these become Sphinx's.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PLACES = {
    DOCS / "paper": ROOT / "papers" / "wang2024" / "results",
    DOCS / "verification": ROOT / "verification" / "results",
}
"""The true place of each directory that is copied below ``docs``."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def copy_in(source: Path, target: Path) -> None:
    """Make one directory hold the same files as another; what has not changed is left alone, so as to be read once."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for path in [path for path in target.rglob("*") if path.is_file() and path.relative_to(target) not in wanted]:
        path.unlink()
    for name in wanted:
        copy = target / name
        if not copy.exists() or not filecmp.cmp(source / name, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, copy)


def shown_at(path: Path) -> Path:
    """Where Sphinx finds a file: below ``docs``, if its directory is copied there."""
    for copy, true in PLACES.items():
        if path.is_relative_to(true):
            return copy / path.relative_to(true)
    return path


def kept_at(path: Path) -> Path:
    """The true place of a file that Sphinx finds below ``docs``.

    >>> kept_at(DOCS / "paper" / "ledger.md").relative_to(ROOT).as_posix()
    'papers/wang2024/results/ledger.md'
    """
    for copy, true in PLACES.items():
        if path.is_relative_to(copy):
            return true / path.relative_to(copy)
    return path


def translated(text: str, page: Path) -> str:
    """A page's text with links as Sphinx resolves them.

    Args:
        text: of the page.
        page: its true place.

    >>> translated("[all](../../../docs/theory/star.md)", ROOT / "papers" / "wang2024" / "results" / "table1.md")
    '[all](../theory/star.md)'
    """
    here = shown_at(page).parent

    def target(link: re.Match[str]) -> str:
        return os.path.relpath(shown_at(Path(os.path.normpath(page.parent / link[1]))), here)

    return _LINK.sub(target, text)


def _copy_all(app: Sphinx, config: Any) -> None:
    for copy, true in PLACES.items():
        copy_in(true, copy)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    page = kept_at(Path(app.env.doc2path(docname)))
    if page.suffix in (".md", ".ipynb"):
        source[0] = translated(source[0], page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", _copy_all)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
