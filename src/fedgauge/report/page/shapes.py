"""The shapes of results that are written as plain objects: read as values, so that what does not fit is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedgauge.errors import InputError
from fedgauge.symbols import symbol as find_symbol
from fedgauge.theory import find as find_theorem
from fedgauge.values import Constants, Estimate, Value


@dataclass(frozen=True)
class Asked(Value):
    """What a run's settings must say for a report; local steps are None where a strategy's are not known.

    >>> Asked({"name": "fedavg", "gamma": 0.1}, 5, 100, {"sampling": "full"}, 0).rounds
    100
    """

    algorithm: Mapping[str, Any]
    local_steps: Any
    rounds: int
    participation: Mapping[str, Any]
    seed: int

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm.get("name"), str):
            raise InputError("algorithm must have a name.")
        for name, value in self.algorithm.items():
            if name != "name" and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InputError(f"algorithm.{name} must be a number, not {value!r}.")
        if self.local_steps is None or isinstance(self.local_steps, Mapping):
            return  # they are not known, or adapt themselves
        steps = self.local_steps if isinstance(self.local_steps, list) and self.local_steps else [self.local_steps]
        if any(isinstance(step, bool) or not isinstance(step, int) or step < 1 for step in steps):
            raise InputError(f"local_steps must be a number of at least 1, or one a worker, not {self.local_steps!r}.")


@dataclass(frozen=True)
class Curve(Value):
    """Mean and standard deviation over seeds, one a recorded round."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Combination(Value):
    """One combination of a sweep's values, over its seeds."""

    values: Mapping[str, Any]
    diverged: int
    rounds: tuple[int, ...]
    seconds: float
    loss: Curve | None
    accuracy: Curve | None
    runs: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for curve in (self.loss, self.accuracy):
            if curve and {len(curve.mean), len(curve.deviation)} != {len(self.rounds)}:
                raise InputError("A combination's curves must have as many numbers as rounds.")


@dataclass(frozen=True)
class SweepResult(Value):
    """What ``fedgauge sweep`` writes."""

    experiment: Mapping[str, Any]
    over: Mapping[str, tuple[Any, ...]]
    seeds: int
    combinations: tuple[Combination, ...]
    command: str = ""

    def __post_init__(self) -> None:
        for each in self.combinations:
            if set(each.values) != set(self.over):
                raise InputError(f"A combination must have values of {', '.join(self.over) or 'nothing'}.")


@dataclass(frozen=True)
class Figure(Value):
    """What ``fedgauge reproduce fig2`` and the like write: a sweep for each study that the figure shows."""

    figure: str
    title: str
    scale: str
    studies: Mapping[str, SweepResult]


@dataclass(frozen=True)
class ConstantsRow(Value):
    """The constants at one X: of each reading, mean and deviation over seeds."""

    percent: int
    readings: Mapping[str, Mapping[str, tuple[float, float]]]
    rounds: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Table1(Value):
    """What ``fedgauge reproduce table1`` writes."""

    settings: Mapping[str, Any]
    rows: tuple[ConstantsRow, ...]
    paper: Mapping[str, Mapping[str, tuple[float, float]]]
    cells: tuple[Any, ...] = ()
    dependence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        readings = [reading for row in self.rows for reading in row.readings.values()]
        if any(len(pair) != 2 for held in (*readings, *self.paper.values()) for pair in held.values()):
            raise InputError("A constant must have its mean and its deviation.")
        for row in self.rows:
            if "trajectory" not in row.readings:
                raise InputError(f"The row of {row.percent}% must have the reading trajectory.")
            for name, held in row.readings.items():
                if set(held) != set(self.paper):
                    raise InputError(f"The reading {name} at {row.percent}% must have {', '.join(self.paper)}.")
            if any(str(row.percent) not in printed for printed in self.paper.values()):
                raise InputError(f"The row of {row.percent}% must have the paper's numbers beside it.")
        if not self.rows:
            raise InputError("A table must have rows.")

    @property
    def verdict(self) -> str:
        """How far L_h is below L_tilde, in one sentence."""
        seen = [row.readings["trajectory"] for row in self.rows]
        parts = [one["L_h"][0] / one["L_tilde"][0] for one in seen if one["L_tilde"][0]]
        if not parts:
            return "L_tilde is 0 at every X."
        return f"Along FedAvg's own steps L_h is {min(parts):.2g} to {max(parts):.2g} of L_tilde."


