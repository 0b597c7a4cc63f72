"""The report in a real browser: it asks nobody, shows the JSON's numbers, and can be read and printed by everybody."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.report.made import experiment, measurement, write_measurement, write_run

from fedgauge.algorithms.cost import Cost
from fedgauge.cli import main
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.show.charts import Row, RowChart
from fedgauge.show.page.grids import draw
from fedgauge.show.web.writing import resource, shown
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.values.results import sealed
from fedgauge_planning.goal import Goal
from fedgauge_planning.plan_result import Plan
from fedgauge_planning.planner import PlanOptions, plan

Visit = Callable[..., Page]
Capture = pytest.CaptureFixture[str]
MARKUP = '<img src=x onerror="alert(1)"></script><b>'

# Every number that the page holds outside of its charts' tips, in order.
NUMBERS = "() => [...document.querySelectorAll('main data')].map(element => element.value)"
# What reaches beyond the page's right edge and cannot be scrolled to there.
BEYOND = """() => [...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest('.table, nav ol, .conditions .what, .skip')) return false;
  return box.right > document.documentElement.clientWidth + 1 || box.left < -1;
}).map(element => element.outerHTML.slice(0, 120))"""
# The same on paper, where nothing can be scrolled: text that is wider than its box is cut off.
CUT = """() => [...document.querySelectorAll('main *, header *')].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest('svg, math')) return false;
  const style = getComputedStyle(element);
  const hidden = style.overflowX !== 'visible' && element.scrollWidth > element.clientWidth + 1;
  return hidden || box.right > document.documentElement.clientWidth + 1;
}).map(element => element.outerHTML.slice(0, 120))"""


class Made:
    """A report, what it was made from, and what the command said."""

    def __init__(self, directory: Path, told: dict[str, Any]) -> None:
        self.page, self.directory, self.told = directory / "report.html", directory, told


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report with every part: a run, constants of it, and a plan that was made on quadratics, for time."""
    place = tmp_path_factory.mktemp("report")
    write_run(place / "run", rounds=60)
    write_measurement(place / "measure.json", measurement())
    random_quadratics(4, 3, hessian_spread=0.4, linear_spread=2.0, sigma2=0.05, seed=1).write(place / "fed.json")
    found = plan(
        Experiment.of({"source": str(place / "fed.json"), "gamma": 0.05, "local_steps": 4}),
        goal=Goal("grad2", 0.05),
        cost=Cost("given", fixed=1.0, step=0.02),
        over={"gamma": [0.05, 0.1], "local_steps": [1, 4]},
        options=PlanOptions(seeds=2, jobs=1),
    )
    planned = found.to_json()
    planned["experiment"]["data"]["name"] = "digits"  # as the run's; a plan for something else is refused beside it
    (place / "plan.json").write_text(json.dumps(sealed(planned)))
    from contextlib import redirect_stdout
    from io import StringIO

    files = {name: str(place / f"{name}.json") for name in ("measure", "plan")}
    with redirect_stdout(StringIO()) as out:
        line = ["report", str(place / "run"), "--measure", files["measure"], "--plan", files["plan"]]
        assert main([*line, "--out", str(place / "report.html"), "--json"]) == 0
    return Made(place, json.loads(out.getvalue()))


def test_it_opens_from_disk_and_asks_nobody(made: Made, visit: Visit) -> None:
    page = visit(made.page)
    expect(page.locator(".verdict")).to_have_text(made.told["verdict"])
    card, *sections = made.told["sections"]
    expect(page.locator(f"section#{card}.card")).to_be_visible()
    for name in sections:
        expect(page.locator(f"section#{name} > h2")).to_be_visible()
    assert card == "answer"
    theory = ["constants", "bound"]
    assert sections == (
        ["rounds", "gauge", "federation", "origins", *theory, "settings", "plan", "certificate", "commands"]
    )
    text = made.page.read_text()
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize("width", [390, 1400])
def test_the_answer_is_above_everything_else(made: Made, visit: Visit, width: int) -> None:
    page = visit(made.page, viewport={"width": width, "height": 900})
    expect(page.locator("h1")).to_have_text("digits, mlp, fedavg")
    places = [
        page.locator(selector).first.evaluate("element => element.getBoundingClientRect().top")
        for selector in ("h1", ".verdict", "#answer table", "#answer svg:not(.log)", ".summary", "nav", "#rounds")
    ]
    table, curve = places[2:4]
    assert [*places[:3], *places[4:]] == sorted([*places[:3], *places[4:]])
    assert places[1] < 200
    assert table < 600
    # On a wide screen they stand side by side.
    assert curve < 600 if width == 1400 else table < curve < places[4]
    plan = json.loads((made.directory / "plan.json").read_text())
    assert made.told["verdict"] == Plan.from_json(plan).answer.sentence  # type: ignore[union-attr]
    uses = page.locator("#answer tbody tr").first.locator("td").all_text_contents()
    assert f"Use {uses[-1]} local step" in made.told["verdict"]


