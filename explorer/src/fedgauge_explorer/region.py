"""Where local SGD beats mini-batch SGD: by the bounds, and exactly on a matching family of quadratics.

The comparison is fair: both methods have the same R rounds and N I R gradients, and each has its own best gamma.

By the bounds: gamma is the best that each theorem admits. The theorem for mini-batch SGD is 5.5. That for local SGD is
5.5 too if L_h = 0, and otherwise whichever of 4.3 and A.2 says less: the models of 4.3, those after the rounds, are
among those of A.2. Each is taken in its sharpest version. With I = 1 the two methods are the same, and so are their
bounds.

Exactly: gamma is the best in (0, 1/L_g], and the methods are compared by the quantity that the theorems bound, the
average of E|grad f|^2 over all R I models xhat^t of local SGD, and over the R models of mini-batch SGD, on the family
of :mod:`fedgauge_explorer.quadratic_family`.

If L_h = 0, local SGD with gamma/I does what mini-batch SGD does with gamma: by the bounds it never loses, and with much
noise they tie. Corollary 5.6 requires sigma2 <= F N L_g/(R I), where local SGD gains most. The paper's own region for
unequal Hessians, a closed form after Corollaries A.3 and A.4, compares orders at one gamma and is shown beside both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.base.errors import InputError, count, nearest, positive
from fedgauge.base.progress import silent
from fedgauge.base.symbols import symbol
from fedgauge.base.types import Floats, Progress
from fedgauge.show.charts import Border, FieldMap
from fedgauge.show.views.view import View, view
from fedgauge.theory import Theorem, covering, local_beats_minibatch
from fedgauge.theory.inputs import check_values
from fedgauge.theory.rates import minimise
from fedgauge.theory.search import best_gamma
from fedgauge.values import Value, Version
from fedgauge.values.display import Displayed
from fedgauge_explorer.quadratic_family import average_grad2, spectrum

DEFAULTS: dict[str, float] = {"F": 1, "N": 8, "L_g": 1, "sigma": 0.1, "zeta": 1, "L_h": 0, "I": 16, "R": 50}
RANGES: dict[str, tuple[float, float]] = {
    "sigma": (0.01, 100),
    "I": (1, 64),
    "R": (2, 500),
    "L_h": (0.001, 1),
    "zeta": (0.01, 100),
}
TIE = 0.01
"""Results closer than this fraction count as equal."""
_LARGEST = {"I": 10_000, "R": 1_000_000_000}  # the exact part loops over local steps, and doubles the rounds
_SMALLEST = 1e-9  # the search for gamma starts at this value of gamma L_g
_CHUNK = 144  # points that are evaluated at once: enough to be quick, few enough to show progress


@dataclass(frozen=True)
class Axis(Value):
    """One axis of the map: a symbol and its values, evenly spaced on a log scale unless they start at 0."""

    name: str
    values: tuple[float, ...]

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic."""
        return self.values[0] > 0


@dataclass(frozen=True, eq=False)
class Contest(Value):
    """Both methods at every point of the map; rows follow y, columns x.

    Attributes:
        local: the smallest bound of local SGD, or its smallest exact average of E|grad f|^2.
        minibatch: the same for mini-batch SGD.
        local_gamma: the rate at which local SGD is best.
        minibatch_gamma: the rate at which mini-batch SGD is best.
        log_ratio: log(local/minibatch), which is negative if local SGD is better.
        winner: 1 if local SGD is better by more than 1%, -1 if mini-batch SGD is, otherwise 0.
    """

    local: Floats
    minibatch: Floats
    local_gamma: Floats
    minibatch_gamma: Floats
    log_ratio: Floats
    winner: Floats


