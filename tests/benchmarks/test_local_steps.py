"""The benchmark of rules: its version is frozen, and the rules that are entered run as any other."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

import fedgauge as fg
from local_steps import entries
from local_steps.run import entered, regret_of, score, show
from local_steps.tasks import HERE, VERSION, Task, tasks

DOCS = HERE.parents[1] / "docs" / "results"
DIGESTS = {1: "f87ef464686cda5be1bbba980e1a494194e4ed5ff6fb643d382f4afccda4da2b"}
"""A version never changes: other tasks, goals or times are another version, and so are rules of scoring."""
EASY = Task("easy", "during", {"source": "digits", "gamma": 0.3, "workers": 3, "scheme": "iid"}, 96, 1.5, {"10": 100.0})


def test_a_version_never_changes() -> None:
    content = (HERE / f"tasks-{VERSION}.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == DIGESTS[VERSION]
    assert [sum(each.track == track for each in tasks()) for track in ("before", "during")] == [15, 9]


def test_the_tasks_are_those_of_the_studies() -> None:
    kept = json.loads((DOCS / "answer" / "answer.json").read_text())["sets"]["fresh"]["rows"]
    times = {(row["federation"], f"{row['cost']:g}"): row["times"][str(row["best"])] for row in kept}
    assert times == {
        (task.name, cost): time for task in tasks() if task.track == "before" for cost, time in task.best.items()
    }
    other = json.loads((DOCS / "live" / "regret.json").read_text())["sets"]["fresh"]["rows"]
    during = {(task.name, cost) for task in tasks() if task.track == "during" for cost in task.best}
    assert during == {(row["federation"], f"{row['cost']:g}") for row in other}


@pytest.mark.parametrize(
    "rule",
    [
        entries.gauge,
        entries.one_epoch,
        entries.always_16,
        entries.qsr,
        entries.adacomm,
        entries.auto,
        entries.live_gauge,
    ],
    ids=lambda rule: rule.__name__,
)
def test_an_entry_gets_a_regret(rule: Callable[..., Any]) -> None:
    found = regret_of(rule, EASY, 10.0)
    assert math.isfinite(found["regret"])
    assert (found["spent"] > 0) == (rule is entries.gauge)


def test_more_communication_than_needed_is_regretted() -> None:
    one, many = (regret_of(lambda *_, steps=steps: steps, EASY, 10.0)["regret"] for steps in (1, 8))
    assert one > many


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(fg.InputError, match="at least 1 local step, not 0"):
        regret_of(lambda *_: 0, EASY, 10.0)


def test_failures_are_counted_and_not_averaged_away() -> None:
    found = score([0.0, 0.5, math.inf])
    assert (found["median"], found["nine of ten within"], found["failures"]) == (0.5, math.inf, 1)


def test_the_page_shows_the_scores(capsys: pytest.CaptureFixture[str]) -> None:
    show(entered())
    page = (DOCS / "local-steps-benchmark.md").read_text(encoding="utf-8")
    for line in capsys.readouterr().out.splitlines():
        assert line in page