@dataclass(frozen=True)
class RoundsColumn(Value):
    """A setting of Table 2 with the paper's rounds to the target, and ours by number of workers."""

    half: str
    eta: float
    gamma: float
    local_steps: int
    batch: int
    paper: str
    label: str
    ours: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Table2(Value):
    """What ``fedgauge reproduce table2`` writes."""

    settings: Mapping[str, Any]
    columns: tuple[RoundsColumn, ...]
    literal: Mapping[str, Any]
    cells: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for column in self.columns:
            for held in column.ours.values():
                if {"median", "low", "high"} - set(held):
                    raise InputError(f"The column {column.label} must have median, low and high.")

    @property
    def verdict(self) -> str:
        """What ten local steps save, in one sentence."""
        rounds = {
            c.local_steps: {N: held["median"] for N, held in c.ours.items()}
            for c in self.columns
            if c.half == "steps" and c.batch == 1
        }
        one, ten = rounds.get(1, {}), rounds.get(10, {})
        ratios = [one[N] / ten[N] for N in one if ten.get(N)]
        if not ratios:
            return "Rounds to the target on quadratics, L_h = 0."
        return f"With L_h = 0 one local step takes {min(ratios):.1f} to {max(ratios):.1f} times the rounds of ten."


@dataclass(frozen=True)
class LedgerRow(Value):
    """A claim of the paper with what our results say of it."""

    claim: str
    where: str
    paper: str
    ours: str
    scale: str
    seeds: int | None
    seconds: float | None
    verdict: str
    command: str


@dataclass(frozen=True)
class Ledger(Value):
    """What ``fedgauge reproduce ledger`` writes."""

    verdicts: Mapping[str, int]
    claims: tuple[LedgerRow, ...]

    @property
    def verdict(self) -> str:
        """How many claims have each verdict, in one sentence."""
        counted = ", ".join(f"{number} {name}" for name, number in self.verdicts.items())
        return f"Of {len(self.claims)} claims of the paper's experiments: {counted}."


@dataclass(frozen=True)
class Part(Value):
    """A constant's square shared out over workers and layers, as the reading ``parts`` has it."""

    symbol: str
    blocks: tuple[str, ...]
    weights: tuple[float, ...]
    squares: tuple[tuple[float, ...], ...]
    total: float
    by_block: tuple[float, ...]
    by_worker: tuple[float, ...]
    threshold: float
    outliers: tuple[int, ...]

    def __post_init__(self) -> None:
        find_symbol(self.symbol)
        sizes = {len(self.weights), len(self.squares), len(self.by_worker)}
        if sizes != {len(self.weights)} or not self.weights:
            raise InputError("Parts must have a weight, squares and a share for each worker.")
        if {len(row) for row in self.squares} | {len(self.by_block)} != {len(self.blocks)} or not self.blocks:
            raise InputError("Parts must have a square and a share for each block.")
        numbers = (
            self.total,
            *self.weights,
            *self.by_block,
            *self.by_worker,
            *(share for row in self.shares for share in row),
        )
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise InputError("Parts must be finite numbers of at least 0.")

    @property
    def shares(self) -> list[list[float]]:
        """What each worker contributes through each block, as part of the whole: a row a block."""
        whole = self.total or 1.0
        return [
            [weight * row[block] / whole for weight, row in zip(self.weights, self.squares, strict=True)]
            for block in range(len(self.blocks))
        ]


@dataclass(frozen=True)
class PartsDetails(Value):
    """The details of the reading ``parts``."""

    parts: tuple[Part, ...]
    method: str


@dataclass(frozen=True)
class AtBest(Value):
    """A version of a theorem at its own best rates."""

    gamma: float
    eta: float
    bound: float
    certified: bool
    dominant: str


@dataclass(frozen=True)
class Line(Value):
    """A theorem and what it bounds, over seeds."""

    percent: int
    theorem: str
    I: int  # noqa: E741
    R: int
    new: str
    versions: Mapping[str, AtBest]
    runs: Mapping[str, Any]
    least: float
    worst: float
    mean: float
    below: int
    looseness: float
    prior_over_new: float

    def __post_init__(self) -> None:
        find_theorem(self.theorem)
        if self.new not in self.versions:
            raise InputError(f"A line must have the version {self.new!r} that it calls new.")


@dataclass(frozen=True)
class Certified(Value):
    """What the command writes for one data set."""

    settings: Mapping[str, Any]
    constants: Mapping[str, Mapping[str, Estimate]]
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        for held in self.constants.values():
            Constants(tuple(held.values()))
        if not isinstance(self.settings.get("seeds"), int):
            raise InputError("settings must have the number of seeds.")

    @property
    def verdict(self) -> str:
        """How many bounds hold, and how loose they are, in one sentence."""
        seeds = self.settings["seeds"]
        runs, below = seeds * len(self.lines), sum(line.below for line in self.lines)
        sure = sum(line.versions[line.new].certified for line in self.lines)
        loose = [line.looseness for line in self.lines] or [0.0]
        return (
            f"On {self.settings.get('source', '–')}, {below} of {runs} runs stay below their bound; {sure} of"
            f" {len(self.lines)} bounds are certified, and they are {min(loose):.3g} to {max(loose):.3g} times the mean"
            " of what happened."
        )
