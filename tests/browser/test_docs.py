"""The documentation as pages: it builds without a warning, asks nobody for anything, and can be read on a phone."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from typing import Literal

import typer
from playwright.sync_api import Browser, Page

import fedgauge
from fedgauge.cli import app

ROOT = Path(__file__).parents[2]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
PAGES = (
    "index",
    "tutorial",
    "guide/index",
    "guide/gauge",
    "theory/star",
    "howto/own-model",
    "reference/running",
    "reference/commands",
    "paper/ledger",
)

# What reaches beyond the page's right edge and cannot be scrolled to there.
BEYOND = """() => [...document.querySelectorAll('article *')].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || element.closest('.table-wrapper, pre, div.math, .headerlink, details p:has(img)')) return false;
  const formula = element.closest('.math.long');
  if (formula && getComputedStyle(formula).overflowX === 'auto') return false;
  return box.right > document.documentElement.clientWidth + 1;
}).map(element => element.outerHTML.slice(0, 120))"""
# Red in the page is what Sphinx or docutils could not make sense of; a formula without content was not translated.
BROKEN = "() => document.querySelectorAll('.problematic, .system-message, .math:not(:has(math))').length"

# Pictures are transparent, so that they can be read on dark pages; a background would undo it.
PAPER = """() => [...document.querySelectorAll('article img')]
  .map(image => getComputedStyle(image).backgroundColor).filter(colour => colour !== 'rgba(0, 0, 0, 0)')"""


def test_the_documentation(tmp_path: Path, browser: Browser) -> None:
    """One test, so that the pages are built once however the tests are distributed."""
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", ROOT / "docs", tmp_path],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr

    documented = _inventory(tmp_path / "objects.inv")
    assert {f"fedgauge.{name}" for name in fedgauge.__all__} <= documented

    commands = (tmp_path / "reference/commands.html").read_text("utf-8")
    for name in getattr(typer.main.get_command(app), "commands", ()):
        assert f'id="fedgauge-{name}' in commands

    _read(browser, tmp_path, width=1280, color_scheme="light")
    _read(browser, tmp_path, width=375, color_scheme="dark")
    _fits_and_can_be_read(browser, tmp_path)


def _read(browser: Browser, site: Path, *, width: int, color_scheme: Literal["light", "dark"]) -> None:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=color_scheme)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if _outside(request.url) else None)
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate(BEYOND) == [], (name, width)
        assert page.evaluate(BROKEN) == 0, name
        assert page.evaluate(PAPER) == [], name
    page.goto((site / "theory" / "star.html").as_uri())
    assert page.locator("article math").count() > 100
    _read_ledger(page, site)
    page.close()
    assert complaints == []


def _fits_and_can_be_read(browser: Browser, site: Path) -> None:
    """No page is wider than a phone, and all text has the contrast of WCAG AA, on light and on dark pages."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    complaints = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if beyond := page.evaluate(BEYOND):
            complaints.append(f"{path.name} is wider than a phone: {beyond[0]}")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            complaints += [f"{path.name}, {scheme}: {found}" for found in page.evaluate(CONTRAST)]
    assert complaints == []
    # Colours that are hard to read would have been found, on pages that are light and dark indeed.
    for tone in SCHEMES:
        faint = "#999" if tone == "light" else "#555"
        page.emulate_media(color_scheme=tone)
        page.evaluate("colour => { document.querySelector('h1').style.color = colour; }", "transparent")
        page.evaluate("colour => { document.querySelector('article p').style.color = colour; }", faint)
        assert len(page.evaluate(CONTRAST)) >= 2, tone
    # So would text that is faded with all that it is part of.
    page.reload()
    assert page.evaluate(CONTRAST) == []
    page.evaluate("() => { document.querySelector('article').style.opacity = '0.3'; }")
    assert page.evaluate(CONTRAST) != []
    page.close()


def _read_ledger(page: Page, site: Path) -> None:
    """Its grid fits one screen, and a sign leads into the table or figure that is folded away."""
    page.goto((site / "paper" / "ledger.html").as_uri())
    grid = page.locator("div.ledger").bounding_box()
    assert grid is not None
    assert grid["y"] + grid["height"] <= 900
    sign = page.locator("div.ledger a").last
    claim = page.locator(f"[id='{(sign.get_attribute('href') or '')[1:]}']")
    assert not claim.evaluate("claim => claim.closest('details').open")
    sign.click()
    page.wait_for_function("claim => claim.closest('details').open", arg=claim.element_handle())
    assert page.evaluate(BEYOND) == []


def _outside(address: str) -> bool:
    return not address.startswith(("file:", "data:"))


def _inventory(path: Path) -> set[str]:
    """The names that the reference describes: Sphinx's index has four lines of text and a compressed rest."""
    rest = path.read_bytes().split(b"\n", 4)[4]
    return {line.split(" ", 1)[0] for line in zlib.decompress(rest).decode().splitlines()}
