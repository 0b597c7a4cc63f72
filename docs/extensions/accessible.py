"""What Sphinx and its theme leave out for people who use a keyboard or a screen reader.

Code and tables that are wider than a phone are scrolled, so that they have to be reached by the keyboard; a heading
has a level.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

_COMPLETED = (
    ("body", '<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">'),
    ("body", '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ("furo_navigation_tree", 'role="heading"', 'role="heading" aria-level="2"'),
)


def _complete(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    for part, written, complete in _COMPLETED:
        if isinstance(context.get(part), str):
            context[part] = context[part].replace(written, complete)


def setup(app: Sphinx) -> dict[str, Any]:
    """Change pages last, when the theme has made its parts."""
    app.connect("html-page-context", _complete, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
