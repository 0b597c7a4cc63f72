"""A number that a page boasts of is what the kept results say: each is computed here, and compared with every page."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import language_scores
from plans.federations import CASES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAPER = ROOT / "papers" / "wang2024" / "results"


def kept(name: str, place: Path = RESULTS) -> Any:
    return json.loads((place / name).read_text())


def plans(fresh: bool) -> tuple[int, int]:
    """How many plans there are, and how many of them are within 1.25 of the best cell."""
    wanted = {case.name for case in CASES.values() if case.fresh == fresh}
    rows = [row for row in kept("plan/numbers.json")["rows"] if row["case"] in wanted]
    return len(rows), sum(row["plan_judged"] <= 1.25 * row["best_judged"] for row in rows)


def sharpness() -> tuple[int, int]:
    """How many times sharper the star versions are on digits: the most, and the median."""
    versions = [line["versions"] for line in kept("certified/digits.json", PAPER)["lines"]]
    # Where there is no sharp version, it is the corrected one.
    ratios = [each.get("sharp", each["corrected"])["bound"] / each["star"]["bound"] for each in versions]
    return round(max(ratios)), round(statistics.median(ratios))


def gauge_errors() -> tuple[int, int, int]:
    """Median error, the error that nine of ten stay within, in percent, and how many predictions, all of them fresh."""
    numbers = kept("gauge/numbers.json")
    fresh = [part for name, part in numbers.items() if "developed" not in name and "of" not in part]
    errors = []
    for part in fresh:
        for cell in part["cells"]:
            for found in cell["gauge"]:
                for each in found["efficiency"]:
                    truth = cell["truth"][str(each["local_steps"])]
                    if truth < 6:
                        errors.append(None if each["limit"] else abs(1 / each["value"] / truth - 1))
    known = sorted(error for error in errors if error is not None)
    return round(100 * statistics.median(known)), round(100 * known[-(-9 * len(known) // 10) - 1]), len(errors)


def unequal() -> tuple[int, ...]:
    """On very unequal shards: how many intervals hold, of how many, and how far values are off."""
    found = kept("gauge/weighted.json")
    shares = (found[name] for name in ("held", "median error", "nine of ten within"))
    return sum(row["held"] for row in found["rows"]), len(found["rows"]), *(round(100 * share) for share in shares)


def recommendations() -> tuple[int, int]:
    """How many recommendations there are for fresh federations, and the percent that nine of ten lose at most."""
    losses = sorted(row["losses"]["gauge"] for row in kept("answer/answer.json")["sets"]["fresh"]["rows"])
    return len(losses), round(100 * losses[-(-9 * len(losses) // 10) - 1])


def regret(rule: str) -> tuple[int, int]:
    """The percent of time that a rule in charge of a run loses, in the median and in nine of ten cases at most."""
    found = kept("live/regret.json")["sets"]["fresh"]["summary"][rule]
    return round(100 * found["median"]), round(100 * found["nine of ten within"])


def verdicts() -> tuple[int, ...]:
    """How many of the paper's claims are reproduced, reproduced in order only, and not reproduced."""
    found = [claim["verdict"] for claim in kept("ledger.json", PAPER)["claims"]]
    kinds = ("reproduced", "reproduced in order but not in size", "not reproduced")
    return tuple(found.count(kind) for kind in kinds)


def rows(page: str, pattern: str) -> list[tuple[str, ...]]:
    """The rows of a page's tables that a pattern finds."""
    return [match.groups() for match in re.finditer(pattern, (RESULTS / page).read_text(), re.MULTILINE)]


def adapted() -> tuple[int, ...]:
    """Cells in which auto is within 1.10, all cells, and those in which tau is within 1.10 and misses its goal."""
    cells = rows("auto.md", r"\| (?:[\d.]+ \| ){5}\**([\d.]+)\** \| ([\d.]+)(\*?) \|$")
    reached = [float(tau) for _, tau, missed in cells if not missed]
    return (
        sum(float(auto) <= 1.1 for auto, *_ in cells),
        len(cells),
        sum(tau <= 1.1 for tau in reached),
        len(cells) - len(reached),
    )


def averaged() -> tuple[int, int]:
    """In how many cases an averaged state ends at the least loss of the three, and how many cases there are."""
    found = rows("optimiser-state.md", r"^\| (momentum 0.9|adamw), (?:reset|kept|averaged) \|(.*)\|$")
    losses = [[float(cell.replace("*", "").split()[0]) for cell in cells.split("|")] for _, cells in found]
    reset, held, mean = ([*losses[way], *losses[way + 3]] for way in range(3))
    return sum(own < min(others) for own, *others in zip(mean, reset, held, strict=True)), len(mean)


def of_language_models(*cells: tuple[int, str, str, int]) -> tuple[int, ...]:
    """The percent of the work that counts, by workers, division, outer step and local steps; over all seeds."""
    rows = language_scores.shown(kept("language/numbers.json")["rows"])
    names = ("workers", "split", "outer", "local_steps")
    found = ([row for row in rows if tuple(row[name] for name in names) == cell] for cell in cells)
    return tuple(round(100 * (language_scores.efficiency_of(each, "loss") or (0.0,))[0]) for each in found)