def test_its_numbers_are_those_of_the_files(made: Made, visit: Visit) -> None:
    page = visit(made.page)
    embedded = page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
    # The command also says where it wrote the page, and which files it found beside the run.
    assert embedded == {name: value for name, value in made.told.items() if name not in ("out", "beside")}
    measured = json.loads((made.directory / "measure.json").read_text())["constants"]
    rows = page.locator("#constants .estimates tbody tr")
    assert rows.count() == len(measured)
    for number, estimate in enumerate(measured.values()):
        row = rows.nth(number)
        assert float(row.locator("data").first.get_attribute("value") or "") == estimate["value"]
        expect(row.locator(".kind")).to_have_text(estimate["kind"])
    bound = made.told["bound"]
    totals = page.locator("#bound .beside").first.locator("tbody tr td:nth-child(2) data")
    values = [float(text) for text in totals.evaluate_all("all => all.map(element => element.value)")]
    assert values == [version["total"] for version in bound["versions"].values()]
    # The tables below the charts hold what the charts were drawn from.
    records = [json.loads(line) for line in (made.directory / "run" / "rounds.jsonl").read_text().splitlines()]
    for name in ("loss", "grad2", "accuracy", "spread"):
        cells = page.locator(f"#chart-{name} tbody td data").evaluate_all("all => all.map(e => Number(e.value))")
        assert cells == [record[name] for record in records]
    found = json.loads((made.directory / "plan.json").read_text())
    expect(page.locator("#plan .said").first).to_have_text(found["verdict"])
    scores = page.locator("#plan > details").first.locator("tbody tr td:nth-child(5) data")
    expected = [entry["score"] for entry in found["race"]["entries"]]
    assert [float(text) for text in scores.evaluate_all("all => all.map(element => element.value)")] == expected


def hover(page: Page, chart: Locator, x: float, y: float) -> Locator:
    """Put the pointer at a place of a chart's own coordinates."""
    svg = chart.locator("svg:visible")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box
    unit = box["width"] / 520
    page.mouse.move(box["x"] + x * unit, box["y"] + y * unit)
    tip = chart.locator(".tip")
    expect(tip).to_be_visible()
    return tip


def place_of(scale: dict[str, Any], number: float) -> float:
    low, high, at = (math.log(x) if scale["log"] else x for x in (scale["low"], scale["high"], number))
    return float(scale["start"] + (at - low) / (high - low) * (scale["end"] - scale["start"]))


def test_the_pointer_shows_the_numbers_under_it(made: Made, visit: Visit) -> None:
    page, charts = visit(made.page), made.told["charts"]
    loss = charts["loss"]
    for index in (0, 17, 60):
        tip = hover(page, page.locator("#chart-loss"), place_of(loss["x"], index), 100)
        expect(tip.locator("b")).to_have_text(f"round {index}")
        value = loss["series"][0]["y"][index]
        assert float(tip.locator("data").get_attribute("value") or "") == value
        expect(tip.locator("data")).to_have_text(shown(value))
    cells = charts["partition"]
    tip = hover(page, page.locator("#chart-partition"), cells["left"] + 3.5 * cells["width"], cells["top"] + 4)
    expect(tip.locator("b")).to_have_text("worker 3")
    expect(tip.locator("data")).to_have_text(str(cells["values"][0][3]))
    terms = charts["terms"]
    tip = hover(page, page.locator("#chart-terms"), place_of(terms["x"], 5), 100)
    expect(tip.locator("b")).to_have_text("local steps I 5")
    values = [float(text) for text in tip.locator("data").evaluate_all("all => all.map(element => element.value)")]
    at = terms["series"][0]["x"].index(5)
    assert values == [series["y"][at] for series in reversed(terms["series"])]
    point = charts["constants"]["points"][0]
    tip = hover(page, page.locator("#chart-constants"), point["x"], point["y"])
    expect(tip.locator("b")).to_have_text(point["title"])
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


