"""The local models of a round, made again wherever they are looked at, so that none has to be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.errors import InputError, count
from fedgauge.measurement.passes import Passes
from fedgauge.simulation.workers import Lane, Work


@dataclass(frozen=True)
class LocalSteps:
    """The local steps that workers make from a global model: x_i^{r,k} after k of them.

    The batches are those of a run with the meter's seed in that round; what an algorithm remembers from round to round
    is as before its first.

    Attributes:
        algorithm: whose steps.
        steps: k.
        round: r, which addresses the batches.
    """

    algorithm: Algorithm
    steps: int
    round: int = 0

    def __post_init__(self) -> None:
        count("steps", self.steps, least=0)
        count("round", self.round, least=0)

    def after(self, steps: int) -> LocalSteps:
        """The same run stopped after another number of steps."""
        return replace(self, steps=steps)

    def models(self, passes: Passes, part: Lane, model: torch.Tensor) -> torch.Tensor:
        """The local models of a lane's workers, one row each."""
        number = len(part.cohort.workers)
        if not self.steps:
            return model.expand(number, -1)
        work = Work(passes.federation, self.algorithm, self.steps, passes.seed, passes.chunk)
        remembered = self.algorithm.worker_init(model)
        memory = {name: vector.expand(number, -1) for name, vector in remembered.items()}
        local, _ = work.local_states(Lane(part.cohort, memory), self.round, model, self.algorithm.init(model))
        if not bool(torch.isfinite(local["x"]).all()):
            raise InputError(f"Local models are not finite after {self.steps} steps; measure with a smaller gamma.")
        return local["x"]
