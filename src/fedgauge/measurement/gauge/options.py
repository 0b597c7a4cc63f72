"""How a gauge is taken, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedgauge.errors import InputError, count, positive

LONG = 5000
"""A base run with more steps than this is long: probes then need a smaller share of it."""
AROUND = 512
"""Steps of the base run around one model."""


@dataclass(frozen=True)
class GaugeOptions:
    """How the gauge is taken.

    Attributes:
        local_steps: the numbers of local steps to measure; by default, about four that are chosen by what is seen.
        threshold: the efficiency that affordable local steps have at least.
        steps: the number of steps of the base run; by default, the rounds times the local steps of the run.
        budget: the number of steps of each worker that may be spent beyond the base run; by default, twice the base
            run's steps, or half of them if it has more than 5,000.
        around: gauge around the first model only: the base run then has 512 steps by default, and every probe starts
            from that model.
        sample: how many examples of each worker f is looked at with, always the same ones; by default, all, or fewer
            where looking at all of them would take most of the time.
    """

    local_steps: Sequence[int] | None = None
    threshold: float = 0.8
    steps: int | None = None
    budget: int | None = None
    around: bool = False
    sample: int | None = None

    def __post_init__(self) -> None:
        if not 0 < positive("threshold", self.threshold) <= 1:
            raise InputError(f"threshold must be above 0 and at most 1, as in 0.8, not {self.threshold!r}.")
        for name, least in (("steps", 1), ("budget", 1), ("sample", 2)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name), least=least))
        if self.local_steps is not None:
            object.__setattr__(self, "local_steps", tuple(count("local_steps", each) for each in self.local_steps))

    def budget_of(self, steps: int) -> int:
        """The steps that may be spent beyond a base run of so many steps.

        >>> GaugeOptions().budget_of(100), GaugeOptions().budget_of(6000), GaugeOptions(budget=50).budget_of(100)
        (200, 3000, 50)
        """
        return self.budget or (2 * steps if steps <= LONG else steps // 2)
