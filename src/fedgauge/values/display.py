"""How results are displayed: short in a console, as a screen when printed, drawn, and with a picture in a notebook."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sized
from importlib import import_module
from pathlib import Path
from typing import Any

_RENDERER = "fedgauge.show.displays"
"""The module that draws and prints every kind of result. It imports the results, so it is imported by name, only when
needed."""

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
        text: str = import_module(_RENDERER).text(self)
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


_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def short(number: float) -> str:
    """A number with three significant digits.

    >>> short(0.0123456), short(1.0)
    ('0.0123', '1')
    """
    return f"{number:.3g}"


def whole(number: float) -> str:
    """A number rounded to a whole one, with commas between groups of digits, or as a power of ten if it is large.

    >>> whole(2345.6), whole(3e12), whole(1.26)
    ('2,346', '3e+12', '1.3')
    """
    if number >= 1e9 or not math.isfinite(number):
        return short(number)
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.2g}"


def share_of(share: float) -> str:
    """A share in per cent, with two or three digits.

    >>> share_of(0.5), share_of(0.0123), share_of(1 / 1000), share_of(1e-9)
    ('50%', '1.2%', '0.1%', 'less than 0.01%')
    """
    if share < 1e-4:
        return "0%" if share == 0 else "less than 0.01%"
    return f"{share:.0%}" if share >= 0.0995 else f"{100 * share:.2g}%"


def counted(number: int, noun: str) -> str:
    """A number of things, with the noun in the singular for one.

    >>> counted(1, "round"), counted(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def article(word: str) -> str:
    """The article before a word.

    >>> article("upper"), article("lower")
    ('an', 'a')
    """
    return "an" if word[:1] in "aeiou" else "a"


def rounds(number: float) -> str:
    """A number of rounds.

    >>> rounds(1), rounds(1200)
    ('1 round', '1,200 rounds')
    """
    return "1 round" if number == 1 else f"{whole(number)} rounds"


def lasting(seconds: float) -> str:
    """A time in a unit that suits it.

    >>> lasting(12.34), lasting(7200), lasting(1e12)
    ('12.3 s', '2 h', '31,688 years')
    """
    for name, size in _UNITS:
        if seconds >= 2 * size:
            return f"{whole(seconds / size) if seconds >= 1000 * size else short(seconds / size)} {name}"
    return f"{short(seconds)} s"


def compare(ratio: float) -> str:
    """A ratio in words.

    >>> compare(1.3), compare(1.001), compare(0.045)
    ('1.3 times', 'the same as', '0.045 times')
    """
    return "the same as" if abs(ratio - 1) < 0.01 else f"{short(ratio)} times"
