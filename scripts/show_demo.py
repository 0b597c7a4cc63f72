"""Put the demo's answer where people look first: in the README and on the first page of the documentation.

    fedgauge demo --out demo && python scripts/show_demo.py demo

Writes docs/results/demo/gauge.json, the curve, and pictures of the answer, of the demo's report and of the explorer as
Chromium shows them; and the answer's sentences between two marks of each page. A test compares the pages and the
picture of the answer with the file, and the file with what the demo says today.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from fedgauge.base.codec import parse_json
from fedgauge.cli.demo.digits import LOCAL_STEPS
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.views.gauges import view_of_gauge

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "results" / "demo"
PAGES = {"README.md": "docs/results/demo", "docs/index.md": "results/demo"}
_BLOCK = re.compile(r"(?<=<!-- the demo's answer -->\n).*?(?=<!-- end -->)", re.DOTALL)
_ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
_COLOURS = 128
"""As many as a screenshot of our pages needs; the file is a third of what it would be."""


def sentences(result: GaugeResult) -> list[str]:
    """What the demo's answer says, a sentence each."""
    return list(view_of_gauge(result, LOCAL_STEPS[-1]).sentences)


def block(result: GaugeResult, place: str) -> str:
    """What stands between the marks of a page, whose pictures lie at ``place``."""
    return f"\n![The answer of fedgauge demo: {' '.join(sentences(result))}]({place}/card.png)\n\n"


def kept() -> GaugeResult:
    """What the demo found when the pages were written."""
    return GaugeResult.from_json(parse_json((PLACE / "gauge.json").read_bytes()))


def marked(page: str) -> str:
    """What a page has between its marks."""
    found = _BLOCK.search((ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} has no marks"
    return found[0]


def shoot(demo: Path, said: str) -> None:
    """Take pictures of the demo's report, of the answer in it, and of the explorer.

    Args:
        demo: the demo's directory.
        said: the answer, which the picture of it has in its file.
    """
    from playwright.sync_api import sync_playwright

    explorer = demo.resolve() / "explorer.html"
    subprocess.run([sys.executable, "-m", "fedgauge", "theory", "explore", "--out", str(explorer)], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS.split())
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        page.goto((demo.resolve() / "report.html").as_uri())
        page.evaluate(
            "() => document.querySelectorAll('button').forEach(each => { each.style.visibility = 'hidden'; })"
        )
        top = page.locator("h1").bounding_box()
        last = page.locator("#answer table").first.bounding_box()
        assert top
        assert last
        high = last["y"] + last["height"] + 14 - top["y"]
        _save(
            page.screenshot(clip={"x": 0, "y": top["y"] - 6, "width": 1100, "height": high}, full_page=True),
            "card",
            said,
        )
        _save(_section(page, "federation", 960), "report")
        page.set_viewport_size({"width": 1400, "height": 880})
        page.goto(explorer.as_uri())
        _save(page.screenshot(), "explorer")
        browser.close()


def _section(page: Any, name: str, height: float) -> bytes:
    place = page.locator(f"#{name}").bounding_box()
    taken: bytes = page.screenshot(clip={"x": 0, "y": place["y"] - 12, "width": 1100, "height": height}, full_page=True)
    return taken


def _save(taken: bytes, name: str, said: str = "") -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    words = PngInfo()
    if said:
        words.add_text("answer", said)
    picture = Image.open(BytesIO(taken)).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    picture.save(PLACE / f"{name}.png", optimize=True, pnginfo=words)


def main() -> None:
    """Copy what the demo made, take the pictures, and write the answer into the pages."""
    demo = Path(sys.argv[1])
    shutil.copy(demo / "gauged" / "gauge.json", PLACE / "gauge.json")
    shutil.copy(demo / "gauged" / "gauge.png", PLACE / "answer.png")
    result = kept()
    shoot(demo, " ".join(sentences(result)))
    for page, place in PAGES.items():
        path, new = ROOT / page, block(result, place)
        before, after = path.read_text(encoding="utf-8").split(marked(page))
        path.write_text(before + new + after, encoding="utf-8")


if __name__ == "__main__":
    main()
