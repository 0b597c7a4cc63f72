"""The data that lenses share: passes over the workers, each computed when a lens first needs it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch

from fedgauge.base.types import Floats
from fedgauge.data.dataset import Labels
from fedgauge.data.partition import Partition
from fedgauge.measurement.lanczos import Ritz
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.workers import Spread
from fedgauge_wang2024.label_distances import label_distances
from fedgauge_wang2024.lens_passes import Errors, Steps, joint_gradient, local_errors, local_spread, offsets

Needs = Literal["gradients", "local models", "Hessians", "labels"]


class Local(NamedTuple):
    """One round of local steps: the mean model, the spread around it, and the errors at the mean model."""

    mean: torch.Tensor
    spread: float
    errors: Errors


@dataclass(frozen=True, eq=False)
class Context:
    """The data that lenses share; each part is computed when a lens first needs it.

    Attributes:
        meter: the meter that computes passes over the workers.
        model: the flat model.
        steps: the local steps to take, if any.
        partition: which worker has which examples, if it is known.
        labels: the labels of all examples, if they are known.
        tolerance: the tolerance for the eigenvectors of Hessians.
    """

    meter: Meter
    model: torch.Tensor
    steps: Steps | None = None
    partition: Partition | None = None
    labels: Labels | None = None
    tolerance: float = 1e-3

    def has(self, needs: Needs) -> bool:
        """Whether everything that such a lens needs is available."""
        if needs == "local models":
            return self.steps is not None
        return needs != "labels" or (self.partition is not None and self.labels is not None)

    @cached_property
    def gradients(self) -> tuple[torch.Tensor, Floats, Floats]:
        """The gradient of f, and for every worker's gradient its squared distance from that and its squared norm."""
        _, gradient = self.meter.evaluate(self.model)
        return gradient, *self.meter.distances(self.model, gradient)

    @property
    def grad2(self) -> float:
        """The squared norm of f's gradient."""
        gradient = self.gradients[0]
        return float(gradient @ gradient)

    @cached_property
    def local(self) -> Local:
        """One round of local steps."""
        steps = self.stepping
        whole = Spread()
        for part in self.meter.ask(self._kind, steps.number, local_spread, self.model, steps):
            whole.add(part)
        assert whole.mean is not None
        arguments = (self.model, whole.mean, steps)
        parts: list[Errors] = self.meter.ask(self._kind, steps.number, local_errors, *arguments)
        self.meter.cost["gradient passes"] += 2
        mean = sum((part.mean for part in parts[1:]), start=parts[0].mean)
        errors = Errors(mean, sum(part.squares for part in parts), max(part.steepest for part in parts))
        return Local(whole.mean, whole.squares / whole.weight, errors)

    @cached_property
    def joint(self) -> torch.Tensor:
        """The model after the same steps taken together."""
        steps, model = self.stepping, self.model.double()
        for step in range(steps.number):
            parts = self.meter.ask(self._kind, 1, joint_gradient, model.to(self.model.dtype), steps, step)
            model = model - steps.gamma * sum(parts[1:], start=parts[0])
        return model

    @cached_property
    def offsets(self) -> list[Ritz]:
        """The largest absolute eigenvalue of every H_i - H, in order of worker."""
        shares = self.meter.shares
        parts = self.meter.ask("Hessian passes", 0, offsets, self.model, shares, self.tolerance)
        by_worker = dict(pair for part in parts for pair in part)
        self.meter.cost["Hessian passes"] += sum(ritz.products for ritz in by_worker.values())
        return [by_worker[worker] for worker in range(len(shares))]

    @cached_property
    def distances(self) -> dict[str, tuple[Floats, float, float]]:
        """How far each worker's label distribution is from that of the federation."""
        assert self.partition is not None
        assert self.labels is not None
        return label_distances(self.partition, self.labels, self.meter.weights)

    @property
    def stepping(self) -> Steps:
        """The local steps to take."""
        assert self.steps is not None
        return self.steps

    @property
    def _kind(self) -> str:
        """How the cost of local steps is counted: mini-batches are not passes over the data."""
        return "gradient passes" if self.stepping.exact else "local steps"
