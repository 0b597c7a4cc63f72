"""The results of ``fedgauge paper``: the paper's tables and figures beside ours, the ledger, and the studies.

Each class is what one command writes as JSON. The module in ``reproduce`` that computes a result makes the class and
writes :meth:`~fedgauge.values.Result.to_json`; the report reads it with ``from_json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedgauge.base.errors import InputError
from fedgauge.theory import find
from fedgauge.values import Constants, Estimate, Result, Value
from fedgauge_planning.sweep import SweepResult
from fedgauge_wang2024.design_result import Design


@dataclass(frozen=True)
class CurvesFigure(Result):
    """Figures 2 to 9: one sweep for each study that the figure shows."""

    kind: ClassVar[str] = "figure"
    written_by: ClassVar[str] = "paper figure"

    figure: str
    title: str
    scale: str
    studies: Mapping[str, SweepResult]


@dataclass(frozen=True)
class ConstantsRow(Value):
    """The constants at one X: for each reading, mean and deviation over seeds."""

    percent: int
    readings: Mapping[str, Mapping[str, tuple[float, float]]]
    rounds: tuple[int, ...]
    losses: tuple[float, ...]

    def shown(self, reading: str, symbol: str) -> str:
        """A constant by one reading, with its deviation where there are several seeds."""
        value, deviation = self.readings[reading][symbol]
        return f"{value:.3g} ± {deviation:.2g}" if len(self.rounds) > 1 else f"{value:.3g}"


@dataclass(frozen=True)
class Table1(Result):
    """Table 1: the constants of a network as its data grows heterogeneous."""

    kind: ClassVar[str] = "table1"
    written_by: ClassVar[str] = "paper table 1"

    settings: Mapping[str, Any]
    rows: tuple[ConstantsRow, ...]
    paper: Mapping[str, Mapping[str, tuple[float, float]]]
    cells: tuple[Any, ...] = ()
    dependence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
class Table2(Result):
    """Table 2: rounds to a target on quadratics with a common Hessian."""

    kind: ClassVar[str] = "table2"
    written_by: ClassVar[str] = "paper table 2"

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
    """A claim of the paper, and what our results say about it; a reason is written by hand.

    ``short`` is the claim in two or three words, and ``result`` the name of the table or figure that decides it.
    """

    claim: str
    short: str
    where: str
    result: str
    paper: str
    ours: str
    scale: str
    seeds: int | None
    seconds: float | None
    verdict: str
    command: str
    reason: str = ""


@dataclass(frozen=True)
class Misfit(Value):
    """How what Table 1 prints agrees with what is measured: a typical factor for each column; sizes above 2/gamma."""

    factors: Mapping[str, float]
    beyond: int


@dataclass(frozen=True)
class PrintedSizes(Value):
    """One network's numbers in Table 1, read as constants and as their squares.

    Attributes:
        study: the network; ``None`` for all of them together.
        constants: how they agree with what is measured, as they stand.
        squares: the same for their roots.
        printed: how many different L_tilde and L_g are printed.
    """

    study: str | None
    constants: Misfit
    squares: Misfit
    printed: int


@dataclass(frozen=True)
class Ledger(Result):
    """The claims of the paper, one by one."""

    kind: ClassVar[str] = "ledger"
    written_by: ClassVar[str] = "paper ledger"

    verdicts: Mapping[str, int]
    claims: tuple[LedgerRow, ...]
    printed_sizes: tuple[PrintedSizes, ...] = ()

    @property
    def verdict(self) -> str:
        """How many claims have each verdict, in one sentence."""
        counted = ", ".join(f"{number} {name}" for name, number in self.verdicts.items())
        return f"Of {len(self.claims)} claims of the paper's experiments: {counted}."


@dataclass(frozen=True)
class StatusLine(Value):
    """One part of the paper's results: what is there, and what the rest takes.

    Attributes:
        exhibit: the tables or figures.
        about: the network, its data and the percentage.
        there: how many runs, cells or problems are there.
        older: how many of the others a result has, made with other settings or without its runs; the command makes
            them again.
        wanted: how many there are in all.
        unit: what is counted.
        hours: that the missing ones take, on one core.
        basis: what the hours follow from; where they are 0, how long it takes in a word.
        command: that computes what is missing.
    """

    exhibit: str
    about: str
    there: int
    older: int
    wanted: int
    unit: str
    hours: float
    basis: str
    command: str


@dataclass(frozen=True)
class PaperStatus(Result):
    """Which of the paper's results are there at an effort, and how many hours the others take."""

    kind: ClassVar[str] = "paper-status"
    written_by: ClassVar[str] = "paper status"

    effort: str
    lines: tuple[StatusLine, ...]

    @property
    def verdict(self) -> str:
        """How much is there and missing, in one sentence."""
        missing = [line for line in self.lines if line.there < line.wanted]
        if not missing:
            return "Everything is there."
        return (
            f"{len(self.lines) - len(missing)} of {len(self.lines)} parts are whole; the others take about"
            f" {sum(line.hours for line in missing):.1f} hours on one core."
        )


