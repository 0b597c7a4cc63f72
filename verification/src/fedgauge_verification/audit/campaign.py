"""The attack itself: in every trial constants of one case meet another, and what is then called certified is run."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.files import write_json
from fedgauge.base.randomness import Purpose, Streams, check_seed
from fedgauge.base.symbols import SYMBOLS
from fedgauge.values import Value
from fedgauge.values.results import sealed
from fedgauge_verification.audit.cases import AuditCase, data_cases, quadratic_cases
from fedgauge_verification.audit.statements import StatedBound, by_bound, by_plan, by_report

ALLOWANCE = 1e-6
"""The part by which a truth may exceed a bound before it counts: far more than rounding, far less than any mistake."""

_TAMPERED = ("nothing", "nothing", "nothing", "older file", "swapped constants", "setting as a bound")
_WAYS = ("report", "plan", "bound")
_DATA_SHARE = 0.2
_MOST_ROUNDS_ON_DATA = 12


@dataclass(frozen=True)
class Contradiction(Value):
    """A certificate that a run refutes.

    Attributes:
        trial: the number of the trial, which together with the seed repeats it.
        by: who stated it: report, plan or bound.
        theorem: by which theorem.
        version: in which version.
        measured: where the constants come from.
        about: what the statement is about.
        tampered: what was done to the file of constants.
        bound: what was certified.
        truth: what happens.
        run: gamma, eta, I and R.
    """

    trial: int
    by: str
    theorem: str
    version: str
    measured: str
    about: str
    tampered: str
    bound: float
    truth: float
    run: tuple[float, ...]


@dataclass(frozen=True)
class Audit(Value):
    """What an attack found.

    Attributes:
        seed: the seed of all trials.
        trials: how many were made.
        complete: whether these were all that were asked for.
        statements: how many bounds were stated.
        certified: how many of them were called certified, and then compared with a run.
        stepped_down: how many were no more than a plug-in because a constant belongs to something else.
        recomputed: how many had F computed again, for the first model that they are about.
        refused: trials that ended with an error, such as constants of another federation.
        ways: for report, plan and bound, how many certificates each gave.
        contradictions: the certificates that a run refutes.
        seconds: how long it took.
    """

    seed: int
    trials: int
    complete: bool
    statements: int
    certified: int
    stepped_down: int
    recomputed: int
    refused: int
    ways: Mapping[str, int]
    contradictions: tuple[Contradiction, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        """One sentence."""
        found = len(self.contradictions)
        refuted = "none of them is" if not found else "1 of them is" if found == 1 else f"{found} of them are"
        return (
            f"Of {self.statements:,} bounds, {self.certified:,} were certified and compared with a run, and {refuted}"
            f" contradicted; {self.stepped_down:,} stepped down to a plug-in, {self.recomputed:,} had F computed again,"
            f" and {self.refused:,} trials were refused."
        )


class _Trial:
    """One trial: which constants meet which case, in which way, with what done to the file."""

    def __init__(self, number: int, cases: list[AuditCase], generator: np.random.Generator, place: Path) -> None:
        self.number, self.cases, self.place = number, cases, place
        self.way = _WAYS[int(generator.integers(len(_WAYS)))]
        # A plan is for the first model of the experiment's seed; elsewhere a far one is what tells most.
        far = self.way != "plan" and generator.random() < 0.6
        fitting = [case for case in cases if (case.start is not None) == far]
        self.about = fitting[int(generator.integers(len(fitting)))]
        others = [case for case in cases if case is not self.about]
        alike = [case for case in others if case.experiment.data == self.about.experiment.data]
        among = alike if generator.random() < 0.8 else others  # constants of another federation are usually refused
        self.measured = self.about if generator.random() < 0.3 else among[int(generator.integers(len(among)))]
        self.other = cases[int(generator.integers(len(cases)))]
        self.tampered = _TAMPERED[int(generator.integers(len(_TAMPERED)))]
        self.taken = {symbol for symbol in sorted(SYMBOLS) if generator.random() < 0.3}
        self.share, self.goal = float(generator.uniform(0.05, 1.0)), float(generator.uniform(0.05, 0.9))
        self.I, self.R = int(generator.integers(1, 9)), int(10 ** generator.uniform(0.3, 2.3))
        if not self.about.experiment.data.is_quadratic:
            self.R = min(self.R, _MOST_ROUNDS_ON_DATA)

    def statements(self) -> list[StatedBound]:
        """State everything that follows from the file, as a report, a plan or a bound does."""
        file = self._file()
        if self.way == "plan":
            return by_plan(file, self.about, self.goal)
        if self.way == "bound":
            about = {(case.setup.federation.digest, case.start_digest): case for case in self.cases}
            return by_bound(file, about, self.share, (self.I, self.R))
        return by_report(file, self.about, (self._gamma(), self.I, self.R), self.place / "run")

    def _gamma(self) -> float:
        """A rate that the theorem about smooth objectives admits for the case that is run."""
        L_g, L_h = (float(self.about.constants()["constants"][name]["value"]) for name in ("L_g", "L_h"))
        return float(self.share / (2 * 30**0.5 * self.I * max(L_g, L_h, 1e-12)))

    def _file(self) -> Path:
        """The file of constants, after something was done to it."""
        if self.tampered == "nothing":
            return self.measured.constants_file
        data: dict[str, Any] = self.measured.constants()
        # A report reads the readings, everything else the constants that were chosen from them.
        entries = [*data["constants"].values(), *(each for part in data["readings"] for each in part["estimates"])]
        for entry in entries:
            if self.tampered == "older file":
                entry.pop("scope", None)
            elif self.tampered == "swapped constants" and entry["symbol"] in self.taken:
                entry.update(self.other.constants()["constants"].get(entry["symbol"], {}))
        if self.tampered == "setting as a bound":
            data["constants"]["R"] = {"value": 1000 * self.R, "kind": "upper"}
        file = self.place / "tampered.json"
        # As a file that was measured so: what is attacked is what decides whether constants belong to a run.
        write_json(file, sealed(data))
        return file


def run(
    *,
    trials: int = 200,
    seed: int = 0,
    spend: float | None = None,
    data: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Mix up starts, seeds, files and settings at random, and compare every certificate with a run.

    Args:
        trials: how many to make; trial number k of a seed is always the same.
        seed: the seed of everything.
        spend: seconds after which to end with what was found by then; None for no limit.
        data: whether a part of the trials is on digits, which take seconds to prepare, and not on quadratics.
        progress: called with the number of trials done and their total.

    Returns:
        What was found; an interrupted attack returns what it had found until then.
    """
    count("trials", trials)
    check_seed(seed)
    until = float("inf") if spend is None else time.monotonic() + positive("spend", spend)
    began, done, total, streams = time.perf_counter(), 0, Counter[str](), Streams(seed, Purpose.FALSIFY)
    contradictions: list[Contradiction] = []
    progress(0, trials)
    with tempfile.TemporaryDirectory() as scratch:
        digits: list[AuditCase] = []
        try:
            while done < trials and time.monotonic() < until:
                generator, place = streams.at(done, copy=2), Path(scratch) / str(done)
                place.mkdir()
                if data and generator.random() < _DATA_SHARE:
                    digits = digits or data_cases(Path(scratch) / "data", streams.at(copy=3))
                    cases = digits
                else:
                    cases = quadratic_cases(place, generator)
                contradictions += _judge(_Trial(done, cases, generator, place), total)
                done += 1
                progress(done, trials)
        except KeyboardInterrupt:
            pass
    return Audit(
        seed,
        done,
        done == trials,
        total["statements"],
        total["certified"],
        total["stepped down"],
        total["recomputed"],
        total["refused"],
        {way: total[way] for way in _WAYS},
        tuple(contradictions),
        time.perf_counter() - began,
    )


def _judge(trial: _Trial, total: Counter[str]) -> list[Contradiction]:
    """Count what a trial states, and return the certificates that are false."""
    try:
        said = trial.statements()
    except InputError:
        total["refused"] += 1
        return []
    found = []
    for statement in said:
        total["statements"] += 1
        remarks = " ".join(statement.notes)
        total["stepped down"] += statement.standing == "plug-in" and "counts as assumed" in remarks
        total["recomputed"] += "F was computed again" in remarks
        if statement.standing != "certified":
            continue
        total["certified"] += 1
        total[statement.by] += 1
        truth = statement.truth()
        if not truth <= statement.bound * (1 + ALLOWANCE):
            found.append(
                Contradiction(
                    trial.number,
                    statement.by,
                    statement.theorem,
                    statement.version,
                    trial.measured.name,
                    statement.about.name,
                    trial.tampered,
                    statement.bound,
                    truth,
                    tuple(map(float, statement.run)),
                )
            )
    return found
