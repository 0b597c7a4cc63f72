"""How results show themselves: ``plot()`` anywhere, and a table and a picture in a notebook."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_RENDERER = "fedgauge.report.notebook"
"""Draws every kind of result. It is to the right of everything that it draws, so it is found by name, when needed."""


class Displayed:
    """A result that can be drawn."""

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the result with matplotlib.

        Args:
            path: where to write the picture (.png, .svg or .pdf); it is only returned if there is none.

        Returns:
            The matplotlib figure.
        """
        return import_module(_RENDERER).plot(self, path)

    def _repr_html_(self) -> str:
        """The result as a notebook shows it."""
        html: str = import_module(_RENDERER).html(self)
        return html
