"""Theorem A.2: local SGD on quadratics whose Hessians differ.

Setting:
    F_i = x'A_i x/2 + b_i'x + c_i, unbiased gradients of variance sigma2, eta = 1; zeta2 is the mean over workers of
    |grad F_i - grad f|^2 at the global models only. L_tilde is the largest |A_i|, kappa the largest
    1 - eigenvalue/norm of an A_i, varphi = max(1, kappa), phi = 1 + varphi^2 + ... + varphi^(2I-2).
    L_h alone must be Proposition 5.3's max|A_i - A|. The tight L_h may be given as well, together with
    L_h_rms = sqrt(mean_i |A_i - A|^2) or anything above it: the proof needs that one for one of its two factors.
Quantity:
    min_t E|grad f(xhat^t)|^2 over all local steps t < R I, at the mean of the local models; the average over t obeys
    the same bound.
Conditions:
    gamma <= 1/L_tilde
    gamma <= 1/(2 sqrt(L_h L_h_rms) K^(1/4)), K = sum_{k<I} k sum_{0<l<k} l^2 varphi^(2l-2)
    eta = 1, and L_g <= L_tilde, which their definitions imply
    ``sharp``: sqrt(2) in place of 2. ``printed``: gamma <= 1/(2 L_h I) and
    gamma <= (varphi^2-1)^3/(2 L_h varphi^(2I+4)), which leaves no gamma at all where kappa <= 1.
Bound:
    4 F/(gamma R I) + 2 gamma L_g sigma2/N + 4 gamma^2 L_h^2 phi sigma2 + 16 gamma^2 L_h^2 I phi zeta2
    ``sharp``: 4, 2, 2, 4.
Source:
    Theorem A.2. The print adds two gradients at different models as if they were one; charging a round's drift to its
    first step fixes that and gives K. ``sharp`` bounds the spread about the mean by that about grad f's own path.
    ``prior`` has L_tilde for L_g and L_h, and 2 L_tilde for L_h_rms.

>>> from fedgauge.theory import evaluate
>>> values = dict(F=1, I=8, R=100, N=4, sigma2=1, zeta2=1, L_g=1, L_h=0.5, L_tilde=1.5, kappa=0.9, gamma=0.1)
>>> [round(evaluate("quadratic", version=version, **values).gamma_max, 4) for version in ("printed", "corrected")]
[0.0, 0.1703]
"""

from __future__ import annotations

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import IN_PLACE, Statement, Theorem, at_most, equals_one, ordered, over, recordable, term
from fedgauge.theory.inputs import GRADIENT_NOISE, INITIAL_GAP, LOCAL_DIVERGENCE, NOISE_OF_WORKERS, Quantity, Values
from fedgauge.values import Condition, Version

_CONSTANTS: dict[Version, tuple[int, int, int, int]] = {
    "printed": (4, 2, 4, 16),
    "corrected": (4, 2, 4, 16),
    "sharp": (4, 2, 2, 4),
}
_DEVIATIONS = (
    "gamma <= 1/(2 sqrt(L_h L_h_rms) K^(1/4)) replaces the printed condition, which is empty where kappa <= 1 and "
    "never weaker elsewhere.",
    "L_h stands for max|A_i - A| (Proposition 5.3) unless L_h_rms is given.",
)


