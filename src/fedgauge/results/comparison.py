"""A theorem beside the run that it covers: what the measured constants promise, and what happened.

No formula is written here: the theorem that covers the run is looked up, and :mod:`fedgauge.theory` evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.algorithms import is_plain
from fedgauge.errors import InputError
from fedgauge.planning.theorem_inputs import look_up
from fedgauge.runs.reader import FoundRun
from fedgauge.theory import THEOREMS, covering, find
from fedgauge.theory.answer import Answer, bound
from fedgauge.values import Constants, Estimate, Kind, Subject, Version, initial_gap

_BOUNDED = "min_r E|grad f(xbar^r)|^2"
_VERSIONS: tuple[Version, ...] = ("star", "corrected", "printed", "sharp", "prior")
_POINTS = 120  # of a bound's curve: it is smooth
_RECOMPUTED = "F was computed again for this run, because the measured one"
_AROUND = 4  # the terms are shown up to this many times the run's own local steps


@dataclass(frozen=True)
class Comparison:
    """A theorem's versions at the measured constants, over the rounds and over local steps.

    Attributes:
        theorem: its name.
        locator: where the paper has it.
        run_steps: the run's own local steps I.
        answers: each version at the run's own numbers.
        constants: the constants that entered the bound.
        rounds: numbers of rounds R.
        totals: for each version, the bound after each of these numbers of rounds.
        records: for each record of the run, its round plus one: the R for which it is the last model that counts.
        least: the least squared gradient norm recorded in rounds r < R, for each R of ``records``.
        local_steps: numbers of local steps.
        terms: the terms of the version that is shown in full, each with its values at ``local_steps``.
        admitted: the largest of ``local_steps`` that its conditions admit; None where they admit none.
        notes: why a constant counts for less here than where it was measured, or was computed again.
    """

    theorem: str
    locator: str
    run_steps: int
    answers: Mapping[Version, Answer]
    constants: Constants
    rounds: tuple[int, ...]
    totals: Mapping[Version, tuple[float, ...]]
    records: tuple[int, ...]
    least: tuple[float, ...]
    local_steps: tuple[int, ...]
    terms: Mapping[str, tuple[float, ...]]
    admitted: int | None
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """The version that is shown in full: the sharpest that is known to hold."""
        return self.answers[find(self.theorem).default]

    @property
    def reached(self) -> float:
        """What the theorem bounds, as it was measured at the end of the run."""
        return self.least[-1]

    def to_json(self) -> dict[str, Any]:
        """Return what is shown as an object."""
        return {
            "theorem": self.theorem,
            "versions": {version: one.to_json() for version, one in self.answers.items()},
            "constants": {symbol: estimate.to_json() for symbol, estimate in self.constants.items()},
            "least": self.reached,
            "admitted": self.admitted,
            "notes": list(self.notes),
        }


def subject_of(run: FoundRun) -> Subject:
    """What a bound on a run speaks about, as far as the run says it: a first model that was not chosen is the seed's.

    What the run does not say is an empty text, to which no constant belongs.
    """
    settings = run.settings
    start, seed = settings.get("start"), settings.get("seed")
    federation = str(settings.get("federation") or "")
    if isinstance(start, str):
        return Subject(federation, start)
    return Subject(federation, seed=seed) if isinstance(seed, int) else Subject(federation, start="")


def compare(
    run: FoundRun,
    constants: Constants,
    num_workers: int | None,
    gap: Callable[[Constants], Estimate | None] = lambda constants: None,
) -> Comparison:
    """Put a run beside the theorem that covers it, or say in one sentence why none does.

    Args:
        run: its settings and records.
        constants: the measured constants.
        num_workers: N; None where it is not known.
        gap: proves F of the run, given the constants that belong to it; it returns None where that is not possible.
    """
    theorem, values = _theorem_of(run, num_workers)
    if any(record.sample is not None for record in run.rounds):
        raise InputError(
            "The run's records are made from a sample of the examples, and a bound is about all of them; run it with"
            " record_every=1, or every few rounds."
        )
    if not run.rounds:
        raise InputError("The run has no records yet, so there is nothing to compare; let it run further.")
    fitted, notes = constants.fitted(subject_of(run))
    known = _with_gap(run, fitted, gap)
    if "F" in known and known["F"].kind != "assumed":
        notes = tuple(note.replace("F counts as assumed, because it", _RECOMPUTED) for note in notes)
    statement = find(theorem)
    kinds: dict[str, Kind] = {}
    used: dict[str, Estimate] = {}
    for symbol in dict.fromkeys(name for version in statement.versions for name in statement.needed(version)):
        given = look_up(known, symbol) if symbol not in values else None
        if given is not None:
            values[symbol], kinds[symbol] = given.at("value"), given.estimate.kind
            used[given.estimate.symbol] = given.estimate
    missing = [symbol for symbol in statement.needed(statement.default) if symbol not in values and symbol != "R"]
    if missing:
        raise InputError(
            f"{statement.locator} cannot be evaluated because {', '.join(missing)} was not measured; 'fedgauge measure"
            " --help' says what each reading gives."
        )
    versions = [
        version
        for version in _VERSIONS
        if version in statement.versions and all(name in {*values, "R"} for name in statement.needed(version))
    ]
    last = max(run.rounds[-1].round, 1)
    answers = {version: bound(theorem, version, kinds, **{**values, "R": last}) for version in versions}
    if answers[statement.default].bound.quantity != _BOUNDED:
        raise InputError(
            f"{statement.locator} bounds {answers[statement.default].bound.quantity}, which a run does not record."
        )
    rounds = np.unique(np.geomspace(1, last, _POINTS).round())
    totals = {
        version: tuple(
            np.broadcast_to(statement.evaluate(version, **{**values, "R": rounds}).total, rounds.shape).tolist()
        )
        for version in versions
    }
    steps = np.unique(np.geomspace(1, max(_AROUND * values["I"], 16), 48).round())
    over = statement.evaluate(statement.default, **{**values, "R": last, "I": steps})
    admitted = steps[np.broadcast_to(over.admissible, steps.shape)]
    # A theorem for R rounds is about the models before those rounds, not the one after the last.
    before = [record for record in run.rounds if record.round < last] or list(run.rounds[:1])
    return Comparison(
        theorem,
        statement.locator,
        values["I"],
        answers,
        Constants(tuple(used.values())),
        tuple(int(number) for number in rounds),
        totals,
        tuple(record.round + 1 for record in before),
        tuple(np.minimum.accumulate([record.grad2 for record in before]).tolist()),
        tuple(int(number) for number in steps),
        {t.name: tuple(np.broadcast_to(t.value, steps.shape).tolist()) for t in over.terms},
        int(admitted.max()) if admitted.size else None,
        tuple(note for note in notes if note.partition(" ")[0] in used),
    )


def _theorem_of(run: FoundRun, num_workers: int | None) -> tuple[str, dict[str, Any]]:
    """The theorem that covers a run, with the numbers from the run's settings that it takes."""
    settings = run.settings
    algorithm, participation = dict(settings["algorithm"]), settings["participation"]
    name = str(algorithm.pop("name"))
    if "code" in algorithm:
        raise InputError(f"No theorem here covers {name} with your own functions.")
    if covering(name) is None:
        covered = dict.fromkeys(theorem.algorithm for theorem in THEOREMS.values())
        raise InputError(f"No theorem here covers {name}; there are theorems about {', '.join(covered)}.")
    if not is_plain(algorithm):
        raise InputError(f"No theorem here covers {name} with a local optimiser or a schedule.")
    if settings["local_steps"] is None:
        raise InputError("The theorems need the number of local steps, which the run does not say.")
    if isinstance(settings["local_steps"], Mapping):
        raise InputError("No theorem here covers local steps that adapt while the run goes on.")
    if isinstance(settings["local_steps"], list):
        raise InputError("No theorem here covers workers that make different numbers of local steps.")
    if participation.get("weights") is not None:
        raise InputError(
            "A report compares runs with the theorems only if all workers have the same weight, and this run weights"
            " them differently; 'fedgauge bound --weights' evaluates a theorem for such a run."
        )
    if num_workers is None:
        raise InputError("The number of workers is not known, as the data cannot be read; the theorems need it.")
    sampling = participation.get("sampling", "full")
    theorem = covering(name, sampling)
    if theorem is None:
        raise InputError(f"No theorem here covers {name} with the sampling {sampling}.")
    values = {"I": settings["local_steps"], "N": num_workers, **algorithm, "M": participation.get("participants")}
    taken = {*theorem.needs, *theorem.optional}
    return theorem.name, {symbol: value for symbol, value in values.items() if symbol in taken}


def _with_gap(run: FoundRun, constants: Constants, gap: Callable[[Constants], Estimate | None]) -> Constants:
    """The constants with F of the run: proved, or at most the first loss where no recorded loss is below 0."""
    held, first = constants.get("F"), run.rounds[0]
    if held is not None and held.kind != "assumed":
        return constants
    quadratic = str(run.experiment.get("data", {}).get("name", ".json")).endswith(".json")
    own = gap(constants)
    if own is None and first.round == 0 and not quadratic and min(record.loss for record in run.rounds) >= 0:
        own = initial_gap(first.loss, 0.0)
    if own is None:
        return constants
    return Constants((*(item for item in constants.values() if item.symbol != "F"), own))
