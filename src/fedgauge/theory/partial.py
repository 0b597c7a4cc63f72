"""Theorem 4.5: FedAvg on smooth objectives with M of N workers sampled in each round.

Setting:
    As for Theorem 4.3, with M workers drawn uniformly with replacement. Each draw is its own local run with its own
    noise. Where a worker drawn twice runs once, add 8 (M-1)/N to the constant of the gradient noise; where workers
    are drawn without replacement, ask for gamma eta <= M (N-1)/(2 N (M-1) I L_g) instead of the second condition,
    for which 1/(2 I L_g) is enough.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the rounds r < R; the average over the rounds obeys the same bound.
Conditions:
    gamma eta <= M/(16 I L_g)
    gamma eta <= M/(2 (M-1) I L_g), for M >= 2 (not in print)
    gamma <= 1/(10 sqrt(3) I L_g) (in print 1/(3 sqrt(10) I L_g))
    gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I)
Bound:
    8 F/(gamma eta I R) + 10 gamma eta L_g sigma2/M + 38 gamma eta L_g I zeta2/M + 80 gamma^2 L_g^2 (I-1) sigma2/N
    + 36 gamma^2 L_h^2 (I-1) sigma2 + 108 gamma^2 L_h^2 (I-1)^2 zeta2
    ``sharp`` keeps what the same proof gives: 8, 632/75, 832/25, 50, 36, 108; ``printed`` has 33 and 97 at the end.
Source:
    Theorem 4.5; the constants are those of its proof. As printed it is false from M = 31 on, and from M = 29 on for
    the average: 48 equal workers with f = x^2/2 diverge at gamma eta = 3. ``prior`` has L_tilde in place of L_g and
    L_h.

>>> from fedgauge.theory import evaluate
>>> values = dict(F=0.5, I=1, R=2, N=48, M=48, sigma2=0, zeta2=0, L_g=1, L_h=0, gamma=1e-3, eta=3000)
>>> bool(evaluate("partial", version="printed", **values).admissible), bool(evaluate("partial", **values).admissible)
(True, False)
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fedgauge.theory.base import IN_PLACE, Statement, Theorem, at_most, over, smoothness_limit, term
from fedgauge.theory.inputs import Values
from fedgauge.values import Version

# initial gap, gradient noise, sampling divergence, local noise of the mean, of workers, local divergence
_CONSTANTS: dict[Version, tuple[float | Fraction, ...]] = {
    "printed": (8, 10, 38, 80, 33, 97),
    "corrected": (8, 10, 38, 80, 36, 108),
    "sharp": (8, Fraction(632, 75), Fraction(832, 25), 50, 36, 108),
}

_DEVIATIONS = (
    "gamma eta <= M/(2 (M-1) I L_g) is added: without it the proof drops a term of the wrong sign, and the statement "
    "is false for M >= 31.",
    "gamma <= 1/(10 sqrt(3) I L_g), as the proof uses it, replaces the statement's 1/(3 sqrt(10) I L_g).",
    "36 and 108 replace 33 and 97: the proof loses a factor in its last display.",
    "Every draw of a worker is its own run with its own noise, which the paper leaves open.",
)


def _state(version: Version, v: Values) -> Statement:
    start, noise, sampling, mean, workers, divergence = _CONSTANTS[version]
    I, M, L_g = v["I"], v["M"], v["L_g"]  # noqa: E741
    conditions = [at_most(v, "gamma eta", "M/(16 I L_g)", over(M, 16 * I * L_g))]
    if version == "printed":
        conditions.append(at_most(v, "gamma", "1/(3 sqrt(10) I L_g)", over(1.0, 3 * np.sqrt(10.0) * I * L_g)))
    else:
        conditions.append(at_most(v, "gamma eta", "M/(2 (M-1) I L_g)", over(M, 2 * (M - 1) * I * L_g)))
        conditions.append(at_most(v, "gamma", "1/(10 sqrt(3) I L_g)", over(1.0, 10 * np.sqrt(3.0) * I * L_g)))
    conditions.append(smoothness_limit(v))
    terms = (
        term(v, "initial gap", start, "F", "gamma eta I R"),
        term(v, "gradient noise", noise, "gamma eta L_g sigma2", "M"),
        term(v, "sampling divergence", sampling, "gamma eta L_g I zeta2", "M"),
        term(v, "local noise of the mean", mean, "gamma^2 L_g^2 (I-1) sigma2", "N"),
        term(v, "local noise of workers", workers, "gamma^2 L_h^2 (I-1) sigma2"),
        term(v, "local divergence", divergence, "gamma^2 L_h^2 (I-1)^2 zeta2"),
    )
    return Statement("min_r E|grad f(xbar^r)|^2", terms, tuple(conditions))


THEOREM = Theorem(
    name="partial",
    title="FedAvg, partial participation, smooth objectives",
    locator="Theorem 4.5",
    needs=("F", "I", "R", "N", "M", "sigma2", "zeta2", "L_g", "L_h", "gamma"),
    versions={
        "printed": (),
        "corrected": _DEVIATIONS,
        "sharp": (*_DEVIATIONS, "The constants keep what the proof gives before it rounds them up."),
        "prior": (IN_PLACE,),
    },
    state=_state,
    optional={"eta": 1.0},
)
