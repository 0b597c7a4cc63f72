"""The decisive study: how federations are chosen, how answers and regrets are computed, and a small run of it."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.measurement.gauge.curves import crossing
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.options import Compute
from fedgauge_wang2024.decisive import page
from fedgauge_wang2024.decisive.answers import (
    MeasureName,
    MeasureScore,
    Sampled,
    grid_of,
    mixed,
    ordered_pairs,
    pairs_alike,
    partial,
    within,
    words_for,
)
from fedgauge_wang2024.decisive.cell import _first_order
from fedgauge_wang2024.decisive.federations import SOURCES, STRENGTHS, federations
from fedgauge_wang2024.decisive.regret import calibrate, halves, regrets, times_of
from fedgauge_wang2024.decisive.study import concluded, read_study, run_study


@pytest.fixture(autouse=True)
def few_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgauge_wang2024.decisive.regret.HALVES", 4)


# -- federations and cells ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_every_federation_can_be_made_of_keys_that_an_experiment_has(source: str) -> None:
    made = SOURCES[source]
    Experiment.of({**made.keys, "seed": 0})
    names = [each.name for each in federations(made)]
    assert len(set(names)) == len(names)
    assert set(made.kinds) <= set(STRENGTHS)


def test_a_crossing_lies_between_two_records() -> None:
    assert crossing([0, 4, 8], [2.0, 1.0, 0.5], 0.75) == pytest.approx(6.0)
    assert crossing([0, 4], [2.0, 1.0], 3.0) == 0.0
    assert math.isinf(crossing([0, 4], [2.0, math.nan], 0.5))


def test_the_first_order_drift_is_that_of_dense_matrices() -> None:
    """Against Hessians as whole matrices, on softmax regression with two features."""
    import torch

    keys = {"source": "digits", "gamma": 0.1, "model": "softmax", "workers": 3, "scheme": "dirichlet", "seed": 1}
    federation: Any = prepare(Experiment.of({**keys, "processes": 1})).federation
    model = federation.start(1)
    everyone = np.arange(3)
    slopes = federation.gradients(model.expand(3, -1), everyone).double()
    gaps = slopes - slopes.mean(dim=0)
    turned = torch.zeros(len(model), dtype=torch.float64)
    for worker in range(3):
        # A product with the Hessian by a central difference of gradients.
        step = 1e-2 * gaps[worker].to(model)
        ends = [federation.gradients((model + sign * step)[None], everyone[[worker]])[0] for sign in (1, -1)]
        turned += (ends[0] - ends[1]).double() / 2e-2 / 3
    expected = float(turned.norm() / slopes.mean(dim=0).norm())
    with Meter(federation, compute=Compute(processes=1)) as meter:
        # The difference has an error of 1e-4 times third derivatives, and that of float32 gradients over 2e-2.
        assert _first_order(meter, model) == pytest.approx(expected, rel=1e-3)


# -- answers -----------------------------------------------------------------------------------------------------------


def cell(
    name: str, kind: str | None, seed: int, harm: float | None, designed: bool | None = None, **shown: float
) -> Any:
    """A cell whose slowdown is the same for every number of local steps, and so is the gauge."""
    seen = {"zeta_rms": 1.0, "L_h seen": 1.0, "zeta_rms · L_h seen": 1.0, **shown}
    made = {
        "federation": name,
        "kind": kind,
        "strength": 0.5,
        "seed": seed,
        "slowdown": dict.fromkeys(("10", "40", "160"), harm),
        "lenses": {"first": seen, "along": seen, "end": seen},
        "labels": {"label_js": 0.1},
        "gauge": dict.fromkeys(("10", "40", "160"), min(harm or 5.0, 5.0)),
    }
    return made if designed is None else {**made, "designed": {"zeta": 1.0, "found": 1.0, "reached": designed}}


def study(seeds: int = 3, noise: float = 0.0) -> list[Any]:
    """Two kinds in which L_h orders everything; zeta only orders within a kind, and is the same for both kinds."""
    generator = np.random.default_rng(0)
    cells = []
    for seed in range(seeds):
        plain: dict[str, Any] = {"zeta_rms": 0.1, "L_h seen": 0.1, "zeta_rms · L_h seen": 0.01}
        cells.append(cell("iid", None, seed, 1.0, **plain))
        for kind, factor in (("a", 1.0), ("b", 2.0)):
            for strength in (1, 2, 3, 4):
                harm = 1 + factor * strength * (1 + noise * generator.normal())
                shown: dict[str, Any] = {"zeta_rms": float(strength), "L_h seen": 1 + factor * strength}
                shown["zeta_rms · L_h seen"] = shown["zeta_rms"] * shown["L_h seen"]
                over = None if harm > 8 else harm
                cells.append(cell(f"{kind} {strength}", kind, seed, over, **shown))
    return cells


def test_a_lens_that_orders_everything_has_tau_one_and_one_that_sees_no_kind_does_not() -> None:
    grid = grid_of(study())
    sampled = Sampled(grid)
    L_h, zeta = MeasureName("L_h seen", "along"), MeasureName("zeta_rms", "along")
    assert mixed(sampled, L_h, "40") == pytest.approx(1.0, abs=0.05)
    assert within(sampled, zeta, "40")[0] == pytest.approx(1.0)
    assert mixed(sampled, zeta, "40")[0] < 0.9
    assert sampled.answer(mixed(sampled, zeta, "40")).low == pytest.approx(mixed(sampled, zeta, "40")[0])
    # Four pairs of equal zeta, one for each strength, all of which L_h orders, and zeta none.
    pairs = pairs_alike(grid)
    assert [(grid.names[one], grid.names[other]) for one, other in pairs] == [(f"a {k}", f"b {k}") for k in range(1, 5)]
    assert ordered_pairs(sampled, L_h, "40", pairs)[0] == 1.0
    assert ordered_pairs(sampled, zeta, "40", pairs)[0] == 0.5
    found = concluded({"cap": 5, "local_steps": [10, 40, 160]}, study())["answers"]
    assert found["verdict"]["numbers"]["L_h given zeta"][0] > 0.9
    assert found["verdict"]["words"] == "L_h adds to zeta"  # there are no designed federations
    # Within one kind both orders are right, so that leaving out the other leaves no difference.
    assert {row["without"] for row in found["without a kind"]} == {"a", "b"}
    assert all(row["difference"] == [0.0, 0.0, 0.0] for row in found["without a kind"])


def test_designed_federations_count_only_at_equal_zeta() -> None:
    cells = study()
    for seed, (kind, harm, reached) in itertools.product(
        range(3), (("a", 1.0, True), ("b", 2.0, True), ("c", 3.0, True), ("d", 9.0, False))
    ):
        shown = {"L_h seen": harm, "zeta_rms · L_h seen": harm}
        cells.append(cell(f"{kind} at equal zeta", kind, seed, harm, reached, **shown))
    found = concluded({"cap": 5, "local_steps": [10, 40, 160]}, cells)["answers"]
    assert found["equal"] == ["a at equal zeta", "b at equal zeta", "c at equal zeta"]
    assert found["not reached"] == ["d at equal zeta"]
    rows = {(row["lens"], row["place"], row["local_steps"]): row for row in found["orders"]}
    assert rows["L_h seen", "along", 40]["equal zeta"][0] == 1.0
    assert rows["zeta_rms", "along", 40]["equal zeta"][0] == 0.0
    plain = concluded({"cap": 5, "local_steps": [10, 40, 160]}, study())["answers"]
    assert rows["L_h seen", "along", 40]["mixed"] == plain["orders"][1 * 3 + 1]["mixed"]
    assert found["verdict"]["words"] == "L_h decides"


@given(st.floats(-0.9, 0.9), st.floats(-0.9, 0.9))
def test_partial_tau_of_unrelated_lenses_is_that_of_a_correlation(one: float, other: float) -> None:
    assert partial(np.array(one), np.array(other), np.array(0.0)) == pytest.approx(one / math.sqrt(1 - other**2))
    # What one says through the other alone is nothing by itself.
    assert partial(np.array(one * other), np.array(one), np.array(other)) == pytest.approx(0.0, abs=1e-12)


OUTCOMES = [
    ({"L_h - zeta": 1, "L_h given zeta": 1, "L_h at equal zeta": 1}, "L_h decides"),
    ({"L_h - zeta": 1, "L_h given zeta": 1, "L_h at equal zeta": 0}, "L_h adds to zeta"),
    ({"L_h - zeta": -1, "zeta given L_h": 1}, "zeta decides"),
    ({"L_h - zeta": -1, "zeta given L_h": 1, "product - zeta": 1}, "zeta decides; L_h adds to zeta"),
    ({}, "this experiment does not separate them"),
]


@pytest.mark.parametrize(("signs", "words"), OUTCOMES, ids=[words for _, words in OUTCOMES])
def test_the_words_are_those_of_the_plan(signs: dict[str, int], words: str) -> None:
    sure = {1: MeasureScore(0.5, 0.1, 0.9), 0: MeasureScore(0.1, -0.2, 0.4), -1: MeasureScore(-0.5, -0.9, -0.1)}
    names = ("L_h - zeta", "product - zeta", "L_h given zeta", "zeta given L_h", "L_h at equal zeta")
    assert words_for({name: sure[signs.get(name, 0)] for name in names}) == words
    assert words_for({name: MeasureScore(0.9, None, None) for name in names}) == OUTCOMES[-1][1]


STORED = Path(__file__).parents[1] / "results"


@pytest.mark.parametrize("source", ["digits", "mnist"])
def test_what_the_page_says_follows_from_the_stored_cells(source: str) -> None:
    held = json.loads((STORED / "decisive" / f"{source}.json").read_text())
    sampled = Sampled(grid_of(held["cells"]), draws=1)
    rows = [row for row in held["answers"]["orders"] if row["local_steps"] == 40 and row["place"] == "along"]
    assert len(rows) > 10
    for row in rows:
        # Cells are stored with six digits, of which the last may make or break a tie.
        assert mixed(sampled, MeasureName(row["lens"], "along"), "40")[0] == pytest.approx(row["mixed"][0], abs=0.01)
    outcome = held["answers"]["verdict"]
    assert words_for({name: MeasureScore(*each) for name, each in outcome["numbers"].items()}) == outcome["words"]
    said = " ".join((STORED / "decisive.md").read_text("utf-8").split())
    assert f'"{outcome["words"]}"' in said
    assert all(f"| {row['lens']} | " in said for row in rows)


# -- regret ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(1, 9), min_size=3, max_size=3)), min_size=1, max_size=7)
)
def test_a_calibrated_rule_is_the_best_of_all_rules(rows: list[tuple[int, list[int]]]) -> None:
    """Against all thresholds, in both directions, by enumeration."""
    values = np.array([value for value, _ in rows], float)
    times = np.array([each for _, each in rows], float)
    rule = calibrate(values, times)
    chosen = rule.choose(values)
    found = np.log(times[np.arange(len(values)), chosen]).mean()
    assert found == pytest.approx(rule.loss)
    cuts = [-1.0, *(k + 0.5 for k in range(-1, 6)), 9.0]
    best = math.inf
    for low, high in itertools.combinations_with_replacement(cuts, 2):
        for sign in (1, -1):
            down = (values > low).astype(int) + (values > high)
            choice = 2 - down if sign == 1 else down
            best = min(best, float(np.log(times[np.arange(len(values)), choice]).mean()))
    assert found == pytest.approx(best)


def test_regret_is_0_for_a_lens_that_knows_and_for_a_gauge_that_is_right() -> None:
    """Runs differ only between two kinds of federations, of which one affords every local step and one none."""
    cells = []
    for seed, number in itertools.product(range(2), range(8)):
        slow = number % 2 == 1
        shown: dict[str, Any] = {"L_h seen": float(slow)}
        cells.append(cell(f"f {number}", f"k{number // 2}", seed, None if slow else 1.0, **shown))
    grid = grid_of(cells)
    times = times_of(grid, 10, 5)
    assert times[0, 0] == pytest.approx([11, 2, 1.25, 1.0625])
    assert times[1, 0] == pytest.approx([11, 10, 6.25, 5.3125])
    rows = {(row["lens"], row["place"], row["cost"], row["new kinds"]): row["regret"] for row in regrets(grid, 5)}
    assert rows["L_h seen", "along", 1, False][0] == rows["gauge", "", 1, False][0] == 0.0
    # At a cost of 1, no local steps take 2 where 160 take 5 · (1 + 1/160), and 160 take 1 + 1/160 where they pay.
    single = {True: 5 * (1 + 1 / 160) / 2 - 1, False: 2 / (1 + 1 / 160) - 1}
    # Every half of the kinds has as many of both, so that the choice is the same in all halves.
    assert rows["best single I", "", 1, True][0] in (
        pytest.approx(single[True] / 2),
        pytest.approx(single[False] / 2),
    )
    for mine, other in halves(grid, by_kind=True):
        assert {grid.kinds[k] for k in mine}.isdisjoint(grid.kinds[k] for k in other)
        assert len(mine) + len(other) == 8


# -- the whole ---------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"steps": 24, "records": 6, "local_steps": [4, 8, 12], "lens_steps": 4, "gauge_budget": 8}


def test_a_small_study_is_resumed_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedgauge_wang2024.decisive.answers.MAIN", ("8", "along", "zeta_rms", "L_h seen"))
    monkeypatch.setattr("fedgauge_wang2024.decisive.page.MAIN", ("8", "along", "zeta_rms", "L_h seen"))
    keys = {**SOURCES["digits"].keys, "workers": 3, "per_worker": 20, "model": "softmax"}
    changes = {**SMALL, "keys": keys, "delta_places": [], "hessian_places": ["along"], "hessian_examples": 4}
    told: list[tuple[str, int, int]] = []
    how: dict[str, Any] = {"kinds": ["gain"], "designed": False, "keep": tmp_path, "changes": changes}
    one = Compute(processes=1)
    found = run_study("digits", seeds=1, compute=one, progress=lambda *each: told.append(each), **how)
    assert told[0] == ("starting", 0, 5)
    assert [cell["federation"] for cell in found["cells"]] == ["iid", *(f"gain {s:g}" for s in STRENGTHS["gain"])]
    last = found["cells"][-1]
    assert set(last["slowdown"]) == set(last["gauge"]) == {"4", "8", "12"}
    assert {"L_h", "L_h seen", "first-order drift", "zeta_rms · L_h"} <= set(last["lenses"]["along"])
    assert "L_h" not in last["lenses"]["first"]
    told.clear()
    again = run_study("digits", seeds=1, compute=one, progress=lambda *each: told.append(each), **how)
    assert told == [("starting", 5, 5)]
    assert again == found
    page.show(found)
    assert "By the rules that were fixed beforehand" in capsys.readouterr().out
    page.draw(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10000
    assert page.markdown(found).count("| gain 0.25 | 0.25 |") == 1
    with pytest.raises(InputError, match="no kind 'blur'"):
        run_study("digits", kinds=["blur"])
    assert main(["paper", "decisive", "--source", "fashion"]) == 2


# -- the page ----------------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[1] / "results"


def _rows(text: str) -> set[str]:
    """The rows of all tables in Markdown, without their heads."""
    return {
        line for table in re.findall(r"^\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE) for line in table.splitlines()
    }


def test_every_row_of_the_page_is_made_from_a_kept_result() -> None:
    made = [page.markdown(read_study(RESULTS / "decisive" / f"{name}.json")) for name in ("digits", "mnist", "cifar10")]
    said = _rows((RESULTS / "decisive.md").read_text(encoding="utf-8"))
    assert len(said) > 150
    assert said <= set().union(*map(_rows, made))


def test_the_page_of_a_kept_result_is_made_again_without_running_anything(tmp_path: Path) -> None:
    kept = RESULTS / "decisive" / "cifar10.json"
    assert main(["paper", "decisive", "--result", str(kept), "--out", str(tmp_path), "--json"]) == 0
    assert (tmp_path / "decisive.md").read_text(encoding="utf-8") == page.markdown(json.loads(kept.read_text()))
    assert json.loads((tmp_path / "decisive.json").read_text()) == json.loads(kept.read_text())
    assert main(["paper", "decisive", "--result", str(RESULTS / "lenses.json")]) == 2
