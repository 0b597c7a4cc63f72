"""Design federations of equal zeta_rms: how strong each kind of heterogeneity is then, and what L_h and the gauge are.

So one can compare federations that zeta cannot tell apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.paces import Chosen
from fedgauge.base.errors import InputError, nearest, positive
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import Progress, ProgressOption
from fedgauge.measurement.curvature import curvature
from fedgauge.measurement.gauge.gauge import gauge
from fedgauge.measurement.gauge.result import GaugeOptions
from fedgauge.measurement.passes import Meter
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.setup import Setup
from fedgauge_wang2024.design_result import Design, Designed
from fedgauge_wang2024.equal_zeta import KINDS, PARTS, Along, Bisection, pooled_models, with_kind, zeta_over
from fedgauge_wang2024.lens_reading import lenses

_BELOW = 0.9
"""The default zeta_rms, as a fraction of the largest that every kind reaches."""
_TOLERANCE = 0.05
"""The tolerance for the directions of Hessians."""


@dataclass(frozen=True)
class DesignOptions:
    """How federations are made alike.

    Attributes:
        zeta: the wanted zeta_rms; by default, 0.9 of the largest that every kind reaches.
        along: at which models: ``common`` to all federations (the first, and three along the pooled run of the
            experiment without the kinds), or each one's ``own`` (three along the pooled run on its own data).
        steps: of the pooled run; by default, the rounds times the local steps of the experiment.
        search: how the strength is searched.
        curvature: whether L_h and L_tilde are measured from Hessians, which takes long for large models.
    """

    zeta: float | None = None
    along: Along = "common"
    steps: int | None = None
    search: Bisection = dataclasses.field(default_factory=Bisection)
    curvature: bool = True

    def __post_init__(self) -> None:
        if self.zeta is not None:
            positive("zeta", self.zeta)
        if self.along not in get_args(Along):
            raise InputError(f"along must be common or own, not {self.along!r}; {nearest(self.along, get_args(Along))}")


@undisturbed
def design(
    experiment: Experiment,
    kinds: Sequence[str] = ("label", "mixing", "swap"),
    *,
    options: DesignOptions | None = None,
    progress: ProgressOption = "auto",
) -> Design:
    """Find the strength of each kind at which the federation has the same zeta_rms, and measure what differs.

    Args:
        experiment: without the kinds; its seed is that of everything.
        kinds: ``label`` (the paper's partition, with 100 · strength percent of one label) or shifts, see
            :data:`~fedgauge.SHIFTS`.
        options: what to make alike, and how.
        progress: called with what is being done, how far it is, and the total if that is known. By default, a bar is
            shown on a terminal and in a notebook; None shows nothing.

    >>> plain = Experiment.of({"source": "digits", "model": "softmax", "gamma": 0.1, "scheme": "iid", "rounds": 6})
    >>> designed = design(plain, ["label", "swap"], options=DesignOptions(curvature=False))
    >>> [each.kind for each in designed.federations], [each.reached for each in designed.federations]
    (['label', 'swap'], [True, True])
    """
    options = options or DesignOptions()
    if not kinds or len(set(kinds)) < len(kinds):
        raise InputError("kinds must be one or several different kinds, such as label and swap; name each once.")
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"There is no kind {kind!r}; {nearest(kind, KINDS)}")
    if experiment.data.is_quadratic:
        raise InputError(
            "Quadratics have no data to shift; 'fedgauge theory generate' makes them with the spreads you choose."
        )
    with reported(progress) as tell:
        return _Designing(experiment, options, tell).run(kinds)


class _Designing:
    """One design while it is made."""

    def __init__(self, experiment: Experiment, options: DesignOptions, progress: Progress) -> None:
        self._experiment, self._options, self._progress = experiment, options, progress
        self._plain = prepare(experiment)
        steps = self._plain.local_steps
        each = 1 if isinstance(steps, Pace | Chosen) else round(float(np.mean(steps)))
        self._local_steps = each
        self._steps = options.steps or self._plain.rounds * each
        self._known: dict[tuple[str, float], float] = {}
        self._models: list[torch.Tensor] | None = None
        if options.along == "common":
            progress("pooled run", 0, None)
            self._models = pooled_models(self._plain, self._steps, (0.0, *PARTS))

    def run(self, kinds: Sequence[str]) -> Design:
        wanted = self._options.zeta
        if wanted is None:
            wanted = _BELOW * min(self._zeta(kind, 1.0) for kind in kinds)
        plain = self._over(self._plain)
        if wanted <= plain:
            raise InputError(
                f"zeta must be above {plain:.4g}, which the experiment has without these kinds, not {wanted:.4g};"
                " choose a larger one, or kinds that differ more."
            )
        made = []
        for number, kind in enumerate(kinds):
            self._progress(kind, number, len(kinds))
            made.append(self._made(kind, wanted))
        self._progress("done", len(kinds), len(kinds))
        settings = {
            "experiment": self._experiment.to_json(),
            "along": self._options.along,
            "steps": self._steps,
            "tolerance": self._options.search.tolerance,
        }
        return Design(settings, wanted, plain, self._local_steps, tuple(made))

    def _over(self, setup: Setup) -> float:
        models = pooled_models(setup, self._steps) if self._models is None else self._models
        return zeta_over(setup, models)

    def _zeta(self, kind: str, strength: float) -> float:
        if (kind, strength) not in self._known:
            self._progress(f"{kind} {strength:.3g}", 0, None)
            self._known[kind, strength] = self._over(prepare(with_kind(self._experiment, kind, strength)))
        return self._known[kind, strength]

    def _made(self, kind: str, wanted: float) -> Designed:
        match = self._options.search.find(lambda strength: self._zeta(kind, strength), wanted)
        experiment = with_kind(self._experiment, kind, match.strength)
        setup = prepare(experiment)
        self._progress(f"{kind}: constants", 0, None)
        along = pooled_models(setup, self._steps)
        observed, bent = self._constants(setup, along[len(along) // 2])
        self._progress(f"{kind}: gauge", 0, None)
        gauged = gauge(setup, options=GaugeOptions(steps=self._steps, local_steps=(self._local_steps,)))
        return Designed(
            kind,
            match.strength,
            match.value,
            match.reached,
            zeta_over(setup, [setup.first_model]),
            zeta_over(setup, along),
            observed,
            bent.get("L_h"),
            bent.get("L_tilde"),
            gauged.efficiency[-1],
            experiment.to_json(),
        )

    def _constants(self, setup: Setup, model: torch.Tensor) -> tuple[float | None, dict[str, float]]:
        """L_h as measured in one round, and the constants from Hessians."""
        gamma, weights = setup.algorithm.parameters.get("gamma"), setup.participation.weights
        with Meter(setup.federation, weights=weights, seed=setup.seed, compute=setup.compute) as meter:
            observed = None
            if gamma is not None:
                reading = lenses(meter, model, gamma=float(gamma), local_steps=self._local_steps, only=["L_h"])
                observed = reading.constants["L_h"].value if "L_h" in reading.constants else None
            if not self._options.curvature:
                return observed, {}
            bent = curvature(meter, model, _TOLERANCE).constants
        return observed, {name: bent[name].value for name in ("L_h", "L_tilde")}
