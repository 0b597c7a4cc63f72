"""What measuring returns, as values that are read without torch: readings, and evaluations of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from fedgauge.base.errors import InputError
from fedgauge.values import Constants, Estimate, Origin, Result, Scope, Value
from fedgauge.values.display import Displayed

Directions = Mapping[str, npt.NDArray[np.float64]]
_ORDERED = (("L_g", "L_tilde"), ("L_h", "L_tilde"), ("zeta_rms", "zeta"), ("sigma_rms", "sigma"))
"""Constants of which the first is never above the second, whatever the federation."""


@dataclass(frozen=True, eq=False)
class Reading(Value, Displayed):
    """One way to measure, and what it found.

    Attributes:
        name: the name of the reading.
        meaning: what its numbers mean, in one sentence.
        estimates: the constants, each symbol once.
        details: the data behind the estimates, such as rounds and single workers' values; and ``table``, the title of a
            table of their own for estimates that are no constants of a bound.
        notes: remarks for the reader, such as why a constant is missing.
        directions: the worst directions found, by symbol; not part of the JSON.
        complete: whether all of the reading was measured.

    >>> reading = Reading("curvature", "At the model.", (Estimate.exact("L_g", 2.0, "eigenvalue"),))
    >>> reading.constants["L_g"].value, Reading.from_json(reading.to_json()).to_json() == reading.to_json()
    (2.0, True)
    """

    name: str
    meaning: str
    estimates: tuple[Estimate, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    directions: Directions = field(default_factory=dict, repr=False)
    complete: bool = True

    def __post_init__(self) -> None:
        exact = {estimate.symbol: estimate for estimate in self.estimates if estimate.kind == "exact"}
        for small, large in _ORDERED:
            # Rounding is allowed for.
            if small in exact and large in exact and exact[small].low > exact[large].high * (1 + 1e-6):
                raise InputError(
                    f"{small} = {exact[small].value:.4g} and {large} = {exact[large].value:.4g} cannot both be exact,"
                    f" because {small} is never above {large}."
                )

    @property
    def constants(self) -> Constants:
        """The estimates by symbol."""
        return Constants(self.estimates)

    def to_json(self) -> dict[str, Any]:
        """Return the reading as an object, without the directions."""
        entries = super().to_json()
        del entries["directions"]
        return entries


_SAFEST = {"exact": 0, "upper": 1, "lower": 2, "sample": 3, "assumed": 4}


@dataclass(frozen=True, eq=False)
class Measurement(Result, Displayed):
    """All readings of one federation at one model.

    Attributes:
        settings: the settings of the measurement, enough to repeat it.
        point: the model that was measured: where it comes from, its loss and its squared gradient norm.
        readings: the readings, in the order in which they were taken.
        complete: whether everything was measured.
        cost: the total number of passes and seconds.
    """

    kind: ClassVar[str] = "measurement"
    written_by: ClassVar[str] = "measure"
    file: ClassVar[str] = "measure"
    lies_beside: ClassVar[bool] = True
    is_sealed: ClassVar[bool] = True
    derived_names: ClassVar[tuple[str, ...]] = ("constants",)

    settings: Mapping[str, Any]
    point: Mapping[str, Any]
    readings: tuple[Reading, ...]
    complete: bool
    cost: Mapping[str, float]

    @property
    def constants(self) -> Constants:
        """For every symbol, the estimate to use in a bound.

        An exact estimate or a safe bound is preferred. Otherwise it is the largest, the better of two lower bounds.
        Each belongs at least to the federation that was measured; earlier versions wrote no more than that.
        """
        federation = self.settings.get("federation")
        here = Scope(federation if isinstance(federation, str) else None)
        chosen: dict[str, Estimate] = {}
        for reading in self.readings:
            for each in reading.estimates:
                estimate = each if each.scope else replace(each, scope=here)
                held = chosen.get(estimate.symbol)
                if held is None or _rank(estimate) < _rank(held):
                    chosen[estimate.symbol] = estimate
        return Constants(tuple(chosen.values()))

    @property
    def origin(self) -> Origin:
        """The federation that was measured."""
        return Origin(self.settings.get("federation"), experiment=self.settings.get("experiment"))

    def reading(self, name: str) -> Reading | None:
        """The reading with that name, or None if it was not taken."""
        return next((reading for reading in self.readings if reading.name == name), None)

    def derived(self) -> tuple[Any, ...]:
        """Return the constants, which the theorems are evaluated with: they are in the file too."""
        return ({symbol: item.to_json() for symbol, item in self.constants.items()},)


def _rank(estimate: Estimate) -> tuple[bool, int, float]:
    """The order of preference: safe estimates first, the sharpest of them; then the others, the largest first."""
    if estimate.certain:
        return False, _SAFEST[estimate.kind], estimate.value
    return True, 0, -estimate.value


Measured = TypeVar("Measured", Reading, Measurement)


def whole(measured: Measured) -> Measured:
    """Return what was measured without a budget; if it is incomplete, raise the Ctrl-C that ended it early again."""
    if not measured.complete:
        raise KeyboardInterrupt
    return measured


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

    @property
    def origin(self) -> Origin:
        """The federation whose workers were evaluated."""
        return Origin(self.federation)

    def _columns(self) -> dict[str, tuple[tuple[float, ...], bool]]:
        """What there is, and whether more of it is worse."""
        columns: dict[str, tuple[tuple[float, ...], bool]] = {"loss": (self.losses, True)}
        return columns if self.accuracies is None else {**columns, "accuracy": (self.accuracies, False)}

    def summary(self) -> Mapping[str, Mapping[str, float]]:
        """Mean, quantiles and the mean of the worst tenth of the workers, of losses and accuracies.

        >>> evaluation = WorkerEvaluation((1.0, 3.0), (0.9, 0.5), None, "", "")
        >>> evaluation.summary()["accuracy"]["worst 10%"], evaluation.summary()["loss"]["median"]
        (0.5, 2.0)
        """
        summaries = {}
        for name, (values, more_is_worse) in self._columns().items():
            worst = sorted(values, reverse=more_is_worse)[: max(math.ceil(WORST * len(values)), 1)]
            shown = {"mean": float(np.mean(values)), f"worst {WORST:.0%}": float(np.mean(worst))}
            words = {0.0: "smallest", 0.5: "median", 1.0: "largest"}
            for part, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True):
                shown[words.get(part, f"{part:.0%} quantile")] = float(value)
            summaries[name] = shown
        return summaries

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
