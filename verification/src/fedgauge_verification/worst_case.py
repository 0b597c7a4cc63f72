"""Theorem 4.3's worst case with its error bar: the certificate, a federation near it, and what the theorems say.

Two kinds of workers with quadratics in one dimension, whose curvatures and pulls differ to opposite sides. With L_h,
zeta and sigma as they are given, its first round descends by no more than F/R in expectation, and its first squared
gradient is as large as a search can make it. So no bound that is proved round by round, as the certificate and the
theorems are, can be below it; where R is 1 it is a counterexample to any lower bound. All expectations are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError
from fedgauge.base.types import Floats
from fedgauge.show.charts import LineChart, Series, Style
from fedgauge.show.views.bounds import VERSIONS
from fedgauge.show.views.view import View
from fedgauge.theory import find
from fedgauge.values import Kind, Value, is_safe
from fedgauge_verification.sdp import SdpBound, sdp_bound

_SAMPLES, _KEPT, _TURNS = 6000, 60, 80


@dataclass(frozen=True)
class WorstRound(Value):
    """The federation that was found.

    Attributes:
        grad2: its squared gradient at the start, which is 0.
        curvatures: of the workers' objectives.
        pulls: the gradients of the workers' objectives at the start.
    """

    grad2: float
    curvatures: tuple[float, ...]
    pulls: tuple[float, ...]


def _sides(N: int) -> Floats:
    """To which side each worker differs: two kinds, of mean 0 and mean square 1; one worker differs from nobody."""
    first = (N + 1) // 2
    second = N - first
    if second == 0:
        return np.zeros(N)
    return np.concatenate([np.full(first, (second / first) ** 0.5), np.full(second, -((first / second) ** 0.5))])


def one_round(
    A: Floats,
    C: Floats,
    g: Floats,
    pull: Floats,
    *,
    I: int,  # noqa: E741
    gamma: float,
    eta: float,
    N: int,
    sigma2: float,
) -> tuple[Floats, Floats]:
    """Return f(0) - E f(xbar^1) and the largest mean square divergence, for many federations at once.

    >>> one = np.ones(1)
    >>> down, apart = one_round(one, 0 * one, one, 0 * one, I=1, gamma=1.0, eta=1.0, N=2, sigma2=0.0)
    >>> float(down[0]), float(apart[0])  # f = x + x^2/2, from 0 to its minimum
    (0.5, 0.0)
    """
    side = _sides(N)[:, None]
    a, b = A + C * side, g + pull * side
    x, spread, apart = np.zeros(a.shape), np.zeros(a.shape), np.zeros(A.shape)
    for _ in range(I):
        off = (C * x + pull) * side
        apart = np.maximum(apart, np.mean(off * off + (C * side) ** 2 * spread, axis=0))
        x = x - gamma * (a * x + b)
        spread = (1 - gamma * a) ** 2 * spread + gamma * gamma * sigma2
    mean, variance = eta * x.mean(axis=0), eta * eta * spread.mean(axis=0) / N
    return -(A * (mean * mean + variance) / 2 + g * mean), apart


def worst_round(
    *, F: float, I: int, R: float, N: int, sigma2: float, zeta2: float,  # noqa: E741
    L_g: float, L_h: float, gamma: float, eta: float = 1.0, below: float, seed: int = 0,
) -> WorstRound:  # fmt: skip
    """Search for the federation with the largest squared gradient at the start.

    Args:
        F: with R, the descent F/R that a round may make.
        I: local steps.
        R: rounds.
        N: workers.
        sigma2: variance of a stochastic gradient.
        zeta2: squared gradient divergence.
        L_g: smoothness of f.
        L_h: pseudo-Lipschitz constant of the averaged gradients.
        gamma: local rate.
        eta: global rate.
        below: a bound on the squared gradient.
        seed: of the search.

    >>> found = worst_round(F=1, I=1, R=100, N=2, sigma2=0, zeta2=1, L_g=1, L_h=1, gamma=1, below=0.02)
    >>> round(found.grad2, 4)  # gradient descent on a parabola of curvature L_g
    0.02
    """
    draw = np.random.default_rng(seed)
    top = np.array([L_g, L_h if N > 1 else 0.0, below**0.5, zeta2**0.5 if N > 1 else 0.0])
    low = np.array([-1.0, -1.0, 0.0, -1.0])
    run: dict[str, Any] = {"I": I, "gamma": gamma, "eta": eta, "N": N, "sigma2": sigma2}
    points, width = draw.uniform(low, 1.0, size=(_SAMPLES, 4)), 0.5
    best = np.zeros((1, 4))
    for _ in range(_TURNS):
        with np.errstate(over="ignore", invalid="ignore"):
            down, apart = one_round(*(points * top).T, **run)
        fine = (down <= F / R) & (apart <= zeta2)
        kept = points[fine]
        best = np.concatenate([best, kept])[np.argsort(-np.append(best[:, 2], kept[:, 2]))][:_KEPT]
        moved = best[draw.integers(len(best), size=_SAMPLES)] + width * draw.normal(size=(_SAMPLES, 4))
        points, width = np.clip(moved, low, 1.0), width * 0.87
    A, C, g, pull = best[0] * top
    side = _sides(N)
    return WorstRound(float(g * g), tuple((A + C * side).tolist()), tuple((g + pull * side).tolist()))


_NAMES = ("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "gamma", "eta")
_VERSIONS = ("corrected", "sharp", "star")
_POINTS = 13


@dataclass(frozen=True)
class WorstCase(Value):
    """The certificate at one point, and on a curve over gamma where one was asked for.

    Attributes:
        values: every number that entered.
        kinds: the kinds of the constants.
        sdp: the certificate.
        found: a federation near it.
        gap: the certificate divided by that federation's squared gradient; infinite where there is no bound.
        versions: what the theorem's versions say; None where their conditions fail.
        gammas: the rates of the curve.
        curves: the bounds at these rates, by version; None where there is none.
    """

    values: Mapping[str, float]
    kinds: Mapping[str, Kind]
    sdp: SdpBound
    found: WorstRound
    gap: float
    versions: Mapping[str, float | None]
    gammas: tuple[float, ...] = ()
    curves: Mapping[str, tuple[float | None, ...]] | None = None

    @property
    def verdict(self) -> str:
        """What was found, in a few sentences."""
        if self.sdp.worth == "no bound":
            return "No bound: the worst case of a round is infinite at these values, or the solver found no answer."
        unsafe = [name for name, kind in self.kinds.items() if not is_safe(name, kind)]
        start = "Certified" if self.sdp.worth == "certified" else "Numerical only, as the check of the dual failed"
        if unsafe:
            start = f"Plug-in, as {' and '.join(unsafe)} may be too small"
        others = ", ".join(
            f"{name} {'admits no such rate' if value is None else f'says {value:.4g}'}"
            for name, value in self.versions.items()
        )
        return (
            f"{start}: the average of E|grad f(xbar^r)|^2 over {self.values['R']:g} rounds is at most"
            f" {self.sdp.bound:.4g}. A federation of two kinds of workers reaches {self.found.grad2:.4g} in a round"
            f" that descends by F/R, so that no proof round by round can be more than {self.gap:.3g} times better. Of"
            f" the theorem's versions, {others}."
        )


def _theorem(values: Mapping[str, Any]) -> dict[str, float | None]:
    totals: dict[str, float | None] = {}
    for version in _VERSIONS:
        bound = find("nonconvex").evaluate(version, **values)  # type: ignore[arg-type]  # one of its versions
        totals[version] = float(bound.total) if bound.admissible and math.isfinite(bound.total) else None
    return totals


def worst_case(kinds: Mapping[str, Kind] | None = None, curve: bool = False, **values: Any) -> WorstCase:
    """Compute the certificate, look for a federation near it, and set the theorem's versions beside it.

    Args:
        kinds: the kinds of the constants.
        curve: whether to compute the bounds over gamma too, from a tenth of this gamma to ten times it.
        **values: F I R N sigma2 zeta2 L_g L_h gamma, and eta if it is not 1.

    >>> found = worst_case(F=1, I=2, R=100, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5, gamma=0.05)
    >>> found.sdp.worth, found.gap < 1.05, found.sdp.bound < found.versions["star"]
    ('certified', True, True)
    """
    used = {name: values[name] for name in _NAMES if name in values}
    used = {"eta": 1.0, **{name: float(value) for name, value in find("nonconvex").prepare("star", used).items()}}
    if used["N"] != int(used["N"]):
        raise InputError(
            f"N must be a whole number for the worst case of a round, not {used['N']:g}: it is about workers with equal"
            " weights."
        )
    counts = {"I": int(used["I"]), "N": int(used["N"])}
    certificate = sdp_bound(**{**used, **counts})
    below = certificate.bound if math.isfinite(certificate.bound) else 100 * used["L_g"] * used["F"] / used["R"]
    near = worst_round(**{**used, **counts}, below=below)
    gap = certificate.bound / near.grad2 if near.grad2 > 0 else math.inf
    gammas = np.geomspace(used["gamma"] / 10, used["gamma"] * 10, _POINTS).tolist() if curve else []
    curves: dict[str, tuple[float | None, ...]] = {}
    if curve:
        at = [{**used, "gamma": gamma} for gamma in gammas]
        certified = [sdp_bound(**{**one, **counts}).bound for one in at]
        curves["sdp"] = tuple(one if math.isfinite(one) else None for one in certified)
        rows = [_theorem(one) for one in at]
        curves |= {version: tuple(row[version] for row in rows) for version in _VERSIONS}
    held = {name: kind for name, kind in (kinds or {}).items() if name in used}
    return WorstCase(used, held, certificate, near, gap, _theorem(used), tuple(gammas), curves or None)


_STYLES: Mapping[str, tuple[int, Style]] = {**VERSIONS, "sdp": (7, "line")}


def view_of_worst_case(case: WorstCase) -> View:
    """The bounds against gamma; each ends where its theorem admits no larger rate."""
    series = [
        Series(name, case.gammas, [math.nan if height is None else height for height in heights], *_STYLES[name])
        for name, heights in (case.curves or {}).items()
    ]
    series.append(Series("a federation", [case.values["gamma"]], [case.found.grad2], 0, "dots"))
    title = f"I = {case.values['I']:g}, R = {case.values['R']:g}"
    chart = LineChart("worst-case", series, title, "gamma", "bound on the average of E‖∇f‖²", log_x=True)
    return View((case.verdict,), charts=(chart,))
