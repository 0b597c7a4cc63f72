"""How results are displayed: with ``plot()`` anywhere, and as a table and a picture in a notebook."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_RENDERER = "fedgauge.report.notebook"
"""The module that draws every kind of result. It imports the results, so it is imported by name, only when needed."""


class Displayed:
    """A result that can be drawn."""

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the result with matplotlib.

        Args:
            path: file for the picture (.png, .svg or .pdf); by default, none is written.

        Returns:
            The matplotlib figure.
        """
        return import_module(_RENDERER).plot(self, path)

    def _repr_html_(self) -> str:
        """The result as a notebook shows it."""
        html: str = import_module(_RENDERER).html(self)
        return html
