"""Whatever a file has become, reading it gives a report or one sentence, and never a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.made import measurement, write_measurement, write_run

from fedgauge.errors import InputError
from fedgauge.report.page.build import build
from fedgauge.report.page.findings import find

# What an entry may have become; None stands for a missing one too.
INSTEAD: tuple[Any, ...] = (None, "x", -1, 0, 1e308, float("inf"), float("nan"), [], {}, [1], True)
CURVE = {"mean": [2.0, 1.0], "deviation": [0.1, 0.2]}
SWEEP: dict[str, Any] = {
    "experiment": {"data": {"name": "digits"}, "algorithm": {"gamma": 0.1}},
    "over": {"local_steps": [1, 5]},
    "seeds": 2,
    "combinations": [
        {"values": {"local_steps": 1}, "loss": CURVE, "accuracy": CURVE},
        {"values": {"local_steps": 5}, "loss": None, "accuracy": None},
    ],
    "command": "fedgauge sweep",
}
for each in SWEEP["combinations"]:
    each |= {"diverged": 0, "rounds": [0, 1], "seconds": 1.5, "runs": []}


def entries(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in an object."""
    items = data.items() if isinstance(data, dict) else enumerate(data[:3]) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from entries(value, (*path, key))


@pytest.mark.parametrize("name", ["run/settings.json", "run/environment.json", "measure.json", "sweep.json"])
def test_a_file_in_any_state(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", rounds=4)
    write_measurement(tmp_path / "measure.json", measurement())
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    whole, rng = json.loads((tmp_path / name).read_text()), random.Random(name)
    places = list(entries(whole))
    shown, told = 0, []
    for _ in range(40):
        data, path = copy.deepcopy(whole), rng.choice(places)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = rng.choice(INSTEAD)
        (tmp_path / name).write_text(json.dumps(data))
        try:
            if name == "sweep.json":
                build(find(tmp_path / name))
            else:
                build(find(tmp_path / "run", tmp_path / "measure.json" if name == "measure.json" else None))
            shown += 1
        except InputError as error:
            told.append(str(error))
        except Exception as error:
            raise AssertionError(f"{path} = {holder}") from error
    assert shown > 0
    assert all(sentence.endswith((".", "?")) and "\n" not in sentence for sentence in told)


def test_a_sweep_of_which_all_runs_diverged(tmp_path: Path) -> None:
    data = copy.deepcopy(SWEEP)
    for each in data["combinations"]:
        each |= {"rounds": [], "loss": {"mean": [], "deviation": []}, "accuracy": None, "diverged": 2}
    (tmp_path / "result.json").write_text(json.dumps(data))
    assert build(find(tmp_path)).data["verdict"] == "None of 2 combinations has a loss to show."