@pytest.mark.parametrize("scripts", [True, False])
def test_series_and_axes_are_switched_with_and_without_javascript(made: Made, visit: Visit, scripts: bool) -> None:
    page = visit(made.page, java_script_enabled=scripts)
    chart = page.locator("#chart-bound")
    expect(chart.locator("svg.log")).to_be_visible()
    expect(chart.locator("svg.linear")).to_be_hidden()
    chart.get_by_label("log axis").uncheck()
    expect(chart.locator("svg.linear")).to_be_visible()
    expect(chart.locator("svg.log")).to_be_hidden()
    expect(chart.locator("svg.linear .s1")).to_be_visible()
    chart.locator("[data-series='1']").uncheck()
    expect(chart.locator("svg.linear .s1")).to_be_hidden()


def test_without_javascript_it_has_the_same_numbers(made: Made, visit: Visit) -> None:
    still = visit(made.page, java_script_enabled=False)
    values = still.locator("main data").evaluate_all("all => all.map(element => element.value)")
    assert values == visit(made.page).evaluate(NUMBERS)
    assert len(values) > 500
    expect(still.locator("#theme")).to_be_hidden()
    still.locator("#chart-loss summary").click()
    expect(still.locator("#chart-loss table")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 768, 1280])
def test_it_fits_every_screen_in_both_themes(made: Made, visit: Visit, scheme: str, width: int, tmp_path: Path) -> None:
    page = visit(made.page, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.locator("main details").evaluate_all("all => all.forEach(details => details.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BEYOND) == []
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png")
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, colour[4:-1].split(","))) > 380) == (scheme == "light")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != colour


def test_letters_in_charts_can_be_read_on_a_phone(made: Made, visit: Visit) -> None:
    page = visit(made.page, viewport={"width": 375, "height": 800})
    sizes = page.evaluate("""() => [...document.querySelectorAll('svg')].filter(svg => svg.clientWidth).flatMap(svg => {
      const unit = svg.clientWidth / svg.viewBox.baseVal.width;
      return [...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize) * unit);
    })""")
    assert min(sizes) > 10