@dataclass(frozen=True, eq=False)
class Region(Value, Displayed):
    """A map that shows which method wins at each point.

    Attributes:
        x: the horizontal axis.
        y: the vertical axis.
        fixed: values of the symbols that are on no axis, and the family's dim and conditioning.
        bound: the comparison by the bounds.
        exact: the comparison by exact expectations.
        corollary: sigma divided by the largest that Corollary 5.6 allows, sqrt(F N L_g/(R I)); None if some L_h > 0.
        closed: the left side divided by the right of the closed form after Corollaries A.3 and A.4: below 1, local SGD
            is better by it.
        closed_noise: sigma2 divided by the largest for which that form is stated; above 1 it says nothing.
    """

    x: Axis
    y: Axis
    fixed: Mapping[str, float]
    bound: Contest
    exact: Contest
    corollary: Floats | None
    closed: Floats
    closed_noise: Floats

    @property
    def claimed(self) -> Floats:
        """Who wins by the closed form: 1 local SGD, -1 mini-batch SGD, 0 where it says nothing."""
        return np.where(self.closed_noise > 1, 0.0, np.where(self.closed < 1, 1.0, -1.0))

    @property
    def summary(self) -> str:
        """One sentence on how much of the map each method wins."""
        (local, mini), (local_bound, mini_bound) = (
            ((contest.winner == 1).mean(), (contest.winner == -1).mean()) for contest in (self.exact, self.bound)
        )
        agree = (self.bound.winner == self.exact.winner).mean()
        return (
            f"Exactly, local SGD wins {local:.0%} of the map and mini-batch SGD {mini:.0%}; by the bounds "
            f"{local_bound:.0%} and {mini_bound:.0%}; the two agree on {agree:.0%}. {self._closed_summary}"
        )

    @property
    def _closed_summary(self) -> str:
        claimed = self.claimed
        stated = claimed != 0
        if not stated.any():
            return "The closed form after Corollaries A.3 and A.4 is stated for less noise than the map has."
        right = (claimed == self.exact.winner)[stated].mean()
        return (
            "The closed form after Corollaries A.3 and A.4, which leaves out constants, is stated for "
            f"{stated.mean():.0%} of the map; there it names local SGD on {(claimed == 1)[stated].mean():.0%} and the "
            f"exact winner on {right:.0%}."
        )


def make_axis(name: str, ends: tuple[float, float] | None = None, points: int = 24) -> Axis:
    """Make an axis.

    Args:
        name: sigma, I, R, L_h or zeta.
        ends: first and last value; an axis that starts at 0 is linear, others are logarithmic.
        points: number of points; I and R are rounded to whole numbers, and repeated ones are dropped.

    >>> make_axis("I", (1, 8), 6)
    Axis(name='I', values=(1.0, 2.0, 3.0, 5.0, 8.0))
    """
    if name not in RANGES:
        raise InputError(f"An axis cannot be {name}; {nearest(name, RANGES)}")
    low, high = ends or RANGES[name]
    count("points", points, least=2, most=1000)
    whole = name in ("I", "R")
    for end in (low, high):
        if not (np.isfinite(end) and end >= whole and (end == int(end) or not whole)):
            allowed = "whole numbers of at least 1" if whole else "finite numbers of at least 0"
            raise InputError(f"The range of {name} must consist of {allowed}, not {end!r}.")
    if not low < high:
        raise InputError(f"The range of {name} must go from a smaller to a larger value, not from {low!r} to {high!r}.")
    values = np.geomspace(low, high, points) if low > 0 else np.linspace(low, high, points)
    values[[0, -1]] = low, high
    if whole:
        values = np.unique(np.round(values))
    return Axis(name, tuple(values.tolist()))


def _contest(local: Floats, minibatch: Floats, local_gamma: Floats, minibatch_gamma: Floats) -> Contest:
    log_ratio = np.log(local / minibatch)
    edge = np.log1p(TIE)
    winner = np.where(log_ratio < -edge, 1.0, np.where(log_ratio > edge, -1.0, 0.0))
    return Contest(local, minibatch, local_gamma, minibatch_gamma, log_ratio, winner)


def contestants() -> dict[str, list[tuple[str, Version]]]:
    """The theorems whose bounds are compared: mini-batch SGD, and local SGD with equal and with unequal Hessians.

    >>> for role, held in contestants().items():
    ...     print(role, held)
    minibatch [('minibatch', 'star')]
    equal [('equal-hessians', 'star')]
    unequal [('quadratic', 'sharp'), ('nonconvex', 'star')]
    """
    rates = {
        "minibatch": [covering("minibatch")],
        "equal": [covering("fedavg", objectives="equal Hessians")],
        "unequal": [covering("fedavg", objectives=objectives) for objectives in ("quadratic", "smooth")],
    }
    missing = [role for role, held in rates.items() if None in held]
    if missing:
        raise InputError(f"The map needs a theorem for each side, but none is registered for {', '.join(missing)}.")
    return {role: [(one.name, _sharpest(one)) for one in held if one is not None] for role, held in rates.items()}


def _sharpest(theorem: Theorem) -> Version:
    return "sharp" if theorem.default == "corrected" and "sharp" in theorem.versions else theorem.default


def _least(held: list[tuple[str, Version]], **values: Any) -> tuple[Floats, Floats]:
    """The least of several bounds, each at its best gamma, and that gamma."""
    total, gamma = np.asarray(np.inf), np.asarray(0.0)
    for name, version in held:
        tuned = best_gamma(name, version, **values)
        better = tuned.bound.total < total
        total, gamma = np.where(better, tuned.bound.total, total), np.where(better, tuned.gamma, gamma)
    return total, gamma