def test_a_round_takes_a_quarter_of_the_time_of_other_libraries() -> None:
    times: dict[tuple[str, str], float] = {}
    for workload, library, time in rows("speed.md", r"^\| (mlp|many) \| ([\w-]+) \| \d \w+ \| ([\d.]+) \|"):
        times[workload, library] = min(float(time), times.get((workload, library), float("inf")))
    assert len(times) == 12
    others = [(workload, time) for (workload, library), time in times.items() if library != "fedgauge"]
    assert all(times[workload, "fedgauge"] <= 0.25 * time for workload, time in others)
    for page in ("README.md", "docs/results/index.md"):
        assert "A round takes a quarter or less of the time" in " ".join((ROOT / page).read_text().split())


class Headline(NamedTuple):
    """A sentence with numbers, as a pattern with one group for each; the pages that have it; and what is true."""

    pattern: str
    pages: tuple[str, ...]
    truth: Callable[[], tuple[int, ...]]


HEADLINES = (
    Headline(
        r"AdamW: of the work, (\d+)% counts when models are averaged after 4 local steps, (\d+)% after 16,"
        r" (\d+)% after 64 and (\d+)% after 256",
        ("docs/results/language.md",),
        lambda: of_language_models(*((4, "role", "mean", steps) for steps in (4, 16, 64, 256))),
    ),
    Headline(
        r"four workers, AdamW: (\d+)% of the work counts with 16 local steps, (\d+)% with 256",
        ("docs/results/index.md",),
        lambda: of_language_models((4, "role", "mean", 16), (4, "role", "mean", 256)),
    ),
    Headline(
        r"With 64 local steps, two workers keep (\d+)%, and eight (\d+)%",
        ("docs/results/language.md",),
        lambda: of_language_models((2, "role", "mean", 64), (8, "role", "mean", 64)),
    ),
    Headline(r"up to (\d+) times sharper on digits \(median (\d+)\)", ("README.md",), sharpness),
    Headline(
        r"Of (\d+) plans on (?:10 )?federations that it was not developed on, (?:three costs and two seeds, )?(\d+)",
        ("README.md", "docs/results/plan.md"),
        lambda: plans(fresh=True),
    ),
    Headline(r"of (\d+) on the 14 that it was developed on, all", ("docs/results/plan.md",), lambda: plans(False)[:1]),
    Headline(
        r"its median error is (\d+)%, nine of ten of \d+ predictions are within (\d+)%",
        ("docs/results/gauge.md",),
        lambda: gauge_errors()[:2],
    ),
    Headline(
        r"(\d+) of (\d+) intervals \((\d+)%\) hold the truth, with a median error of (\d+)% and nine of ten within"
        r" (\d+)%",
        ("docs/results/gauge.md",),
        unequal,
    ),
    Headline(
        r"[Nn]ine of ten of (\d+) recommendations take at most (\d+)% longer",
        ("README.md", "docs/results/answer.md", "docs/results/index.md"),
        recommendations,
    ),
    Headline(r"43% \| \*\*(\d+)%, (\d+)%\*\*", ("docs/results/live.md",), lambda: regret("auto")),
    Headline(r"nine of ten of (\d+) predictions", ("docs/results/gauge.md",), lambda: gauge_errors()[2:]),
    Headline(
        r"its median error is (\d+)%. Nine of ten of (\d+) predictions are within (\d+)%",
        ("docs/results/index.md",),
        lambda: (gauge_errors()[0], gauge_errors()[2], gauge_errors()[1]),
    ),
    Headline(
        r"federations that it was not developed on, (\d+) of (\d+) are within 1.25",
        ("docs/results/index.md",),
        lambda: plans(fresh=True)[::-1],
    ),
    Headline(
        r"(\d+) are reproduced, (\d+) in order but not in size, and (\d+) are not",
        ("docs/results/index.md",),
        verdicts,
    ),
    Headline(
        r"within 1\.10 of the best fixed number in (\d+) of (\d+) cells,"
        r".* within 1\.10 in (\d+), and misses its goal in (\d+)",
        ("docs/results/index.md",),
        adapted,
    ),
    Headline(r"Averaging is best in (\d+) of (\d+) cases", ("docs/results/index.md",), averaged),
)


@pytest.mark.parametrize("headline", HEADLINES, ids=lambda each: each.pattern[:30])
def test_a_headline_is_what_the_results_say(headline: Headline) -> None:
    for page in headline.pages:
        text = " ".join((ROOT / page).read_text().split())
        found = re.findall(headline.pattern, text)
        assert found, f"{page} no longer says {headline.pattern}"
        for numbers in found:
            said = (numbers,) if isinstance(numbers, str) else numbers
            assert tuple(map(int, said)) == headline.truth(), page


def test_what_was_developed_on_was_planned_well() -> None:
    number, good = plans(fresh=False)
    assert good == number


WITHDRAWN = (
    r"\b144 plans",
    r"4 to 20 times sharper",
    r"about (?:two|three) runs' worth",
    r"from memory",
    r"many local steps are safe",
)


@pytest.mark.parametrize("claim", WITHDRAWN)
def test_what_was_withdrawn_stays_so(claim: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    assert not [page for page in pages if re.search(claim, " ".join(page.read_text().split()))]
