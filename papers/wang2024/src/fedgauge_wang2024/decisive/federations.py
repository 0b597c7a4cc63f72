"""The federations of the study: kinds of heterogeneity by strength, with one base experiment for each data set.

Everything here was fixed before the study was run (papers/wang2024/results/decisive-plan.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedgauge.base.errors import InputError, nearest

PLAIN = "iid"
"""The federation without any kind of heterogeneity."""
STRENGTHS: Mapping[str, tuple[float, ...]] = {
    # All of one label would stop every run with local steps, so that the last one is a little less.
    "label": (0.25, 0.5, 0.75, 0.9),
    **dict.fromkeys(("rotation", "gain", "mixing", "swap", "label-noise"), (0.25, 0.5, 0.75, 1.0)),
}
LOCAL_STEPS = (10, 40, 160)


@dataclass(frozen=True)
class DataSource:
    """One data set of the study.

    Attributes:
        keys: the experiment without any kind of heterogeneity.
        steps: of the pooled run whose last loss is the goal.
        kinds: of heterogeneity.
        zeta: the zeta_rms along the own pooled run at which kinds are compared; None leaves that part out.
        hessian_examples: how many examples of each worker Hessians are taken over; None means all.
        hessian_places: where Hessians are taken.
        records: of f along the pooled run; runs with more local steps are recorded as often.
        gauge_budget: of the gauge, in pooled runs; the most local steps here exceed its default, 2.
        local_steps: whose slowdowns are measured.
        delta_places: where max_i |H_i - H| is measured, which takes twice as long as L_h, L_tilde and L_g together.
    """

    keys: Mapping[str, Any]
    steps: int
    kinds: tuple[str, ...]
    zeta: float | None = None
    hessian_examples: int | None = None
    hessian_places: tuple[str, ...] = ("first", "along", "end")
    records: int = 48
    gauge_budget: int = 3
    delta_places: tuple[str, ...] = ()
    local_steps: tuple[int, ...] = LOCAL_STEPS

    def settings(self) -> dict[str, Any]:
        """All that a cell of this source depends on, as JSON."""
        found = {name: value for name, value in vars(self).items() if name not in ("kinds", "zeta")}
        return {**found, "keys": dict(self.keys), "local_steps": list(self.local_steps), **_COMMON}


_COMMON = {
    # A run that needs more than this many times the steps of the pooled run is given up.
    "cap": 5,
    # Local steps of the lenses that need local models.
    "lens_steps": 40,
    "tolerance": 0.1,
    "zeta_tolerance": 0.03,
}
_BASE = {"scheme": "paper", "percent": 0.0, "fill": True, "workers": 10, "batch_size": 20, "processes": 1}

SOURCES: Mapping[str, DataSource] = {
    "digits": DataSource(
        {**_BASE, "source": "digits", "model": "mlp", "gamma": 0.1, "per_worker": 143},
        640,
        tuple(STRENGTHS),
        zeta=0.35,
        records=32,
        gauge_budget=4,
        delta_places=("along",),
    ),
    "mnist": DataSource(
        {**_BASE, "source": "mnist", "model": "mlp", "gamma": 0.1, "per_worker": 600},
        640,
        ("label", "rotation", "gain", "mixing", "swap"),
        hessian_examples=100,
        hessian_places=("along",),
        # A record takes as long as 30 steps.
        records=32,
        gauge_budget=4,
    ),
    "cifar10": DataSource(
        {**_BASE, "source": "cifar10", "model": "cnn", "model_option": {"filters": 8}, "gamma": 0.1}
        | {"per_worker": 150, "scale": "published"},
        # A step of the CNN takes as long as 25 of the MLP. With inputs between 0 and 1 it would still be on its first
        # plateau here.
        200,
        ("label", "rotation", "swap"),
        hessian_places=(),
        records=16,
        gauge_budget=2,
        # One round of 160 would be most of the way.
        local_steps=(10, 40),
    ),
}


@dataclass(frozen=True)
class Chosen:
    """One federation of the study.

    Attributes:
        name: its name.
        kind: its kind of heterogeneity; None without any.
        strength: of that kind; None if it is found by bisection.
        zeta: the zeta_rms along its own pooled run that the bisection looks for.
    """

    name: str
    kind: str | None = None
    strength: float | None = 0.0
    zeta: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The federation as JSON."""
        return dict(vars(self))


def source_of(name: str) -> DataSource:
    """The data set of that name.

    >>> source_of("digits").steps
    640
    """
    if name not in SOURCES:
        raise InputError(f"The study has no data set {name!r}; {nearest(name, SOURCES)}")
    return SOURCES[name]


def federations(source: DataSource) -> list[Chosen]:
    """All federations of a data set: the plain one, every kind at every strength, and those of equal zeta.

    >>> [each.name for each in federations(SOURCES["cifar10"])][:3]
    ['iid', 'label 0.25', 'label 0.5']
    >>> federations(SOURCES["digits"])[-1].name
    'label-noise at equal zeta'
    """
    found = [Chosen(PLAIN)]
    found += [Chosen(f"{kind} {each:g}", kind, each) for kind in source.kinds for each in STRENGTHS[kind]]
    if source.zeta is not None:
        found += [Chosen(f"{kind} at equal zeta", kind, None, source.zeta) for kind in source.kinds]
    return found
