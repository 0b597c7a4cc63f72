"""What the pages of results show in tables is what the commands make of the kept numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gauge_page
import language_scores
from fedgauge_verification.campaign import Row
from fedgauge_verification.tables import cells
from gauge import summary
from plans import page as plan_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
FALSIFY = ROOT / "verification" / "results"


def kept(name: str) -> Any:
    return json.loads((RESULTS / name / "numbers.json").read_text())


def rows(text: str) -> dict[str, list[str]]:
    """The cells of every line of a table by its first cell, without what makes some of them bold."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\|(.+)\|$", text, re.MULTILINE):
        first, *others = (cell.strip().strip("*") for cell in line.split("|"))
        found.setdefault(first, []).extend(others)
    return found


# -- plans -------------------------------------------------------------------------------------------------------------


def test_both_tables_of_plans_are_those_of_the_kept_numbers() -> None:
    said = (RESULTS / "plan.md").read_text(encoding="utf-8").splitlines()
    numbers = kept("plan")
    for made in (plan_page.summary(numbers), plan_page.table(numbers)):
        place = said.index(made[0])
        assert said[place : place + len(made)] == made
        assert not said[place + len(made)].startswith("|")


def test_rows_of_new_plans_take_the_place_of_the_same_ones() -> None:
    numbers = kept("plan")
    before = next(row for row in numbers["rows"] if not row["replanned"] and row["truth"] == "page")
    same = {name: before[name] for name in ("case", "cost", "seed", "best", "best_cell", "best_judged", "fresh")}
    row = {**same, "best_steps": 5.0, "plan_judged": 1e9, "plan_choice": "I=1,gamma=1,eta=1,M=1", "plan_steps": 7}
    found = plan_page.taken_in(numbers, [{**row, "ending": "", "search_cost": None}])
    assert [plan_page._key(each) for each in found["rows"]] == [plan_page._key(each) for each in numbers["rows"]]
    (changed,) = (each for each in found["rows"] if plan_page._key(each) == plan_page._key(before))
    assert (changed["choice"], changed["steps"], changed["truth"]) == ("I=1,gamma=1,eta=1,M=1", 7, "page")
    assert changed["replanned"]
    # With a grid of its own, the best is no longer that of the page.
    found = plan_page.taken_in(numbers, [{**row, "ending": "", "search_cost": 3.0}])
    assert next(each for each in found["rows"] if each["steps"] == 7)["truth"] == "here"


# -- language models ---------------------------------------------------------------------------------------------------


def test_the_tables_of_language_models_are_those_of_the_kept_numbers() -> None:
    said = (RESULTS / "language.md").read_text(encoding="utf-8").splitlines()
    for made in language_scores.tables(kept("language")):
        place = said.index(made[0])
        assert said[place : place + len(made)] == made
        assert not said[place + len(made)].startswith("|")


def test_language_models_keep_what_is_known_when_nothing_new_is_there(tmp_path: Path) -> None:
    numbers = kept("language")
    found = language_scores.scored(tmp_path, numbers)
    assert {name: found[name] for name in ("rows", "live", "missing")} == {
        name: numbers[name] for name in ("rows", "live", "missing")
    }
    # What is kept of the laws follows from the rows, without those on which the laws are judged.
    names = ("workers", "split", "outer", "by", "law", "seeds")
    assert len(found["fits"]) == len(numbers["fits"])
    for made, known in zip(found["fits"], numbers["fits"], strict=True):
        assert [made[name] for name in names] == [known[name] for name in names]
        assert made["error of log E"] == pytest.approx(known["error of log E"], abs=1e-4)
        # With two workers under DiLoCo many pairs of H0 and p fit equally well: what they say of E is compared.
        for H in (16, 64, 256):
            foretold = [language_scores.predicted(fit["law"], fit["H0"], fit["shape"], H) for fit in (made, known)]
            assert foretold[0] == pytest.approx(foretold[1], abs=2e-3)


# -- the gauge ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", gauge_page.TABLES, ids=lambda names: names[0])
def test_the_tables_of_the_gauge_are_those_of_the_kept_numbers(names: tuple[str, ...]) -> None:
    text = (RESULTS / "gauge.md").read_text(encoding="utf-8")
    first, second = text.split("## Short runs")
    said = rows(second if names[0].startswith("short") else first)
    for head, made in rows("\n".join(gauge_page.lines(kept("gauge"), names)[2:])).items():
        # The first column of the first table is the version before, whose numbers are not kept.
        assert said[head][-len(names) :] == made, head


def test_what_a_set_of_federations_says_in_sum_follows_from_its_predictions() -> None:
    for part in kept("gauge").values():
        assert part["summary"] == pytest.approx(summary(part["cells"]))


def test_finished_sets_take_the_place_of_the_same_ones(tmp_path: Path) -> None:
    numbers = kept("gauge")
    one = {"fresh": {"summary": {}, "cells": numbers["fresh"]["cells"][:2]}}
    (tmp_path / "result.json").write_text(json.dumps(one))
    found = gauge_page.taken_in(numbers, tmp_path)
    assert list(found) == list(numbers)
    assert found["fresh"]["cells"] == one["fresh"]["cells"]
    assert found["fresh"]["summary"]["cells"] < numbers["fresh"]["summary"]["cells"]
    assert found["developed"] == numbers["developed"]
    assert found[gauge_page.CIFAR]["of"] == numbers[gauge_page.CIFAR]["of"]


# -- theorems ----------------------------------------------------------------------------------------------------------


def test_the_table_of_violations_is_that_of_the_kept_result() -> None:
    held = [Row(**row) for row in json.loads((FALSIFY / "falsify.json").read_text())["rows"]]
    made: list[list[str]] = []
    for row in held:
        if [row.theorem] not in made:
            made.append([row.theorem])
        made.append(" ".join(cells(row)).split())
    block = (FALSIFY / "falsify.md").read_text(encoding="utf-8").split("```")[1]
    said = [line.split() for line in block.splitlines() if line.strip()]
    assert said[2:] == made
