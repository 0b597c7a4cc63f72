"""The result of a sweep as a value, for those who write it and those who read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.errors import InputError
from fedgauge.values import Result, Value


@dataclass(frozen=True)
class SeedCurve(Value):
    """Mean and standard deviation over seeds, one number per recorded round."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Combination(Value):
    """One combination of a sweep's values, over its seeds.

    Attributes:
        values: of the keys that the sweep goes over.
        diverged: how many of the runs diverged.
        rounds: the recorded rounds that all runs have.
        seconds: of all runs together.
        loss: the training loss; None where a run has none.
        accuracy: the test accuracy; None where it was not tested.
        runs: what the sweep keeps of each run.
    """

    values: Mapping[str, Any]
    diverged: int
    rounds: tuple[int, ...]
    seconds: float
    loss: SeedCurve | None
    accuracy: SeedCurve | None
    runs: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for curve in (self.loss, self.accuracy):
            if curve and {len(curve.mean), len(curve.deviation)} != {len(self.rounds)}:
                raise InputError("The curves of a combination must have one number per round.")


@dataclass(frozen=True)
class SweepResult(Result):
    """What ``fedgauge sweep`` writes.

    Attributes:
        experiment: what all runs share.
        over: for each key its values.
        seeds: how many.
        combinations: one entry per combination of values.
        command: that ran it.
    """

    kind: ClassVar[str] = "sweep"
    written_by: ClassVar[str] = "sweep"

    experiment: Mapping[str, Any]
    over: Mapping[str, tuple[Any, ...]]
    seeds: int
    combinations: tuple[Combination, ...]
    command: str = ""

    def __post_init__(self) -> None:
        for each in self.combinations:
            if set(each.values) != set(self.over):
                raise InputError(f"A combination must have values of {', '.join(self.over) or 'nothing'}.")
