"""Certified bounds on real data beside runs: what ``fedgauge reproduce certified`` writes for one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.errors import InputError
from fedgauge.theory import find
from fedgauge.values import Constants, Estimate, Result, Value


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
    written_by: ClassVar[str] = "reproduce certified"

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
