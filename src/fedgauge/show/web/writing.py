"""How pages write numbers, and what they are made of: the same for every page, so that they read alike."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from importlib import resources

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(value: float) -> str:
    """Return a number with four significant digits, as the script writes it too.

    >>> shown(0.0123456), shown(1234567.0), shown(1e-9), shown(math.inf)
    ('0.01235', '1.235×10⁶', '10⁻⁹', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    # Of two nearest numbers JavaScript takes the larger, not the even one.
    with localcontext(rounding=ROUND_HALF_UP):
        mantissa, _, power = f"{Decimal(value):.3e}".partition("e")
        exponent = int(power)
        text = f"{Decimal(value):.{max(0, 3 - exponent)}f}"
    if -4 <= exponent <= 4:
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa = mantissa.rstrip("0").rstrip(".")
    front = "" if mantissa == "1" else f"{mantissa}×"
    return f"{front}10{str(exponent).translate(_SUPERSCRIPTS)}"


def percent(share: float) -> str:
    """Return a share in percent, where little is not nothing.

    >>> percent(0.001), percent(0.25)
    ('<1%', '25%')
    """
    with localcontext(rounding=ROUND_HALF_UP):
        return "<1%" if 0 < share < 0.005 else f"{Decimal(100 * share):.0f}%"


def distance(limit: float, value: float) -> str:
    """Say whether a condition holds and how far it is from its limit.

    >>> distance(0.5, 0.25), distance(0.25, 0.5), distance(0.0, 0.0), distance(0.0, 0.1)
    ('holds, 2× room', 'fails, 2× over', 'holds', 'fails, must be 0')
    """
    if value <= limit:
        if math.isinf(limit):
            return "holds, no limit"
        return f"holds, {shown(limit / value)}× room" if value > 0 else "holds"
    return f"fails, {shown(value / limit)}× over" if limit > 0 else "fails, must be 0"


def written(value: float) -> str:
    """Return a number as JavaScript writes it, to the last bit.

    >>> written(0.1), written(math.inf)
    ('0.1', 'Infinity')
    """
    return repr(float(value)).replace("inf", "Infinity").replace("nan", "NaN")


def resource(name: str, package: str = "fedgauge.show.web") -> str:
    """Return the text of a file that is part of the package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


@functools.cache
def math_font() -> str:
    """Return the CSS that gives a page a font for formulas of its own: without one, no root reaches over a fraction.

    >>> math_font()[:37]
    '@font-face { font-family: "page math"'
    """
    font = base64.b64encode((resources.files("fedgauge.show.web") / "fonts" / "math.woff2").read_bytes()).decode()
    source = f'url("data:font/woff2;base64,{font}") format("woff2")'
    return f'@font-face {{ font-family: "page math"; src: {source}; }}\nmath {{ font-family: "page math", math; }}\n'


def policy(style: str, script: str) -> str:
    """Return what a page allows itself: its own style, script and pictures, and nothing else.

    >>> policy("", "").startswith("default-src 'none'; style-src 'sha256-47DEQ")
    True
    """
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; font-src data:"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
