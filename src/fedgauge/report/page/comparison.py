"""A theorem beside the run that it speaks of: what the measured constants promise, and what happened.

Nothing here is a formula: the theorem that covers the run is looked up and evaluated by :mod:`fedgauge.theory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.errors import InputError
from fedgauge.planning.theorem_inputs import look_up
from fedgauge.runs.reader import FoundRun
from fedgauge.theory import THEOREMS, covering, find
from fedgauge.theory.answer import Answer, answer
from fedgauge.values import Constants, Estimate, Kind, Version, initial_gap
from fedgauge.web.writing import shown

_BOUNDED = "min_r E|grad f(xbar^r)|^2"
_VERSIONS: tuple[Version, ...] = ("corrected", "printed", "sharp", "prior")
_POINTS = 120  # of a bound's curve: it is smooth
_AROUND = 4  # times the run's own local steps to which the terms are shown


@dataclass(frozen=True)
class Comparison:
    """A theorem's versions at the measured constants, over the rounds and over local steps.

    Attributes:
        theorem: its name.
        answers: each version at the run's own numbers.
        constants: that were put in.
        rounds: numbers of rounds R.
        totals: of each version, the bound after each of them.
        records: rounds r + 1 of the run's records, each as the R that it is the last before.
        least: the least squared gradient norm recorded in rounds r < R, at each of those.
        local_steps: numbers of local steps.
        terms: of the corrected version, each term's values at each of them.
        admitted: the most of these local steps that the corrected conditions admit; None where they admit none.
    """

    theorem: str
    answers: Mapping[Version, Answer]
    constants: Constants
    rounds: tuple[int, ...]
    totals: Mapping[Version, tuple[float, ...]]
    records: tuple[int, ...]
    least: tuple[float, ...]
    local_steps: tuple[int, ...]
    terms: Mapping[str, tuple[float, ...]]
    admitted: int | None

    @property
    def corrected(self) -> Answer:
        """The version that is known to hold."""
        return self.answers["corrected"]

    @property
    def reached(self) -> float:
        """What the theorem bounds, as it was measured at the end of the run."""
        return self.least[-1]

    @property
    def words(self) -> str:
        """Both, and what the bound is worth, in a part of a sentence."""
        total = float(self.corrected.bound.total)
        standing = {"plug-in": "a plug-in", "not certified": "not certified, as a condition fails"}
        times = f", {shown(total / self.reached)} times as much" if self.reached > 0 and np.isfinite(total) else ""
        return (
            f"the least squared gradient norm before the last round was {shown(self.reached)}, where"
            f" {find(self.theorem).locator} with the measured constants says at most {shown(total)}{times}"
            f" ({standing.get(self.corrected.standing, 'certified')})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what is shown as an object."""
        return {
            "theorem": self.theorem,
            "versions": {version: one.to_json() for version, one in self.answers.items()},
            "constants": {symbol: estimate.to_json() for symbol, estimate in self.constants.items()},
            "least": self.reached,
            "admitted": self.admitted,
        }


