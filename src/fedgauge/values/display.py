"""How results are displayed: short in a console, as a screen when printed, drawn, and with a picture in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sized
from importlib import import_module
from pathlib import Path
from typing import Any

_RENDERER, _PRINTER = "fedgauge.report.notebook", "fedgauge.report.printing"
"""The modules that draw and print every kind of result. They import the results, so they are imported by name, only
when needed."""

_WIDEST = 250
"""The most characters of a result's ``repr``."""


class Displayed:
    """A result that can be drawn."""

    def __init_subclass__(cls, **settings: Any) -> None:
        """Keep these instead of the ``repr`` that a dataclass would make, which is pages long."""
        super().__init_subclass__(**settings)
        for method in (Displayed.__repr__, Displayed.__str__):
            if method.__name__ not in cls.__dict__:
                setattr(cls, method.__name__, method)

    def __repr__(self) -> str:
        """The class and its entries, the long ones in brief."""
        named = ((each.name, getattr(self, each.name)) for each in dataclasses.fields(self))  # type: ignore[arg-type]
        entries = ", ".join(f"{name}={_brief(value)}" for name, value in named)
        whole = f"{type(self).__name__}({entries})"
        return whole if len(whole) <= _WIDEST else f"{whole[: _WIDEST - 2]}…)"

    def __str__(self) -> str:
        """What the result says, as a screen."""
        text: str = import_module(_PRINTER).text(self)
        return text

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


def _brief(value: Any) -> str:
    """A number or a short text as it is, and of anything else only what it is and how much of it there is."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:39]}…")
    if isinstance(value, Sized):
        return f"<{len(value)} {'names' if isinstance(value, Mapping) else 'entries'}>"
    return f"<{type(value).__name__}>"
