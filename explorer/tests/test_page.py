"""The explorer in a real browser: every number is Python's, and the page can be used by everybody."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from fedgauge.cli import main
from fedgauge.theory import THEOREMS
from fedgauge.theory.answer import TheoremAnswer
from fedgauge.values import Bound, Kind, Version
from fedgauge_explorer import region
from fedgauge_explorer.controls import CONTROLS, SQUARED, Start

Visit = Callable[..., Page]
EVERY: list[tuple[str, Version]] = [(name, version) for name, t in THEOREMS.items() for version in t.versions]
# Operations are the same in the same order; only exp, log, powers and cube roots may differ in their last bits, which
# the growth over 2 I local steps multiplies.
CLOSE = 1e-9

# Everything that the page shows of each theorem and version, from the elements that show it.
READ = """() => [...document.querySelectorAll('.version')].map(card => {
  const numbers = (part) => [...card.querySelectorAll(`data[data-part="${part}"]`)].map(e => e.value);
  const cell = document.querySelector(`td[data-theorem="${card.dataset.theorem}"][data-version="${card.dataset.version}"]`);
  return {theorem: card.dataset.theorem, version: card.dataset.version, terms: numbers('term'), total: numbers('total'),
    cell: [cell.querySelector('data').value], limits: numbers('limit'), values: numbers('value'),
    gamma_max: numbers('gammaMax'), standing: card.querySelector('.standing').dataset.standing,
    holds: [...card.querySelectorAll('.conditions > li')].map(e => e.className === 'holds')};
})"""  # noqa: E501


def spelled(start: Start) -> dict[str, float]:
    """The values as the theorems spell them; where L_h_rms follows L_h, it is L_h."""
    values = {**start.spelled()}
    return {"L_h_rms": values["L_h"], **values}


def at(bound: Bound, point: int, kinds: dict[str, Kind]) -> Bound:
    """One point of a bound on many."""

    def one(value: Any) -> float:
        return float(np.ravel(value)[point if np.size(value) > 1 else 0])

    return replace(
        bound,
        terms=tuple(replace(term, value=one(term.value)) for term in bound.terms),
        conditions=tuple(replace(c, limit=one(c.limit), value=one(c.value)) for c in bound.conditions),
        gamma_max=one(bound.gamma_max),
        kinds=kinds,
    )


def same(shown: float, right: Any) -> bool:
    return math.isclose(shown, right, rel_tol=CLOSE) or (math.isnan(shown) and math.isnan(right))


def assert_shows(found: list[list[dict[str, Any]]], starts: list[Start]) -> None:
    """Hold what the page shows at each start against Python, number by number."""
    points = [spelled(start) for start in starts]
    values: dict[str, Any] = {name: np.array([point[name] for point in points], dtype=float) for name in points[0]}
    wrong = []
    for index, (theorem, version) in enumerate(EVERY):
        with np.errstate(all="ignore"):
            bounds = THEOREMS[theorem].evaluate(version, **values)
        for k, start in enumerate(starts):
            seen = found[k][index]
            assert (seen["theorem"], seen["version"]) == (theorem, version)
            used = {*THEOREMS[theorem].needed(version), *THEOREMS[theorem].optional}
            used -= {"L_h_rms"} if version == "prior" else set()
            bound = at(bounds, k, {name: kind for name, kind in start.theorem_kinds().items() if name in used})
            numbers = {
                "terms": [term.value for term in bound.terms],
                "total": [bound.total],
                "cell": [bound.total],
                "limits": [condition.limit for condition in bound.conditions],
                "values": [condition.value for condition in bound.conditions],
                "gamma_max": [bound.gamma_max],
            }
            where = f"{theorem} {version} at {dict(start.values)}"
            for name, right in numbers.items():
                shown = [float(text) for text in seen[name]]
                if not all(same(*pair) for pair in zip(shown, right, strict=True)):
                    wrong.append(f"{name} {shown}, not {right}: {where}")
            if seen["holds"] != [bool(condition.holds) for condition in bound.conditions]:
                wrong.append(f"conditions hold {seen['holds']}: {where}")
            standing = TheoremAnswer(theorem, bound, {}, {}).standing
            if seen["standing"] != standing:
                wrong.append(f"{seen['standing']}, not {standing}: {where}")
    assert not wrong, "\n".join(wrong[:5])


def assert_shows_state(page: Page) -> None:
    assert_shows([page.evaluate(READ)], [state_of(page)])


def random_start(rng: np.random.Generator) -> Start:
    """Values over all that the boxes accept: most on a log scale, now and then 0, infinite, or at an edge."""
    values: dict[str, float | None] = {}
    for name, control in CONTROLS.items():
        rule = control.to_json()
        if control.log:
            value = math.exp(rng.uniform(math.log(control.low / 10), math.log(control.high * 10)))
            values[name] = max(1, round(min(value, 3000 if name == "I" else value))) if rule["whole"] else value
        else:
            values[name] = float(rng.uniform(control.low, control.high))
        if rng.random() < 0.12 and not rule["above"] and not rule["whole"]:
            values[name] = 0.0
        if rng.random() < 0.08 and rule["infinite"]:
            values[name] = math.inf
    values["M"] = int(rng.integers(1, int(values["N"] or 1), endpoint=True))
    if rng.random() < 0.5:
        values["L_h_rms"] = None
    if rng.random() < 0.5:  # rates that are within the conditions now and then
        values |= {"eta": 1.0, "gamma": 10 ** rng.uniform(-12, -3)}
    if rng.random() < 0.3:
        values |= {"L_h": 0.0, "beta1": 0.0}
    kinds = {name: str(rng.choice(get_args(Kind))) for name in CONTROLS if rng.random() < 0.15}
    return Start(values, kinds)  # type: ignore[arg-type]  # the kinds are kinds


def plain(values: Any) -> dict[str, Any]:
    return {name: value if value is None else float(value) for name, value in values.items()}


def test_it_opens_from_disk_without_a_request_or_a_complaint(visit: Visit, explorer: Path) -> None:
    page = visit(explorer, offline=True)  # what the page requests or complains about, the fixture refuses
    page.wait_for_selector("#field rect")
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    text = explorer.read_text().replace('url("data:font/woff2;base64,', "")  # the font for formulas, in the page itself
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in text, outside


def test_every_number_is_pythons_at_200_random_settings(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    rng = np.random.default_rng(20240716)
    starts = [random_start(rng) for _ in range(200)]
    # One text is much quicker to pass on than a thousand objects.
    text = page.evaluate(
        f"(all) => JSON.stringify(all.map(([values, kinds]) => {{ fedgauge.set(values, kinds); return ({READ})(); }}))",
        [[plain(start.values), dict(start.kinds)] for start in starts],
    )
    found = json.loads(text)
    assert_shows(found, starts)
    totals = [float(card["total"][0]) for one in found for card in one]
    standings = {card["standing"] for one in found for card in one}
    assert np.isinf(totals).any()
    assert standings == {"certified", "as printed", "plug-in", "not certified"}


def state_of(page: Page) -> Start:
    state = page.evaluate("() => structuredClone(fedgauge.state)")
    return Start(state["values"], state["kinds"])


def test_a_slider_moved_by_keyboard_changes_the_bound_to_what_python_says(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    before = page.locator("#now data").get_attribute("value")
    slider = page.get_by_role("slider", name=re.compile("^L_h:"))
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    start = state_of(page)
    assert start.values["L_h"] > CONTROLS["L_h"].start  # type: ignore[operator]
    assert page.locator("#now data").get_attribute("value") != before
    assert_shows_state(page)
    # The box beside it is the next stop, and takes what no slider step is.
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("0.12345")
    start = state_of(page)
    assert start.values["L_h"] == 0.12345
    assert_shows_state(page)


def test_theorems_are_chosen_by_keyboard_and_show_only_their_sliders(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    expect(page.locator("#slide-M")).to_be_hidden()
    page.get_by_role("radio", name=re.compile("^FedAvg, full")).focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#panel-partial")).to_be_visible()
    expect(page.locator("#panel-nonconvex")).to_be_hidden()
    expect(page.locator("#slide-M")).to_be_visible()
    expect(page.locator("#slide-kappa")).to_be_hidden()


def test_what_a_box_does_not_accept_is_answered_in_one_sentence(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    box = page.locator("#box-I")
    box.fill("2.5")
    page.keyboard.press("Tab")
    expect(page.locator("#said")).to_have_text("I must be a whole number of at least 1, and here at most 100000.")
    assert page.evaluate("fedgauge.state.values.I") == CONTROLS["I"].start
    expect(box).to_have_value("4")


def test_a_link_restores_the_state(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    page.locator("#box-gamma").fill("0.00123")
    page.locator("#box-F").fill("inf")
    page.locator("input[value=momentum]").check()
    expect(page).to_have_url(re.compile("theorem=momentum"))
    before = page.evaluate("({hash: location.hash, state: fedgauge.state})")
    other = visit(explorer.as_uri() + before["hash"])
    assert other.evaluate("fedgauge.state") == before["state"]
    expect(other.locator("#panel-momentum")).to_be_visible()
    assert_shows_state(other)


def test_the_buttons_say_what_they_did(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    page.locator("#box-I").fill("7")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#said")).to_have_text(re.compile("link to these values"))
    assert "I=7" in page.url
    page.get_by_role("button", name="Start again").click()
    assert state_of(page).values["I"] == CONTROLS["I"].start
    assert_shows_state(page)


def test_a_link_that_is_broken_leaves_what_it_says_wrongly(visit: Visit, explorer: Path) -> None:
    page = visit(explorer.as_uri() + "#theorem=__proto__&gamma=-1&N=%3Cimg%3E&I=7&M=900&kind.L_h=<b>")
    start = state_of(page)
    assert (start.values["I"], start.values["gamma"], start.values["M"]) == (7, CONTROLS["gamma"].start, 900)
    assert start.kinds == {}
    assert_shows_state(page)


def test_both_themes_and_a_phone_show_everything_without_overflow(visit: Visit, explorer: Path, tmp_path: Path) -> None:
    page = visit(explorer, viewport={"width": 375, "height": 800})
    page.wait_for_selector("#field rect")
    choose = "(name) => { fedgauge.state.theorem = name; fedgauge.set({}); }"
    for name in THEOREMS:
        page.evaluate(choose, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, name
    page.evaluate(choose, "nonconvex")
    for width in (320, 700, 1000, 1030):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = "getComputedStyle(document.documentElement).backgroundColor"
    colours = {}
    for width in (375, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            colours[scheme] = page.evaluate(background)
            page.screenshot(path=tmp_path / f"{scheme}-{width}.png")
    assert colours["light"] != colours["dark"]
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(background) == colours["light"]


def test_without_javascript_all_theorems_are_there_with_the_same_numbers(visit: Visit, explorer: Path) -> None:
    still = visit(explorer, java_script_enabled=False)
    expect(still.get_by_text("The sliders need JavaScript")).to_be_visible()
    expect(still.locator("#controls")).to_be_hidden()
    for name in THEOREMS:
        expect(still.locator(f"#panel-{name}")).to_be_visible()
    expect(still.locator("#panel-nonconvex math").first).to_be_visible()
    live = visit(explorer)
    # The same numbers, words and marks as the script writes, so that the two ways of writing them agree.
    parts = ".version data, .version .share, .version [data-part=distance], .version [data-part=title], .overview td"
    texts = still.locator(parts).all_text_contents()
    assert texts == live.locator(parts).all_text_contents()
    assert len(texts) > 500


def test_the_map_is_the_region_by_the_bounds(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    values: dict[str, Any] = {"F": 2.0, "N": 6, "L_g": 1.5, "sigma": 0.05, "zeta": 0.3, "L_h": 0.2, "I": 12, "R": 80}
    page.evaluate("(values) => fedgauge.set(values)", values)
    for x, y in (("zeta", "L_h"), ("sigma", "I")):
        found = page.evaluate("([x, y]) => fedgauge.computeMap(x, y, 5)", [x, y])
        fixed = {name: value for name, value in values.items() if name not in (x, y)}
        axes = [region.make_axis(name, (seen[0], seen[-1]), 5) for name, seen in ((x, found["xs"]), (y, found["ys"]))]
        right = region.compute(axes[0], axes[1], **fixed)
        np.testing.assert_allclose(found["xs"], right.x.values, rtol=1e-12)
        # Both search for a minimum, near which the bound is flat.
        np.testing.assert_allclose(found["ratios"], right.bound.log_ratio, atol=1e-7)


MARKUP = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>'


def constants(path: Path, **entries: Any) -> Path:
    path.write_text(json.dumps({"constants": entries}))
    return path


def measured(path: Path) -> Path:
    return constants(
        path,
        L_h={"symbol": "L_h", "value": 0.25, "kind": "lower", "method": MARKUP},
        zeta={"symbol": "zeta", "value": 3.5, "kind": "sample", "method": "plain"},
        F={"symbol": "F", "value": math.inf, "kind": "upper", "method": ""},
        mu={"symbol": "mu", "value": 0.0, "kind": "exact", "method": "f is flat somewhere"},
        x_star={"symbol": "x_star", "value": [1.0], "kind": "exact", "method": ""},
    )


def assert_loaded(page: Page) -> None:
    expect(page.locator("#labels dd").filter(has_text="<img")).to_have_text(MARKUP)
    assert page.locator("main img, form img").count() == 0
    assert page.title() == "fedgauge explorer"
    start = state_of(page)
    assert start.values["L_h"] == 0.25
    assert start.values["zeta"] == 3.5
    assumed = dict.fromkeys(("L_g", "L_tilde", "mu", "kappa", "sigma", "G", "d0"), "assumed")
    # F does not say to which first model it belongs, and mu is 0.
    assert start.kinds == {"L_h": "lower", "zeta": "sample", "F": "assumed", **assumed}
    assert {card["standing"] for card in page.evaluate(READ)} <= {"plug-in", "not certified"}
    expect(page.locator('.control[data-name="L_h"] .kind')).to_have_text("lower")
    assert_shows_state(page)


def test_a_file_of_constants_is_loaded_by_the_command_and_its_markup_is_text(visit: Visit, tmp_path: Path) -> None:
    path = measured(tmp_path / "<b>measure.json")
    out = tmp_path / "page.html"
    assert main(["theory", "explore", "--values", str(path), "--out", str(out)]) == 0
    page = visit(out)
    expect(page.locator("#source")).to_have_text("<b>measure.json")
    assert_loaded(page)
    # What the reader moves, the reader vouches for.
    page.locator("#box-L_h").fill("0.5")
    page.locator("#box-L_g").fill("2")
    kinds = state_of(page).kinds
    assert (kinds["zeta"], kinds["F"], kinds["mu"]) == ("sample", "assumed", "assumed")
    assert {"L_h", "L_g"}.isdisjoint(kinds)


def test_a_file_of_constants_is_loaded_by_the_page_and_its_markup_is_text(
    visit: Visit, explorer: Path, tmp_path: Path
) -> None:
    page = visit(explorer)
    page.locator("#file").set_input_files(measured(tmp_path / "measure.json"))
    expect(page.locator("#said")).to_have_text(
        re.compile("^Loaded L_h, zeta, F from measure.json; the other values are as they were, constants assumed.$")
    )
    assert_loaded(page)


OTHER_KINDS = {
    "no constants": ('{"rounds": [1, 2]}', "holds no constant that a theorem uses"),
    "a list": ("[1, 2]", ""),
    "no JSON": ("L_h = 1", "is not valid JSON"),
    "negative": ('{"L_h": -1}', "L_h must be a finite number of at least 0"),
    "no number": ('{"L_h": "<b>big</b>"}', "L_h must be a"),
    "no kind": ('{"L_h": {"value": 1, "kind": "<i>"}}', "kind of L_h must be one of exact, upper, lower, sample"),
    "too many sampled": ('{"N": 3, "M": 4}', "M must be at most N"),
}


def test_a_file_of_another_kind_is_refused_in_one_sentence(
    visit: Visit, explorer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = visit(explorer)
    before = page.evaluate("structuredClone(fedgauge.state)")
    said = page.locator("#said")
    for name, (text, words) in OTHER_KINDS.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        page.locator("#file").set_input_files(path)
        expect(said).to_contain_text(path.name)
        expect(said).to_contain_text(words)
        assert (said.text_content() or "").count(". ") == 0
        assert page.evaluate("fedgauge.state") == before
        assert main(["theory", "explore", "--values", str(path), "--out", str(tmp_path / "page.html")]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_squares_are_spelled_as_the_theorems_spell_them(visit: Visit, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    path = constants(tmp_path / "values.json", sigma2=0.09, L_h_paper={"value": 0.4, "kind": "upper"})
    assert main(["theory", "explore", "--values", str(path), "--out", str(out)]) == 0
    start = state_of(visit(out))
    assert start.values["sigma"] == 0.3
    assert start.values["L_h_rms"] == 0.4
    assert set(SQUARED) == {"sigma", "zeta"}


def measured_run(directory: Path) -> Path:
    """What 'fedgauge measure' writes of a run with I = 12 and gamma = 0.002, whose first loss is 2.5."""
    run = directory / "run"
    run.mkdir()
    (run / "settings.json").write_text('{"federation": "abc", "algorithm": {"name": "fedavg"}}')
    (run / "rounds.jsonl").write_text(
        '{"round": 0, "loss": 2.5, "grad2": 1.0}\n{"round": 1, "loss": 2.0, "grad2": 0.5}\n'
    )
    experiment = {
        "data": {"name": "digits"},
        "algorithm": {"name": "fedavg", "gamma": 0.002},
        "run": {"local_steps": 12, "rounds": 300},
    }
    constants = {name: {"value": value, "kind": "lower"} for name, value in
                 {"L_g": 7.742956733703613, "L_h": 0.1, "sigma": 0.4, "zeta": 1.25}.items()}  # fmt: skip
    path = directory / "measure.json"
    path.write_text(
        json.dumps(
            {
                "settings": {"experiment": experiment, "federation": "abc"},
                "point": {"origin": str(run / "model.safetensors"), "loss": 0.2},
                "constants": constants,
            }
        )
    )
    return path


def test_it_opens_at_the_run_and_marks_the_best_local_steps(visit: Visit, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert main(["theory", "explore", "--values", str(measured_run(tmp_path)), "--out", str(out)]) == 0
    page = visit(out)
    start = state_of(page)
    assert {name: start.values[name] for name in ("I", "R", "gamma", "F")} == {
        "I": 12,
        "R": 300,
        "gamma": 0.002,
        "F": 2.5,
    }
    assert start.kinds["F"] == "upper"
    marks = {
        item["mark"]: item
        for item in page.evaluate("[...document.querySelectorAll('#steps-legend li')].map(e => ({...e.dataset}))")
    }
    values: dict[str, Any] = spelled(start)
    steps = np.arange(1, 1000)
    bound = THEOREMS["nonconvex"].evaluate("star", **(values | {"I": steps}))
    admitted = np.where(bound.admissible, bound.total, np.inf)
    best = int(steps[np.argmin(admitted)])
    assert (int(marks["best"]["steps"]), int(marks["run"]["steps"]), int(marks["here"]["steps"])) == (best, 12, 12)
    assert same(float(marks["best"]["total"]), float(admitted.min()))
    assert same(float(marks["run"]["total"]), float(bound.total[11]))
    assert best != 12
    expect(page.locator("#steps-said")).to_contain_text(f"least at I = {best}")
    # The slider moves the reader's mark, and the run's stays.
    page.fill("#box-I", "3")
    expect(page.locator('#steps-legend li[data-mark="here"]')).to_have_attribute("data-steps", "3")
    expect(page.locator('#steps-legend li[data-mark="run"]')).to_have_attribute("data-steps", "12")


def test_a_file_that_the_page_loads_brings_its_runs_values_too(visit: Visit, explorer: Path, tmp_path: Path) -> None:
    page = visit(explorer)
    page.set_input_files("#file", measured_run(tmp_path))
    expect(page.locator('#steps-legend li[data-mark="run"]')).to_have_attribute("data-steps", "12")
    start = state_of(page)
    assert (start.values["I"], start.values["gamma"], start.values["R"]) == (12, 0.002, 300)


@pytest.mark.parametrize("width", [1400, 390])
def test_it_opens_with_the_bound_against_local_steps(visit: Visit, explorer: Path, width: int) -> None:
    page = visit(explorer, viewport={"width": width, "height": 900})
    page.wait_for_selector("#steps-field .best")
    boxes: dict[str, Any] = {
        name: page.locator(selector).bounding_box() or {}
        for name, selector in (("said", "#steps-said"), ("curve", "#steps-field"), ("slider", "#slide-I"))
    }
    best = page.locator("#steps-legend li[data-mark=best]").get_attribute("data-steps")
    expect(page.locator("#steps-said")).to_contain_text(f"least at I = {best}")
    assert boxes["said"]["y"] < boxes["curve"]["y"]
    assert boxes["curve"]["y"] + boxes["curve"]["height"] < 900
    if width == 1400:
        assert boxes["slider"]["x"] + boxes["slider"]["width"] < boxes["curve"]["x"]
        assert boxes["slider"]["y"] < 900
    else:
        assert boxes["curve"]["y"] < boxes["slider"]["y"]
    letters = page.evaluate(
        "() => { const svg = document.getElementById('steps-field'), unit = svg.clientWidth / 720;"
        " return [...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize) * unit); }"
    )
    assert min(letters) > 10


@pytest.mark.parametrize("width", [1280, 390])
def test_no_number_box_cuts_its_number(visit: Visit, explorer: Path, width: int) -> None:
    page = visit(explorer, viewport={"width": width, "height": 900})
    for value in (7.742956733703613, 1.2345678901234567e-7, 0.8285023256929006):
        page.evaluate("(value) => fedgauge.set({L_g: value, F: value, sigma: value})", value)
        cut = page.evaluate(
            "[...document.querySelectorAll('.control:not([hidden]) input[type=text]')]"
            ".filter(box => box.scrollWidth > box.clientWidth).map(box => box.id)"
        )
        assert cut == []
        assert page.input_value("#box-L_g") == page.evaluate("(value) => String(value)", value)


def test_where_nothing_is_finite_the_chart_says_so(visit: Visit, explorer: Path) -> None:
    page = visit(explorer)
    page.evaluate("fedgauge.set({F: Infinity})")
    expect(page.locator("#steps-said")).to_contain_text("nothing to draw")
    assert page.locator("#steps-field *").count() == 0