def compare(run: FoundRun, constants: Constants, num_workers: int | None, least: float | None = None) -> Comparison:
    """Put a run beside the theorem that covers it, or say in one sentence why none does.

    Args:
        run: its settings and records.
        constants: that were measured.
        num_workers: N.
        least: f*, where it is known.
    """
    theorem, values = _asked(run, num_workers)
    if not run.rounds:
        raise InputError("The run has no records yet, so that there is nothing to compare; run it further.")
    known = _with_gap(run, constants, least)
    statement = find(theorem)
    kinds: dict[str, Kind] = {}
    used: dict[str, Estimate] = {}
    for symbol in dict.fromkeys(name for version in statement.versions for name in statement.needed(version)):
        given = look_up(known, symbol) if symbol not in values else None
        if given is not None:
            values[symbol], kinds[symbol] = given.at("value"), given.estimate.kind
            used[given.estimate.symbol] = given.estimate
    missing = [symbol for symbol in statement.needed("corrected") if symbol not in values and symbol != "R"]
    if missing:
        raise InputError(
            f"{statement.locator} cannot be evaluated, as {', '.join(missing)} was not measured; 'fedgauge measure'"
            " says what each reading gives."
        )
    versions = [
        version
        for version in _VERSIONS
        if version in statement.versions and all(name in {*values, "R"} for name in statement.needed(version))
    ]
    last = max(run.rounds[-1].round, 1)
    answers = {version: answer(theorem, version, kinds, **{**values, "R": last}) for version in versions}
    if answers["corrected"].bound.quantity != _BOUNDED:
        raise InputError(
            f"{statement.locator} bounds {answers['corrected'].bound.quantity}, which a run does not record."
        )
    rounds = np.unique(np.geomspace(1, last, _POINTS).round())
    totals = {
        version: tuple(
            np.broadcast_to(statement.evaluate(version, **{**values, "R": rounds}).total, rounds.shape).tolist()
        )
        for version in versions
    }
    steps = np.unique(np.geomspace(1, max(_AROUND * values["I"], 16), 48).round())
    over = statement.evaluate("corrected", **{**values, "R": last, "I": steps})
    admitted = steps[np.broadcast_to(over.admissible, steps.shape)]
    # A theorem for R rounds speaks of the models before them.
    before = [record for record in run.rounds if record.round < last] or list(run.rounds[:1])
    return Comparison(
        theorem,
        answers,
        Constants(tuple(used.values())),
        tuple(int(number) for number in rounds),
        totals,
        tuple(record.round + 1 for record in before),
        tuple(np.minimum.accumulate([record.grad2 for record in before]).tolist()),
        tuple(int(number) for number in steps),
        {t.name: tuple(np.broadcast_to(t.value, steps.shape).tolist()) for t in over.terms},
        int(admitted.max()) if admitted.size else None,
    )


def _asked(run: FoundRun, num_workers: int | None) -> tuple[str, dict[str, Any]]:
    """The theorem that covers what was asked, with the numbers that were."""
    settings = run.settings
    algorithm, participation = dict(settings["algorithm"]), settings["participation"]
    name = str(algorithm.pop("name"))
    if covering(name) is None:
        covered = dict.fromkeys(theorem.algorithm for theorem in THEOREMS.values())
        raise InputError(f"No theorem here covers {name}; there are theorems about {', '.join(covered)}.")
    if settings["local_steps"] is None:
        raise InputError("The run does not say how many local steps its workers made, which the theorems need.")
    if isinstance(settings["local_steps"], Mapping):
        raise InputError("No theorem here covers local steps that adapt themselves.")
    if isinstance(settings["local_steps"], list):
        raise InputError("No theorem here covers workers that make different numbers of local steps.")
    if participation.get("weights") is not None:
        raise InputError("The theorems speak of workers that count alike, and this run weighs them.")
    if num_workers is None:
        raise InputError("The number of workers is not known, as the data cannot be read; the theorems need it.")
    sampling = participation.get("sampling", "full")
    theorem = covering(name, sampling)
    if theorem is None:
        raise InputError(f"No theorem here covers {name} with the sampling {sampling}.")
    values = {"I": settings["local_steps"], "N": num_workers, **algorithm, "M": participation.get("participants")}
    taken = {*theorem.needs, *theorem.optional}
    return theorem.name, {symbol: value for symbol, value in values.items() if symbol in taken}


def _with_gap(run: FoundRun, constants: Constants, least: float | None) -> Constants:
    """The constants with F: from f* where that is known, and at most the first loss where no loss is below 0."""
    first = run.rounds[0]
    quadratic = str(run.experiment.get("data", {}).get("name", ".json")).endswith(".json")
    if "F" in constants or first.round != 0:
        return constants
    if least is not None:
        gap = initial_gap(first.loss, least, least)
    elif not quadratic and min(record.loss for record in run.rounds) >= 0:
        gap = initial_gap(first.loss, 0.0)
    else:
        return constants
    return Constants((*constants.values(), gap))
