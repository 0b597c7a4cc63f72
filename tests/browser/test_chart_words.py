"""The words of charts with extreme numbers, in a browser: none covers another, and none leaves its picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from fedgauge.show.charts import HeatMap, LineChart, Mark, Row, RowChart, Series, StackedChart, StackLayer
from fedgauge.show.page.chart import Drawing
from fedgauge.show.page.grids import draw as draw_chart
from fedgauge.show.web.writing import resource

Visit = Callable[..., Page]

# Words of one picture that cover one another, by more than the room that letters have around them.
COVERED = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(text => ({text, at: text.getBoundingClientRect()}));
  const seen = boxes.filter(one => one.at.width);
  const slack = 0.15 * Math.min(...seen.map(one => one.at.height));
  const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5;
  const down = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;
  const pairs = seen.flatMap((one, i) => seen.slice(i + 1).map(other => [one, other]));
  return pairs.filter(([one, other]) => across(one.at, other.at) && down(one.at, other.at))
    .map(([one, other]) => `${svg.getAttribute('aria-label')}: ${one.text.textContent} | ${other.text.textContent}`);
})"""
OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
  return box.width && (box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1);
}).map(text => text.textContent)"""
HEIGHTS = {
    "huge": [1e300, 2e300, math.inf],
    "tiny": [1e-300, 3e-300, 2e-300],
    "wide": [1e-300, 1.0, 1e300],
    "close": [123456.1, 123456.5, 123456.9],
    "negative": [-1e9, 1.0, 1e9],
    "one": [0.0, math.nan, math.nan],
    "zero": [0.0, 0.0, 0.0],
    "usual": [0.5, 0.2, 0.1],
}
PLACES: dict[str, list[float]] = {
    "rounds": [0, 60, 100_000],
    "long": [1234567.1, 1234567.5, 1234567.9],
    "doubled": [1, 8, 64],
}


def extremes() -> Iterator[Drawing]:
    marks = [Mark(at, words) for at, words in ((6, "affordable"), (7, "fastest"), (8, "the run"), (64, "admitted"))]
    for name, y in HEIGHTS.items():
        for kind, x in PLACES.items():
            words: Any = {"title": f"{name} {kind}", "x_label": "seconds of the cost model"}
            series = [Series("f", x, y, low=[0.5 * up for up in y], high=[2 * up for up in y])]
            how: Any = {"marks": marks, "log_x": True} if kind == "doubled" else {}
            yield draw_chart(LineChart(f"{name}-{kind}", series, y_label="min ‖∇f‖² over the rounds", **words, **how))
            layers = [
                StackLayer("initial gap", 0, [abs(up) for up in y]),
                StackLayer("local noise", 1, [1.0, 2.0, 3.0]),
            ]
            stack = StackedChart(
                f"{name}-{kind}-terms", x, layers, y_label="squared gradient norm", **words, marks=marks
            )
            yield draw_chart(stack)
        rows = [Row(f"I={2**i}, γ={up:.3g}", "x", up, min(up, -up), abs(up)) for i, up in enumerate(y)]
        yield draw_chart(RowChart(f"{name}-rows", rows, name, "seconds to the goal", log=name != "negative"))
        yield draw_chart(RowChart(f"{name}-bars", rows, name, "seconds to the goal", bars=True))
    for number in (1, 10, 200):
        names = [str(worker) for worker in range(number)]
        yield draw_chart(
            HeatMap(
                f"heat-{number}",
                [[1e300 * (i + j) for j in range(number)] for i in range(3)],
                ["0", "a.long.name.of.a.layer.weight", "2"],
                names,
                title=f"heat {number}",
                row_label="layer",
                column_label="worker",
            )
        )


@pytest.fixture(scope="module")
def page_of_extremes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("charts") / "charts.html"
    style = resource("palette.css") + resource("page.css", "fedgauge.show.page")
    path.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<style>{style}</style><main><div class="charts">{"".join(chart.html for chart in extremes())}</div></main>'
    )
    return path


@pytest.mark.parametrize("axis", ["first", "other"])
@pytest.mark.parametrize("width", [390, 1400])
def test_words_cover_nothing_and_stay_inside(page_of_extremes: Path, visit: Visit, width: int, axis: str) -> None:
    page = visit(page_of_extremes, viewport={"width": width, "height": 900})
    if axis == "other":
        page.locator("[data-axis]").evaluate_all("all => all.forEach(box => { box.checked = !box.checked; })")
    assert page.evaluate(COVERED) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
