"""Theorem 4.3's worst case with its error bar: the certificate, a federation near it, and what the theorems say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauge.errors import InputError
from fedgauge.theory import find
from fedgauge.theory.sdp import SdpBound, sdp_bound
from fedgauge.theory.worst_round import WorstRound, worst_round
from fedgauge.values import Kind, Value, is_safe

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
    found: dict[str, float | None] = {}
    for version in _VERSIONS:
        bound = find("nonconvex").evaluate(version, **values)  # type: ignore[arg-type]  # one of its versions
        found[version] = float(bound.total) if bound.admissible and math.isfinite(bound.total) else None
    return found


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
            f"N must be a whole number for the version sdp, not {used['N']:g}: it is about workers with equal weights."
        )
    counts = {"I": int(used["I"]), "N": int(used["N"])}
    found = sdp_bound(**{**used, **counts})
    below = found.bound if math.isfinite(found.bound) else 100 * used["L_g"] * used["F"] / used["R"]
    near = worst_round(**{**used, **counts}, below=below)
    gap = found.bound / near.grad2 if near.grad2 > 0 else math.inf
    gammas = np.geomspace(used["gamma"] / 10, used["gamma"] * 10, _POINTS).tolist() if curve else []
    curves: dict[str, tuple[float | None, ...]] = {}
    if curve:
        at = [{**used, "gamma": gamma} for gamma in gammas]
        certified = [sdp_bound(**{**one, **counts}).bound for one in at]
        curves["sdp"] = tuple(one if math.isfinite(one) else None for one in certified)
        rows = [_theorem(one) for one in at]
        curves |= {version: tuple(row[version] for row in rows) for version in _VERSIONS}
    held = {name: kind for name, kind in (kinds or {}).items() if name in used}
    return WorstCase(used, held, found, near, gap, _theorem(used), tuple(gammas), curves or None)
