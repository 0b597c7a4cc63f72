"""Put the demo's answer where people look first: in the README and on the first page of the documentation.

    fedgauge demo --out demo && python scripts/show_demo.py demo

Writes docs/results/demo/gauge.json and answer.png, and the answer between two marks of each page. A test compares the
pages with the file, and the file with what the demo says today.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from textwrap import wrap

from fedgauge.base.codec import parse_json
from fedgauge.cli.demo.digits import LOCAL_STEPS
from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.displays import lines_of
from fedgauge.show.views.gauges import view_of_gauge

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "results" / "demo"
PAGES = {"README.md": "docs/results/demo", "docs/index.md": "results/demo"}
WIDTH = 80
_BLOCK = re.compile(r"(?<=<!-- the demo's answer -->\n).*?(?=<!-- end -->)", re.DOTALL)


def card(result: GaugeResult) -> str:
    """The answer as a narrow terminal shows it: sentences, what to use for the cost of a round, and what limits it."""
    shown = view_of_gauge(result, LOCAL_STEPS[-1])
    said, limits = ([part for line in lines for part in wrap(line, WIDTH)] for lines in (shown.sentences, shown.limits))
    return "\n".join([*said, "", *lines_of(shown.tables[0]), "", *limits]).rstrip()


def block(result: GaugeResult, place: str) -> str:
    """What stands between the marks of a page, whose pictures lie at ``place``."""
    picture = f"![How much of the work counts, against local steps]({place}/answer.png)"
    return f"\n```text\n{card(result)}\n```\n\n{picture}\n\n"


def kept() -> GaugeResult:
    """What the demo found when the pages were written."""
    return GaugeResult.from_json(parse_json((PLACE / "gauge.json").read_bytes()))


def marked(page: str) -> str:
    """What a page has between its marks."""
    found = _BLOCK.search((ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} has no marks"
    return found[0]


def main() -> None:
    """Copy what the demo made, and write it into the pages."""
    demo = Path(sys.argv[1])
    shutil.copy(demo / "gauged" / "gauge.json", PLACE / "gauge.json")
    shutil.copy(demo / "gauged" / "gauge.png", PLACE / "answer.png")
    result = kept()
    for page, place in PAGES.items():
        path, new = ROOT / page, block(result, place)
        before, after = path.read_text(encoding="utf-8").split(marked(page))
        path.write_text(before + new + after, encoding="utf-8")


if __name__ == "__main__":
    main()
