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

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fedgauge.theory.base import IN_PLACE, Statement, Theorem, at_most, over, smoothness_limit, term
from fedgauge.theory.facts import (
    GRADIENT_NOISE,
    INITIAL_GAP,
    LOCAL_DIVERGENCE,
    NOISE_OF_MEAN,
    NOISE_OF_WORKERS,
    Counterexample,
    Coverage,
    Quantity,
    TermFacts,
)
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


SAMPLING_DIVERGENCE = TermFacts(
    "sampling divergence", "the different gradients of the workers that happen to be drawn", "divergence", 5
)


def _largest_eta(M: int) -> float:
    """The global rates that need no more than the conditions where workers are drawn without replacement.

    The proof then asks for gamma eta <= 1/(2 I L_g). Up to M = 8 that follows from gamma eta <= M/(16 I L_g), and up to
    eta = 5 sqrt(3) from gamma <= 1/(10 sqrt(3) I L_g).
    """
    return math.inf if M <= 8 else 5 * math.sqrt(3)


def _noise_of_shared_draws(v: Mapping[str, Any]) -> float:
    """What the gradient noise gains where a worker that is drawn twice runs once: 8 (M-1)/N in its constant."""
    return float(8 * (v["M"] - 1) / v["N"] * v["gamma"] * v["eta"] * v["L_g"] * v["sigma2"] / v["M"])


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
    return Statement(terms, tuple(conditions))


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
    algorithm="fedavg",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, SAMPLING_DIVERGENCE, NOISE_OF_MEAN, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    sampling="with-replacement",
    also_covers=(
        Coverage("without-replacement", _largest_eta, "5 sqrt(3) = 8.66"),
        Coverage("full", _largest_eta, "5 sqrt(3) = 8.66"),  # M = N without replacement
        Coverage("with-replacement-shared", extra=_noise_of_shared_draws),
    ),
    rate_shape="powers",
    # At gamma eta = M/16 every round multiplies the error of 48 equal workers with f = x^2/2 by -2.
    counterexample=Counterexample((((1.0,),),) * 48, (1.0,), {"I": 1, "R": 8, "M": 48, "eta": 3000.0}),
    optional={"eta": 1.0},
)
