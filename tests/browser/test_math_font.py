"""The font for formulas that pages bring along: roots and brackets reach as far as what they enclose."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page
from tests.report.made import measurement, write_measurement, write_run

from fedgauge.cli import main
from fedgauge.show.web.elements import formula
from fedgauge.show.web.writing import math_font

Visit = Callable[..., Page]
LOADED = "() => document.fonts.ready.then(fonts => [...fonts].map(font => `${font.family} ${font.status}`))"
BOX = "element => { const {x, y, width, height} = element.getBoundingClientRect(); return {x, y, width, height}; }"


def inked(page: Page, left: float, right: float) -> int:
    """The rows between the first and the last with ink between two places of a page."""
    pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L"))[:, int(left) : int(right)]
    rows = np.flatnonzero((pixels < 128).any(axis=1))
    return int(rows[-1] - rows[0] + 1)


def heights(page: Page, path: Path, text: str, style: str) -> tuple[float, int]:
    """The height of a fraction, and of the ink before it."""
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><style>{style} math {{ font-size: 30px; math-style: normal; }}</style>'
        f"{formula(text)}"
    )
    page.goto(path.as_uri())
    page.evaluate(LOADED)
    fraction = page.locator("mfrac").evaluate(BOX)
    whole = page.locator("math").evaluate(BOX)
    return fraction["height"], inked(page, whole["x"], fraction["x"] - 1)


def test_a_root_reaches_over_its_fraction_and_brackets_around_theirs(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "blank.html").write_text("<!doctype html>")
    page = visit(tmp_path / "blank.html", bypass_csp=True)
    file = tmp_path / "blank.html"
    height, before = heights(page, file, "sqrt((a + b)/(c + d))", math_font())
    assert before >= 0.9 * height
    height, before = heights(page, file, "(sigma2/N)", math_font())
    assert before >= 0.9 * height
    # What this is for: without the font it does not, where the machine has no math font either.
    height, before = heights(page, file, "sqrt((a + b)/(c + d))", "math { font-family: 'DejaVu Sans'; }")
    assert before < 0.6 * height


def test_pages_use_it(visit: Visit, explorer: Path, tmp_path: Path) -> None:
    write_measurement(write_run(tmp_path / "run") / "measure.json", measurement())
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "r.html")]) == 0
    for place in (tmp_path / "r.html", explorer):
        page = visit(place)
        assert page.locator("math").count() > 0
        assert page.evaluate(LOADED) == ["page math loaded"]
