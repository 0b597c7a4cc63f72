"""The result of a sweep as a value, which is written to and read from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.errors import InputError
from fedgauge.values import Result, Value
from fedgauge.values.display import Displayed


@dataclass(frozen=True)
class SeedCurve(Value):
    """Mean and standard deviation over seeds, one number per recorded round."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Combination(Value):
    """One combination of a sweep's values, over its seeds.

    Attributes:
        values: the values of the keys that the sweep varies.
        diverged: the number of runs that diverged.
        rounds: the rounds that all runs have recorded.
        seconds: seconds that all runs together took.
        loss: the training loss; None if a run has none.
        accuracy: the test accuracy; None if it was not tested.
        runs: status, curves and time of each run.
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
class SweepResult(Result, Displayed):
    """What ``fedgauge sweep`` writes.

    Attributes:
        experiment: the experiment that all runs share.
        over: for each key that varies, its values.
        seeds: the number of seeds.
        combinations: one entry per combination of values.
        command: the command that ran the sweep.
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
