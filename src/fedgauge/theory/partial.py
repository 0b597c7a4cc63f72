"""Theorem 4.5: FedAvg on smooth objectives with M of N workers sampled in each round.

Setting:
    As for Theorem 4.3, with M workers drawn uniformly. ``partial``: with replacement, and each draw is its own local
    run with its own noise. ``partial-shared``: with replacement, and a worker drawn twice runs once.
    ``partial-without``: without replacement. The paper leaves open which is meant; ``printed`` counts as the first.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the rounds r < R; the average over the rounds obeys the same bound.
Conditions:
    gamma eta <= M/(16 I L_g)
    gamma eta <= M/(2 (M-1) I L_g), for M >= 2 (not in print); without replacement M (N-1)/(2 N (M-1) I L_g)
    gamma <= 1/(10 sqrt(3) I L_g) (in print 1/(3 sqrt(10) I L_g))
    gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I)
Bound:
    8 F/(gamma eta I R) + 10 gamma eta L_g sigma2/M + 38 gamma eta L_g I zeta2/M + 80 gamma^2 L_g^2 (I-1) sigma2/N
    + 36 gamma^2 L_h^2 (I-1) sigma2 + 108 gamma^2 L_h^2 (I-1)^2 zeta2
    ``sharp`` keeps what the same proof gives: 8, 632/75, 832/25, 50, 36, 108; ``printed`` has 33 and 97 at the end.
    Where a worker drawn twice runs once, 8 (M-1)/N is added to the constant of the gradient noise.
    ``star``: Y^2, the larger root of P Y^2 = 2 Q Y + T + F/(gamma eta I R), under P > 0 alone, where P is that of
    Theorem 4.3; see :mod:`fedgauge.theory.star`. Without replacement, M = N is Theorem 4.3's.
Source:
    Theorem 4.5; the constants are those of its proof. As printed it is false from M = 31 on, and from M = 29 on for
    the average: 48 equal workers with f = x^2/2 diverge at gamma eta = 3. ``prior`` has L_tilde in place of L_g and
    L_h.

>>> from fedgauge.theory import evaluate
>>> values = dict(F=0.5, I=1, R=2, N=48, M=48, sigma2=0, zeta2=0, L_g=1, L_h=0, gamma=1e-3, eta=3000)
>>> [bool(evaluate("partial", version, **values).admissible) for version in ("printed", "corrected", "star")]
[True, False, False]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fedgauge.theory import star
from fedgauge.theory.base import IN_PLACE, Factor, Statement, Theorem, at_most, over, smoothness_limit, term
from fedgauge.theory.inputs import (
    GRADIENT_NOISE,
    INITIAL_GAP,
    LOCAL_DIVERGENCE,
    NOISE_OF_MEAN,
    NOISE_OF_WORKERS,
    Counterexample,
    Quantity,
    TermFacts,
    Values,
)
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


_STAR = (
    "A proof in norms instead of squares, by recursions over the local steps: one condition, P > 0, which neither L_h "
    "nor M enters, and constants 8 to 432 times smaller at small gamma."
)


def _own(v: Values) -> star.Draws:
    """With replacement, every draw a run of its own: only the draws of one worker share its gradients."""
    return star.Draws(1 / v["M"], 1 / v["M"])


def _shared(v: Values) -> star.Draws:
    """With replacement, a worker that is drawn twice runs once: its noise counts twice too."""
    return star.Draws(1.0, 1 / v["M"])


def _without(v: Values) -> star.Draws:
    """Without replacement, the variance of a mean of M out of N; none where M = N."""
    M, N = v["M"], v["N"]
    return star.Draws(1.0, (N - M) / (M * np.maximum(N - 1, 1)))


def _state(version: Version, v: Values, draws: Callable[[Values], star.Draws] = _own) -> Statement:
    if version == "star":
        return star.statement(v, draws(v))
    start, noise, sampling, mean, workers, divergence = _CONSTANTS[version]
    I, M, N, L_g = v["I"], v["M"], v["N"], v["L_g"]  # noqa: E741
    conditions = [at_most(v, "gamma eta", "M/(16 I L_g)", over(M, 16 * I * L_g))]
    if version == "printed":
        conditions.append(at_most(v, "gamma", "1/(3 sqrt(10) I L_g)", over(1.0, 3 * np.sqrt(10.0) * I * L_g)))
    else:
        limit, formula = over(M, 2 * (M - 1) * I * L_g), "M/(2 (M-1) I L_g)"
        if draws is _without:
            limit, formula = over(M * (N - 1), 2 * N * (M - 1) * I * L_g), "M (N-1)/(2 N (M-1) I L_g)"
        conditions.append(at_most(v, "gamma eta", formula, limit))
        conditions.append(at_most(v, "gamma", "1/(10 sqrt(3) I L_g)", over(1.0, 10 * np.sqrt(3.0) * I * L_g)))
    conditions.append(smoothness_limit(v))
    first = term(v, "gradient noise", noise, "gamma eta L_g sigma2", "M")
    if draws is _shared:
        twice = Factor(f"({noise} + 8 (M-1)/N)", float(noise) + 8 * (M - 1) / N, ("M", "N"))
        first = term(v, "gradient noise", 1, "twice gamma eta L_g sigma2", "M", {"twice": twice})
    terms = (
        term(v, "initial gap", start, "F", "gamma eta I R"),
        first,
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
        "star": (_STAR, _DEVIATIONS[-1]),
        "prior": (IN_PLACE,),
    },
    state=_state,
    algorithm="fedavg",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, SAMPLING_DIVERGENCE, NOISE_OF_MEAN, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    sampling="with-replacement",
    rate_shape="powers",
    rate_shapes={"star": "root"},
    rounds_to=lambda version, v, target: star.rounds_to(v, target, _own(v)),
    # At gamma eta = M/16 every round multiplies the error of 48 equal workers with f = x^2/2 by -2.
    counterexample=Counterexample((((1.0,),),) * 48, (1.0,), {"I": 1, "R": 8, "M": 48, "eta": 3000.0}),
    optional={"eta": 1.0},
)
_REST = _DEVIATIONS[1:3]
_ONCE = "A worker that is drawn twice runs once, which adds 8 (M-1)/N to the constant of the gradient noise."
_REPLACED = (
    "Workers are drawn without replacement, and gamma eta <= M (N-1)/(2 N (M-1) I L_g) is added; 1/(2 I L_g) is enough."
)
SHARED = replace(
    THEOREM,
    name="partial-shared",
    title="FedAvg, partial participation, a worker drawn twice runs once",
    versions={
        "corrected": (_DEVIATIONS[0], *_REST, _ONCE),
        "sharp": (_DEVIATIONS[0], *_REST, _ONCE, "The constants keep what the proof gives before it rounds them up."),
        "star": (_STAR, "A worker that is drawn twice runs once."),
        "prior": (IN_PLACE,),
    },
    state=lambda version, v: _state(version, v, _shared),
    sampling="with-replacement-shared",
    rounds_to=lambda version, v, target: star.rounds_to(v, target, _shared(v)),
    counterexample=None,
)
WITHOUT = replace(
    THEOREM,
    name="partial-without",
    title="FedAvg, partial participation, workers drawn without replacement",
    versions={
        "corrected": (_REPLACED, *_REST),
        "sharp": (_REPLACED, *_REST, "The constants keep what the proof gives before it rounds them up."),
        "star": (_STAR, "Workers are drawn without replacement: M = N is full participation."),
        "prior": (IN_PLACE,),
    },
    state=lambda version, v: _state(version, v, _without),
    sampling="without-replacement",
    rounds_to=lambda version, v, target: star.rounds_to(v, target, _without(v)),
    counterexample=None,
)