# Words of a picture that reach beyond it.
OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
  return box.width && (box.left < svg.left - 1 || box.right > svg.right + 1);
}).map(text => text.textContent)"""


@pytest.mark.parametrize("width", [700, 1024, 1400])
def test_every_link_of_the_contents_is_seen_whole(made: Made, visit: Visit, width: int) -> None:
    page = visit(made.page, viewport={"width": width, "height": 900})
    edges = page.locator("nav a").evaluate_all("all => all.map(link => link.getBoundingClientRect().right)")
    assert len(edges) == len(made.told["sections"]) - 1  # the answer is above them
    right = page.locator("nav").evaluate("nav => nav.getBoundingClientRect().right")
    assert max(edges) <= right


@pytest.mark.parametrize("width", [375, 1280])
def test_words_stay_inside_their_pictures(made: Made, visit: Visit, width: int, tmp_path: Path) -> None:
    viewport = {"width": width, "height": 800}
    assert visit(made.page, viewport=viewport).evaluate(OUTSIDE) == []
    # Longer names than those of this plan's finalists.
    rows = [Row(f"I={I}, γ={I / 3e5:.3g}", "finalists", 1.0, 0.5, 2.0) for I in (16, 256, 1024)]  # noqa: E741
    chart = draw(RowChart("finals", rows, title="The finals", x_label="seconds to the goal", log=False))
    style = resource("palette.css") + resource("page.css", "fedgauge.show.page")
    (tmp_path / "chart.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<style>{style}</style><main>{chart.html}</main>"
    )
    page = visit(tmp_path / "chart.html", viewport=viewport)
    assert page.locator("svg .row").count() == 3
    assert page.evaluate(OUTSIDE) == []


def test_intervals_end_before_their_axis_does(made: Made, visit: Visit) -> None:
    page = visit(made.page)
    names = [name for name in ("constants", "finals") if name in made.told["charts"]]
    # A final of one has nothing to compare, and no picture.
    found = json.loads((made.directory / "plan.json").read_text())
    assert ("finals" in names) == (len(found["race"]["standings"]) > 1)
    for name in names:
        chart = page.locator(f"#chart-{name} svg")
        bars = chart.locator("path.line").evaluate_all(
            "all => all.map(bar => bar.getBBox()).map(box => [box.x, box.x + box.width])"
        )
        start, end = chart.locator("path.grid").evaluate_all(
            "all => all.map(line => line.getBBox()).filter(box => box.width).map(box => [box.x, box.x + box.width])[0]"
        )
        assert bars
        assert all(start + 5 < left <= right < end - 5 for left, right in bars)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_note_of_a_heat_map_is_true_in_both_themes(made: Made, visit: Visit, scheme: str) -> None:
    page = visit(made.page, color_scheme=scheme)
    note = page.locator("#chart-partition figcaption p").inner_text()
    # In the dark a stronger colour is the lighter one.
    assert "stronger the colour" in note
    assert "arker" not in note


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_nothing_is_cut_off(made: Made, visit: Visit, scheme: str, tmp_path: Path) -> None:
    # A4 less its margins, at 96 points an inch.
    page = visit(made.page, color_scheme=scheme, viewport={"width": 680, "height": 1000})
    page.emulate_media(media="print", color_scheme=scheme)  # type: ignore[arg-type]  # one of its words
    assert page.evaluate(CUT) == []
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("nav")).to_be_hidden()
    assert page.pdf(path=tmp_path / "report.pdf", format="A4").startswith(b"%PDF")


def test_markup_in_the_files_is_text(tmp_path: Path, visit: Visit) -> None:
    run = write_run(tmp_path / "<b>run", made=experiment(10, rounds=20, model_option={MARKUP: MARKUP}))
    environment = {"command": MARKUP, MARKUP: MARKUP, "versions": {MARKUP: MARKUP}}
    (run / "environment.json").write_text(json.dumps(environment))
    settings = json.loads((run / "settings.json").read_text())
    settings["algorithm"][MARKUP] = 1.0
    (run / "settings.json").write_text(json.dumps(settings))
    write_measurement(run / "measure.json", measurement(blocks=(MARKUP, "bias"), said=MARKUP))
    assert main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    page = visit(tmp_path / "r.html")
    assert page.locator("img").count() == 0
    assert page.locator("main b").count() == page.locator("main .standing b").count()
    cells = page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")["charts"]["parts-L_h"]
    assert cells["rows"] == [MARKUP, "bias"]
    tip = hover(page, page.locator("#chart-parts-L_h"), cells["left"] + 3, cells["top"] + 3)
    expect(tip.locator("span")).to_have_text(f"layer {MARKUP}")
    assert page.locator("img").count() == 0


def test_a_thousand_rounds_of_a_hundred_workers_are_small(tmp_path: Path, visit: Visit) -> None:
    run = write_run(tmp_path / "run", rounds=1000, workers=100)
    layers = tuple(f"layers.{number}.{part}" for number in range(8) for part in ("weight", "bias"))
    write_measurement(run / "measure.json", measurement(100, layers))
    assert main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    size = (tmp_path / "r.html").stat().st_size
    page = visit(tmp_path / "r.html")
    took = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f"{size:,} bytes, loaded in {took:.0f} ms")
    assert size < 3_000_000
    # Extremes are drawn, however thin the line.
    records = [json.loads(line)["grad2"] for line in (run / "rounds.jsonl").read_text().splitlines()]
    drawn = page.evaluate("() => JSON.parse(document.getElementById('data').textContent).charts.grad2.series[0].y")
    assert {min(records), max(records)} <= set(drawn)
