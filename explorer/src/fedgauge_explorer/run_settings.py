"""What a file of measured constants says about the run that it belongs to: its local steps, rates and first loss.

``fedgauge measure`` writes the experiment beside the constants, and the model that it measured at. Where that model
lies in a run directory of the same federation, the run's first record gives f(x0), and with it F.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedgauge.algorithms import is_plain
from fedgauge.base.errors import InputError
from fedgauge.federation.participation import Sampling
from fedgauge.theory import covering
from fedgauge.theory.inputs import rule
from fedgauge.values import Estimate, initial_gap

_RATES = ("gamma", "eta", "beta", "beta1", "beta2", "tau")


def _part(data: Any, name: str) -> Mapping[str, Any]:
    found = data.get(name) if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _settings(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """The file's sections on the algorithm, the run and the participation; an experiment's come first."""
    settings = _part(raw, "settings")
    experiment = _part(settings, "experiment")
    return (
        _part(experiment, "algorithm") or _part(settings, "algorithm"),
        _part(experiment, "run") or settings,
        _part(experiment, "participation") or _part(settings, "participation"),
    )


def own_values(raw: Mapping[str, Any]) -> dict[str, float]:
    """Return the counts and rates of the run that the constants were measured for, as far as the file says.

    >>> own_values({"settings": {"experiment": {"algorithm": {"gamma": 0.1}, "run": {"local_steps": 10}}}})
    {'I': 10, 'gamma': 0.1}
    """
    algorithm, run, participation = _settings(raw)
    settings = _part(raw, "settings")
    found: dict[str, Any] = {
        "N": settings.get("num_workers"),
        "M": participation.get("participants"),
        "I": run.get("local_steps"),
        "R": run.get("rounds"),
        **{name: algorithm.get(name) for name in _RATES},
    }
    return {name: value for name, value in found.items() if _allowed(name, value)}


def _allowed(name: str, value: Any) -> bool:
    """Whether a value is one that a slider can hold; local steps may also be a list, or adapt themselves."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return bool(np.all(rule(name, np.asarray(value, dtype=float))[1]))


def own_theorem(raw: Mapping[str, Any]) -> str | None:
    """Return the theorem that covers the run, where there is one and the file says which algorithm it was.

    >>> own_theorem({"settings": {"algorithm": {"name": "fedadam"}}})
    'fedadam'
    """
    algorithm, _, participation = _settings(raw)
    if not is_plain(algorithm):
        return None  # no theorem is about local optimisers or schedules
    sampling = participation.get("sampling") or ("with-replacement" if participation.get("participants") else "full")
    theorem = covering(str(algorithm.get("name", "")), cast(Sampling, sampling))  # an unknown one has no theorem
    return None if theorem is None else theorem.name


def _first_loss(path: Path, raw: Mapping[str, Any]) -> float | None:
    """f(x0): where it was measured at the first model, or from the records of the run that the file belongs to."""
    from fedgauge.simulation.runs.manifest import altered
    from fedgauge.simulation.runs.reader import read_run

    point, origin = _part(raw, "point"), str(_part(raw, "point").get("origin", ""))
    if origin == "first model" and isinstance(point.get("loss"), int | float):
        return float(point["loss"])
    for directory in (Path(origin).parent, path.parent):
        if not (directory / "rounds.jsonl").exists():
            continue
        try:
            run = read_run(directory, model=False)
            if altered(directory, ["rounds.jsonl", "settings.json"]):
                continue  # whatever the file says, it is not what the run wrote
        except InputError:
            continue
        same = run.settings.get("federation") == _part(raw, "settings").get("federation")
        if same and run.rounds and run.rounds[0].round == 0:
            return float(run.rounds[0].loss)
    return None


def own_gap(path: Path, raw: Mapping[str, Any]) -> Estimate | None:
    """Return F of the run, where f(x0) is known and f* is bounded from below.

    The losses of data sets are never negative, so that f* is at least 0; of quadratics f* must be among the constants.
    """
    loss = _first_loss(path, raw)
    if loss is None or not np.isfinite(loss):
        return None
    least = _part(_part(raw, "constants"), "f_star")
    if {"low", "high"} <= set(least):
        return initial_gap(loss, float(least["low"]), float(least["high"]))
    data = _part(_part(_part(raw, "settings"), "experiment"), "data")
    quadratic = str(data.get("name", ".json")).endswith(".json")
    return None if quadratic else initial_gap(loss, 0.0)