def geometric_sum(varphi: Floats, terms: Floats) -> Floats:
    """Return 1 + varphi^2 + ... + varphi^(2 terms - 2), also where varphi is 1 or the sum overflows.

    >>> geometric_sum(np.array([1.0, 2.0]), np.array([3.0, 3.0])).round(9).tolist()
    [3.0, 21.0]
    """
    log = np.log1p(np.maximum(varphi - 1, 0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(log > 0, np.expm1(2 * terms * log) / np.expm1(2 * np.where(log > 0, log, 1.0)), terms)


@recordable
def drift_sum_root(varphi: Floats, I: Floats) -> Floats:  # noqa: E741
    """Return K^(1/4) for K = sum_{k<I} k sum_{0<l<k} l^2 varphi^(2l-2).

    K/varphi^(2I-6) is summed instead, which stays small; where varphi is 1 it is a polynomial in I.

    >>> (drift_sum_root(np.array([1.0, 2.0]), np.array([4.0, 4.0])) ** 4).round(9).tolist()
    [17.0, 53.0]
    """
    n = I - 1
    polynomial = (n - 1) * n * (n + 1) * (n * (8 * n + 5) - 2) / 120  # sum_{k<=n} k^2 (k-1) (2k-1)/6
    shrink = 1 / (varphi * varphi)
    inner = total = np.zeros(np.broadcast_shapes(I.shape, varphi.shape))
    last = int(np.max(np.where(varphi > 1, I, 0), initial=0))
    for k in range(2, last):
        inner = inner * shrink + (k - 1.0) ** 2
        total = np.where(k < I, total * shrink + k * inner, total)
    with np.errstate(over="ignore", invalid="ignore"):
        grown = total**0.25 * varphi ** ((I - 3) / 2)
    return np.where(varphi > 1, np.where(total > 0, grown, 0.0), np.maximum(polynomial, 0.0) ** 0.25)


def _limits(version: Version, v: Values) -> list[Condition]:
    I, L_h, varphi = v["I"], v["L_h"], v["varphi"]  # noqa: E741
    if version == "printed":
        above = (varphi - 1) * (varphi + 1)  # varphi^2 - 1, to the last digit where varphi is near 1
        limit = over(above**3 * varphi ** (-2 * I - 4), 2 * L_h)
        return [
            at_most(v, "gamma", "1/(2 L_h I)", over(1.0, 2 * L_h * I)),
            at_most(v, "gamma", "(varphi^2-1)^3/(2 L_h varphi^(2I+4))", limit),
        ]
    front = np.sqrt(2.0) if version == "sharp" else 2.0
    L_h_rms = v.get("L_h_rms", L_h)
    bottom = front * np.sqrt(L_h * L_h_rms) * np.where(L_h > 0, drift_sum_root(varphi, I), 0.0)
    text = "sqrt(2)" if version == "sharp" else "2"
    formula = f"1/({text} sqrt(L_h L_h_rms) K^(1/4)), K = sum_{{k<I}} k sum_{{0<l<k}} l^2 varphi^(2l-2)"
    return [at_most(v, "gamma", formula, over(1.0, bottom))]


def _state(version: Version, v: Values) -> Statement:
    varphi = np.maximum(v["kappa"], 1.0)
    v = {**v, "varphi": varphi, "phi": geometric_sum(varphi, v["I"])}
    start, noise, local_noise, divergence = _CONSTANTS[version]
    return Statement(
        (
            term(v, "initial gap", start, "F", "gamma R I"),
            term(v, "gradient noise", noise, "gamma L_g sigma2", "N"),
            term(v, "local noise of workers", local_noise, "gamma^2 L_h^2 phi sigma2"),
            term(v, "local divergence", divergence, "gamma^2 L_h^2 I phi zeta2"),
        ),
        (
            at_most(v, "gamma", "1/L_tilde", over(1.0, v["L_tilde"])),
            *_limits(version, v),
            equals_one(v),
            ordered(v, "L_g", "L_tilde"),
        ),
    )


THEOREM = Theorem(
    name="quadratic",
    title="local SGD, quadratics with different Hessians",
    locator="Theorem A.2",
    needs=("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "L_tilde", "gamma", "kappa"),
    versions={
        "printed": (),
        "corrected": _DEVIATIONS,
        "sharp": (*_DEVIATIONS, "The spread is taken about the path of grad f: 2, 4 and sqrt(2) for 4, 16 and 2."),
        "prior": (IN_PLACE, "|A_i - A| is at most 2 L_tilde, which stands for L_h_rms."),
    },
    state=_state,
    algorithm="fedavg",
    quantity=Quantity("min_t E|grad f(xhat^t)|^2", "grad2", "least", "local steps"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    objectives="quadratic",
    eta="one",
    rate_shape="powers",
    zeta_at="global models",
    constants_from={"printed": {"L_h": "L_h_paper"}},
    optional={"eta": 1.0, "L_h_rms": None},
)