@dataclass(frozen=True)
class Sketch(Result):
    """Figure 1: two workers in the plane whose models drift apart."""

    kind: ClassVar[str] = "sketch"
    written_by: ClassVar[str] = "paper figure 1"

    figure: str
    gamma: float
    local_steps: int
    panels: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class SamplingResult(Result):
    """What partial participation adds to the error, for more and less L_h."""

    kind: ClassVar[str] = "sampling"
    written_by: ClassVar[str] = "paper sampling"

    settings: Mapping[str, Any]
    lines: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class LensStudy(Result):
    """How each measure of heterogeneity orders partitions, against the slowdown from local steps."""

    kind: ClassVar[str] = "lens-study"
    written_by: ClassVar[str] = "paper lenses"

    settings: Mapping[str, Any]
    partitions: Mapping[str, Any]
    orders: Mapping[str, Any]
    cells: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class DecisiveStudy(Result):
    """How each measure of heterogeneity orders federations of many kinds, and what trusting it costs."""

    kind: ClassVar[str] = "decisive-study"
    written_by: ClassVar[str] = "paper decisive"

    settings: Mapping[str, Any]
    answers: Mapping[str, Any]
    regrets: tuple[Mapping[str, Any], ...]
    cells: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class TunedVersion(Value):
    """A version of a theorem at the rates that make its bound least."""

    gamma: float
    eta: float
    bound: float
    certified: bool
    dominant: str


@dataclass(frozen=True)
class CertifiedLine(Value):
    """A theorem at one I beside what it bounds, over seeds.

    Attributes:
        percent: of each worker's data that has one label.
        theorem: its name.
        I: local steps.
        R: rounds.
        new: the version at whose rates the runs were made.
        versions: each version at its own best rates.
        runs: for every seed, the least value and the mean of what is bounded.
        least: the median of the least values.
        worst: the largest of the least values.
        mean: of what is bounded, over seeds.
        below: how many of the least values are below the bound.
        looseness: the bound divided by that mean.
        prior_over_new: the prior bound divided by the corrected one.
    """

    percent: int
    theorem: str
    I: int  # noqa: E741
    R: int
    new: str
    versions: Mapping[str, TunedVersion]
    runs: Mapping[str, Any]
    least: float
    worst: float
    mean: float
    below: int
    looseness: float
    prior_over_new: float

    def __post_init__(self) -> None:
        find(self.theorem)
        if self.new not in self.versions:
            raise InputError(f"A line must have the version {self.new!r} that it calls new.")


@dataclass(frozen=True)
class CertifiedBounds(Result):
    """The whole table, with the constants that were proved at each percentage of one label."""

    kind: ClassVar[str] = "certified-bounds"
    written_by: ClassVar[str] = "paper certified"

    settings: Mapping[str, Any]
    constants: Mapping[str, Mapping[str, Estimate]]
    lines: tuple[CertifiedLine, ...]

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


RESULTS = (
    CertifiedBounds,
    Table1,
    Table2,
    Ledger,
    CurvesFigure,
    Sketch,
    SamplingResult,
    LensStudy,
    DecisiveStudy,
    Design,
)
"""What reports can read."""
