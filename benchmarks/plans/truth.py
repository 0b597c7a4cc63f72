"""The exhaustive grid: every I with every gamma, run to the goal or given up, with seeds that no plan uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.federation.protocols import HasSamples
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.forecast import Curve, Scale
from fedgauge_planning.pilots import Pilots
from plans.federations import COSTS, Case

UNSEEN = 1000
"""The first seed of the grid; plans use 0, 1, ..."""
JUDGING = 1100
"""The first of the seeds with which the best cell and a plan's choice are compared: they have chosen neither."""
JUDGES = 3
"""This many times the seeds of the grid judge."""
GIVEN_UP = 3.0
"""A cell of the grid is given up once it has taken this many times the time of the best."""
_UNIT = Cost("rounds", fixed=1.0, step=0.0)


class Truth:
    """The runs of a case's cells; a run is the same for every cost model, so it is made only once."""

    def __init__(
        self, case: Case, place: Path, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        self.case, self.experiment = case, case.experiment(place)
        self.setup = prepare(self.experiment)
        self.federation, self.evaluator = self.setup.federation, self.setup.evaluator
        self.floor = 0.0 if not case.quadratic else float(self.federation.minimiser()[1])  # type: ignore[attr-defined]
        self.scale = Scale(case.goal, self.floor)
        self._known: dict[Candidate, list[Curve]] = {}
        self._place, self._progress = place / "truth" / case.name, progress

    @property
    def samples(self) -> int:
        """The number of samples of all workers; 0 if they have functions instead of data."""
        if not isinstance(self.federation, HasSamples):
            return 0
        return int(self.federation.sizes(np.arange(self.federation.num_workers)).sum())

    @property
    def candidates(self) -> list[Candidate]:
        """All cells."""
        N = self.federation.num_workers
        return [Candidate(steps, gamma, 1.0, N) for steps in self.case.steps for gamma in self.case.gammas]

    def run(self, candidates: Sequence[Candidate], jobs: int | None = None) -> None:
        """Run candidates to the goal, or until they have taken ``GIVEN_UP`` times as long as the best at every cost."""
        costs = [cost.completed(self.federation) for cost in COSTS.values()]
        n = self.case.seeds
        with Pilots(self.setup, self.scale, _UNIT, self._place, jobs, self._progress) as pilots:
            rounds = 2.0
            while True:
                best = [
                    min(self.time(self.curves(c, cost)) for c in self._known) if self._known else math.inf
                    for cost in costs
                ]
                left = [c for c in candidates if self._runs_on(c, costs, best) and rounds / c.I**0.5 < self.case.limit]
                if not left:
                    return
                trials = [Trial(c, UNSEEN + seed) for c in left for seed in range(n)]
                found = pilots.run(trials, [max(2.0, rounds / trial.candidate.I**0.5) for trial in trials])
                for at, candidate in enumerate(left):
                    self._known[candidate] = found[at * n : (at + 1) * n]
                rounds *= 2

    def _runs_on(self, candidate: Candidate, costs: Sequence[Cost], best: Sequence[float]) -> bool:
        """Whether it is still running and has, at one of the costs, not yet taken too long."""
        known = self._known.get(candidate)
        return known is None or any(
            curve.status == "stopped" and curve.costing(candidate.seconds(cost)).end < GIVEN_UP * least
            for curve in known
            for cost, least in zip(costs, best, strict=True)
        )

    def curves(self, candidate: Candidate, cost: Cost) -> list[Curve]:
        """A candidate's curves, one per seed, at the cost of a round."""
        return [curve.costing(candidate.seconds(cost)) for curve in self._known[candidate]]

    def time(self, curves: Sequence[Curve]) -> float:
        """The geometric mean of the seconds to the goal; infinite if one seed does not reach it."""
        assert self.scale.target is not None
        times = [curve.when(self.scale.target) for curve in curves]
        if any(time is None for time in times):
            return math.inf
        return math.exp(sum(math.log(max(time or 0.0, 1e-9)) for time in times) / len(times))

    def judged(self, candidate: Candidate, cost: Cost, within: float, jobs: int | None = None) -> float:
        """The median of the seconds to the goal over seeds that have not chosen the candidate.

        The least of forty means is lower than what the same cell takes again, so that the seeds that have chosen the
        best cell cannot also say how fast it is.

        Args:
            candidate: a cell of the grid, or a plan's choice.
            cost: the cost of a round.
            within: seconds after which a run has missed the goal; the median is infinite if most runs have.
            jobs: number of runs at the same time.
        """
        assert self.scale.target is not None
        each, number = candidate.seconds(cost), JUDGES * self.case.seeds
        with Pilots(self.setup, self.scale, _UNIT, self._place, jobs, self._progress) as pilots:
            trials = [Trial(candidate, JUDGING + seed) for seed in range(number)]
            curves = pilots.run(trials, [max(2.0, within / each)] * number)
        times = [curve.costing(each).when(self.scale.target) for curve in curves]
        return median(math.inf if time is None else time for time in times)