def _kappa(points: Mapping[str, Floats], dim: int, conditioning: float) -> Floats:
    """The largest 1 - eigenvalue/norm of the family's Hessians."""
    L_g, L_h = points["L_g"], points["L_h"]
    smallest = spectrum(1.0, dim, conditioning)[-1] * L_g
    kappa: Floats = np.maximum(1 - np.minimum(smallest, L_g - L_h) / L_g, 1 - smallest / (L_g + L_h))
    return kappa


def _by_closed_form(points: Mapping[str, Floats], dim: int, conditioning: float) -> tuple[Floats, Floats]:
    """Both sides' quotient of the paper's closed form, and that of its condition on the noise."""
    values: dict[str, Any] = {name: points[name] for name in ("F", "N", "L_g", "L_h", "I", "R")}
    values |= {"zeta2": points["zeta"] ** 2, "sigma2": points["sigma"] ** 2, "kappa": _kappa(points, dim, conditioning)}
    beats = local_beats_minibatch(**values)
    noise = beats.conditions[0]
    return np.asarray(beats.left) / beats.right, np.asarray(noise.value) / noise.limit


def _by_bounds(points: Mapping[str, Floats], dim: int, conditioning: float) -> tuple[Floats, ...]:
    v: dict[str, Any] = {name: points[name] for name in ("F", "N", "L_g", "I", "R")}
    v["sigma2"] = points["sigma"] ** 2
    L_g, L_h = points["L_g"], points["L_h"]
    roles = contestants()
    minibatch, minibatch_gamma = _least(roles["minibatch"], **v)
    equal, equal_gamma = _least(roles["equal"], **v)
    kappa = _kappa(points, dim, conditioning)
    rest = {"zeta2": points["zeta"] ** 2, "L_h": L_h, "L_tilde": L_g + L_h, "kappa": kappa}
    unequal, unequal_gamma = _least(roles["unequal"], **v, **rest)
    cases = [points["I"] == 1, L_h == 0]
    total = np.select(cases, [minibatch, equal], unequal)
    gamma = np.select(cases, [minibatch_gamma, equal_gamma], unequal_gamma)
    return total, minibatch, gamma, minibatch_gamma


def _exactly(points: Mapping[str, Floats], dim: int, conditioning: float) -> tuple[Floats, ...]:
    L_g = float(points["L_g"][0])
    rest = {name: value for name, value in points.items() if name != "L_g"}
    high = np.full(points["I"].shape, 1 / L_g)
    rows = []
    for minibatch in (False, True):

        def value(gamma: Floats, minibatch: bool = minibatch) -> Floats:
            return average_grad2(gamma, L_g=L_g, minibatch=minibatch, dim=dim, conditioning=conditioning, **rest)

        gamma = minimise(value, _SMALLEST * high, high)
        rows.append((value(gamma), gamma))
    (local, local_gamma), (other, other_gamma) = rows
    return local, other, local_gamma, other_gamma


def _check(fixed: Mapping[str, float], axes: tuple[Axis, Axis]) -> dict[str, float]:
    for name in fixed:
        if name not in DEFAULTS:
            raise InputError(f"The region has no symbol {name}; {nearest(name, DEFAULTS)}")
    if axes[0].name == axes[1].name:
        raise InputError(f"The two axes must differ, not both be {axes[0].name}; choose two of {', '.join(RANGES)}.")
    for axis in axes:
        if axis.name in fixed:
            raise InputError(f"{axis.name} is an axis; leave {axis.name}=… out or choose another axis.")
    values = {**DEFAULTS, **fixed}
    names = {"sigma": "sigma2", "zeta": "zeta2"}
    check_values({name: value for name, value in values.items() if name not in names})
    for name in names:
        if not (np.isfinite(values[name]) and values[name] >= 0):
            raise InputError(f"{name} must be a finite number of at least 0, not {values[name]!r}.")
    for name, most in _LARGEST.items():
        largest = max(axis.values[-1] if axis.name == name else values[name] for axis in axes)
        if largest > most:
            raise InputError(f"{name} must be at most {most:,} here, not {largest:g}.")
    positive("F", values["F"])
    positive("L_g", values["L_g"])
    if values["N"] % 2:
        raise InputError(f"N must be even, not {values['N']!r}: the family has two kinds of workers.")
    largest = max(axis.values[-1] if axis.name == "L_h" else values["L_h"] for axis in axes)
    if largest > values["L_g"]:
        raise InputError(f"L_h must be at most L_g = {values['L_g']:g}, not {largest:g}, so that each F_i is convex.")
    return values


