"""Numbers and times as text for readers."""

from __future__ import annotations

import math

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
