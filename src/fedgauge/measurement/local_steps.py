"""The local models of a round, recomputed whenever they are needed, so that none has to be kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedgauge.algorithms.base import Algorithm
from fedgauge.base.errors import InputError, count
from fedgauge.measurement.passes import Passes
from fedgauge.simulation.workers import Lane, Work


@dataclass(frozen=True)
class LocalSteps:
    """The local steps that workers take from a global model; after k of them, worker i has the model x_i^{r,k}.

    The mini-batches are those of a run with the meter's seed in that round. An algorithm's memory is as it is before
    its first round.

    Attributes:
        algorithm: the algorithm that takes the steps.
        steps: the number k of local steps.
        round: the round r, which determines the mini-batches.
    """

    algorithm: Algorithm
    steps: int
    round: int = 0

    def __post_init__(self) -> None:
        count("steps", self.steps, least=0)
        count("round", self.round, least=0)

    def after(self, steps: int) -> LocalSteps:
        """The same local steps, with another number of them."""
        return replace(self, steps=steps)

    def models(self, passes: Passes, part: Lane, model: torch.Tensor) -> torch.Tensor:
        """The local models of a lane's workers, one row each."""
        number = len(part.cohort.workers)
        if not self.steps:
            return model.expand(number, -1)
        work = Work(passes.federation, self.algorithm, self.steps, passes.seed, passes.chunk)
        remembered = work.algorithm.worker_init(model)
        memory = {name: vector.expand(number, -1) for name, vector in remembered.items()}
        local, _ = work.local_states(Lane(part.cohort, memory), self.round, model, work.algorithm.init(model))
        if not bool(torch.isfinite(local["x"]).all()):
            raise InputError(f"Local models are not finite after {self.steps} steps; measure with a smaller gamma.")
        return local["x"]
