"""How well a global model does on each worker's own examples, as a value: quantiles, and the worst workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.values import Result
from fedgauge.values.display import Displayed

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
WORST = 0.1
"""The fraction of the workers that counts as the worst, at least one of them."""


@dataclass(frozen=True)
class WorkerEvaluation(Result, Displayed):
    """Losses and accuracies of one model, worker by worker, on their training examples.

    Attributes:
        losses: F_i of each worker.
        accuracies: the fraction of its examples that each worker's model gets right; None if the targets are no labels.
        examples: how many examples each worker has; None if workers have none, as quadratics.
        federation: digest of the federation.
        model: digest of the model.
    """

    kind, written_by, is_sealed = "workers", "runs evaluate --out", True
    derived_names = ("summary", "worst_workers")

    losses: tuple[float, ...]
    accuracies: tuple[float, ...] | None
    examples: tuple[int, ...] | None
    federation: str
    model: str

    def __post_init__(self) -> None:
        for name in ("accuracies", "examples"):
            held = getattr(self, name)
            if not self.losses or (held is not None and len(held) != len(self.losses)):
                raise InputError(f"{name} must have one entry for each of the {len(self.losses)} workers' losses.")

    def _columns(self) -> dict[str, tuple[tuple[float, ...], bool]]:
        """What there is, and whether more of it is worse."""
        found: dict[str, tuple[tuple[float, ...], bool]] = {"loss": (self.losses, True)}
        return found if self.accuracies is None else {**found, "accuracy": (self.accuracies, False)}

    def summary(self) -> Mapping[str, Mapping[str, float]]:
        """Mean, quantiles and the mean of the worst tenth of the workers, of losses and accuracies.

        >>> found = WorkerEvaluation((1.0, 3.0), (0.9, 0.5), None, "", "")
        >>> found.summary()["accuracy"]["worst 10%"], found.summary()["loss"]["median"]
        (0.5, 2.0)
        """
        found = {}
        for name, (values, more_is_worse) in self._columns().items():
            worst = sorted(values, reverse=more_is_worse)[: max(math.ceil(WORST * len(values)), 1)]
            shown = {"mean": float(np.mean(values)), f"worst {WORST:.0%}": float(np.mean(worst))}
            words = {0.0: "smallest", 0.5: "median", 1.0: "largest"}
            for part, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True):
                shown[words.get(part, f"{part:.0%} quantile")] = float(value)
            found[name] = shown
        return found

    def worst_workers(self) -> tuple[int, ...]:
        """The worst tenth of the workers, worst first: by accuracy if there is one, otherwise by loss."""
        number = max(math.ceil(WORST * len(self.losses)), 1)
        order = np.argsort(
            -np.array(self.losses) if self.accuracies is None else np.array(self.accuracies), kind="stable"
        )
        return tuple(order[:number].tolist())

    def derived(self) -> tuple[Any, ...]:
        """The summary of the workers' numbers, which the file holds too."""
        return self.summary(), list(self.worst_workers())
