"""Lists that are shown as cards: those after ``<!-- cards -->``, which plain git hosts show as lists."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

_MARK = "<!-- cards -->\n"


def _mark(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = source[0].replace(_MARK, "{.cards}\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _mark)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
