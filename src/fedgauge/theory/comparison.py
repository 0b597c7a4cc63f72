"""A theorem beside the run that it covers: what the measured constants promise, and what happened.

No formula is written here: the theorem that covers the run is looked up, and :mod:`fedgauge.theory` evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedgauge.algorithms import is_plain
from fedgauge.base.errors import InputError
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.theory import THEOREMS, covering, find
from fedgauge.theory.answer import TheoremAnswer, bound
from fedgauge.theory.inputs import look_up
from fedgauge.values import Constants, Estimate, Kind, Round, Subject, Version, initial_gap
from fedgauge.values.display import short

_BOUNDED = "min_r E|grad f(xbar^r)|^2"
_VERSIONS: tuple[Version, ...] = ("star", "corrected", "printed", "sharp", "prior")
_POINTS = 120  # of a bound's curve: it is smooth
_RECOMPUTED = "F was computed again for this run, because the measured one"
_ROUNDING = 0.01  # what is allowed for in a comparison of a run with its constants
_CANCELLED = 1e-3  # a ratio below this part of L_tilde may be what is left of rounding, where L_h is 0
_SURE = 20  # a run this many times above a bound on the expectation is no bad luck
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
    answers: Mapping[Version, TheoremAnswer]
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
    def answer(self) -> TheoremAnswer:
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
    # A theorem for R rounds is about the models before those rounds, not the one after the last.
    before = [record for record in run.rounds if record.round < last] or list(run.rounds[:1])
    least = np.minimum.accumulate([record.grad2 for record in before]).tolist()
    impossible = refuted(used.values(), run.rounds)
    answers = {
        version: replace(one, contradictions=(*impossible, *_surpassed(one, statement.locator, least[-1])))
        for version, one in answers.items()
    }
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
    return Comparison(
        theorem,
        statement.locator,
        values["I"],
        answers,
        Constants(tuple(used.values())),
        tuple(int(number) for number in rounds),
        totals,
        tuple(record.round + 1 for record in before),
        tuple(least),
        tuple(int(number) for number in steps),
        {t.name: tuple(np.broadcast_to(t.value, steps.shape).tolist()) for t in over.terms},
        int(admitted.max()) if admitted.size else None,
        tuple(note for note in notes if note.partition(" ")[0] in used),
    )


def refuted(constants: Iterable[Estimate], rounds: Sequence[Round]) -> tuple[str, ...]:
    """Constants that are said to be exact or safe, and that a run shows to be too small: a sentence on each.

    Nothing here is left to chance: f cannot fall by more than F, no gradient can be steeper than F and L_g allow, and
    no ratio that a run shows can be above the constant that bounds it.

    >>> refuted([Estimate.exact("F", 1.0, "typed")], [Round(0, 2.0, 0.5), Round(1, 0.5, 0.1)])
    ('F cannot be 1: f fell by 1.5 in the run.',)
    """
    from fedgauge.measurement.trajectory import exceeded  # which needs torch

    held = {each.symbol: each.value for each in constants if each.certain and each.symbol != "mu"}
    statements = []
    fall, slack = rounds[0].loss - min(record.loss for record in rounds), 1 + _ROUNDING
    gap = held.get("F", np.inf)
    if rounds[0].round == 0 and fall > gap * slack + 1e-6 * abs(rounds[0].loss):
        statements.append(f"F cannot be {short(gap)}: f fell by {short(fall)} in the run.")
    steepest = 2 * held.get("L_g", np.inf) * gap
    if rounds[0].round == 0 and rounds[0].grad2 > steepest * slack:
        statements.append(
            f"F = {short(gap)} and L_g = {short(held['L_g'])} cannot both be right: the squared gradient norm would be"
            f" at most 2 L_g F = {short(steepest)} at the first model, and was {short(rounds[0].grad2)}."
        )
    floor = _CANCELLED * max((record.L_tilde_ratio or 0.0 for record in rounds), default=0.0)
    limits: dict[str, float] = {name: held[name] * slack + floor for name in ("L_h", "L_g", "L_tilde") if name in held}
    ratios = exceeded(rounds, limits)
    for name in dict.fromkeys(name for _, name, _ in ratios):
        number, _, seen = max((one for one in ratios if one[1] == name), key=lambda one: one[2])
        statements.append(f"{name} cannot be {short(held[name])}: round {number} of the run showed {short(seen)}.")
    return tuple(statements)


def _surpassed(answer: TheoremAnswer, locator: str, least: float) -> tuple[str, ...]:
    """A sentence, if a run stayed above a bound that is said to be certain.

    The bound is on an expectation. Of runs with a least value of at least 0, at most one in k is k times as far up.
    """
    total = float(answer.bound.total)
    if answer.standing != "certified" or not least > total * (1 + _ROUNDING):
        return ()
    times = least / total if total > 0 else np.inf
    chance = answer.values.get("sigma2", 0.0) > 0 and times < _SURE
    rest = (
        f"at most one run in {times:.3g} would come out so, if the constants were right"
        if chance
        else "so the constants in the file cannot be right"
    )
    return (
        f"The run contradicts {locator} with these constants: the least squared gradient norm was {short(least)}, and"
        f" the bound says at most {short(total)}; {rest}.",
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
            " them differently; 'fedgauge theory bound --weights' evaluates a theorem for such a run."
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
    proved = gap(constants)
    if proved is None and first.round == 0 and not quadratic and min(record.loss for record in run.rounds) >= 0:
        proved = initial_gap(first.loss, 0.0)
    if proved is None:
        return constants
    return Constants((*(item for item in constants.values() if item.symbol != "F"), proved))