def compute(
    x: Axis,
    y: Axis,
    *,
    dim: int = 6,
    conditioning: float = 100.0,
    progress: Progress = silent,
    **fixed: Any,
) -> Region:
    """Compute the map that shows which method wins at each point.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        dim: dimension of the family, at least 2.
        conditioning: L_g divided by the smallest curvature of the family.
        progress: called with ``region``, the number of finished points and the number of all points.
        **fixed: values of F, N, L_g and of those of sigma, zeta, L_h, I, R that are on no axis; see :data:`DEFAULTS`.

    >>> region = compute(make_axis("sigma", points=3), make_axis("I", (1, 16), 2), L_h=0.0)
    >>> region.bound.winner.tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    values = _check(fixed, (x, y))
    count("dim", dim, least=2)
    if positive("conditioning", conditioning) < 1:
        raise InputError(f"conditioning must be at least 1, not {conditioning!r}.")
    columns, rows = np.meshgrid(np.array(x.values), np.array(y.values))
    grid = {name: np.full(columns.size, float(value)) for name, value in values.items()}
    grid |= {x.name: columns.ravel(), y.name: rows.ravel()}
    pieces: list[tuple[tuple[Floats, ...], tuple[Floats, ...]]] = []
    progress("region", 0, columns.size)
    for first in range(0, columns.size, _CHUNK):
        part = {name: value[first : first + _CHUNK] for name, value in grid.items()}
        pieces.append((_by_bounds(part, dim, conditioning), _exactly(part, dim, conditioning)))
        progress("region", min(first + _CHUNK, columns.size), columns.size)

    def joined(side: int) -> Contest:
        whole = (np.concatenate(part).reshape(columns.shape) for part in zip(*(p[side] for p in pieces), strict=True))
        return _contest(*whole)

    limit = np.sqrt(grid["F"] * grid["N"] * grid["L_g"] / (grid["R"] * grid["I"]))
    corollary = (grid["sigma"] / limit).reshape(columns.shape) if not grid["L_h"].any() else None
    kept = {name: float(value) for name, value in values.items() if name not in (x.name, y.name)}
    closed = (side.reshape(columns.shape) for side in _by_closed_form(grid, dim, conditioning))
    return Region(x, y, {**kept, "dim": dim, "conditioning": conditioning}, joined(0), joined(1), corollary, *closed)


# -- what a map says ---------------------------------------------------------------------------------------------------


@view.register
def view_of_region(found: Region) -> View:
    """Who wins how much of the map, and the map with the borders of the bounds and of the paper's closed forms."""
    fixed = ", ".join(f"{name} = {value:g}" for name, value in found.fixed.items())
    return View(
        (found.summary,), title=f"{found.y.name} over {found.x.name} at {fixed}", charts=(_region_map(found, fixed),)
    )


def _region_map(found: Region, fixed: str) -> FieldMap:
    edge = -float(np.log1p(TIE))  # where local SGD begins to win
    borders = [
        Border("border by exact expectations", found.exact.log_ratio, edge, None, "line", _who(found.exact, edge)),
        Border("border by the bounds", found.bound.log_ratio, edge, 4, "dashed", _who(found.bound, edge)),
    ]
    if found.corollary is not None:
        label = r"Corollary 5.6: $\sigma^2 = \mathcal{F} N L_g/(RI)$"
        borders.append(Border(label, found.corollary, 1.0, 1, "dots", "beyond the map"))
    if (found.closed_noise <= 1).any():
        stated = np.ma.masked_where(found.closed_noise > 1, found.closed)
        label = "border by the closed form after A.3 and A.4"
        absent = "local SGD wins nowhere" if stated.min() >= 1 else "local SGD wins everywhere"
        borders.append(Border(label, stated, 1.0, 2, "steps", absent))
    return FieldMap(
        "region",
        found.exact.log_ratio,
        found.x.values,
        found.y.values,
        borders,
        title="Green: local SGD wins; purple: mini-batch SGD wins",
        x_label=_label(found.x),
        y_label=_label(found.y),
        bar_label="exact $E|\\nabla f|^2$ of local SGD / of mini-batch SGD",
        note=fixed,
        log_x=found.x.log,
        log_y=found.y.log,
        winners=(found.exact.winner.astype(int).tolist(), found.bound.winner.astype(int).tolist()),
    )


def _who(contest: Contest, edge: float) -> str:
    return "local SGD wins nowhere" if contest.log_ratio.min() >= edge else "local SGD wins everywhere"


def _label(axis: Axis) -> str:
    return f"${symbol(axis.name).latex}$: {symbol(axis.name).meaning}"
