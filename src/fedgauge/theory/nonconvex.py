"""Theorem 4.3: FedAvg on smooth objectives, convex or not, with every worker in every round.

Setting:
    Unbiased stochastic gradients of variance sigma2, gradient divergence zeta2, f is L_g-smooth and the averaged
    gradients are pseudo-Lipschitz with L_h. Any L_h of Assumption 4.2 will do, the tight one included. The proof uses
    zeta2 only as the mean over workers at the local models, so a value measured there may be used.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the rounds r < R; the average over the rounds obeys the same bound.
Conditions:
    gamma eta <= 1/(2 I L_g)
    gamma <= 1/(2 sqrt(30) I L_g)
    gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I), which ``sharp`` does without
Bound:
    4 F/(gamma eta I R) + 4 gamma eta L_g sigma2/N + 20 gamma^2 L_g^2 (I-1) sigma2/N
    + 24 gamma^2 L_h^2 (I-1) sigma2 + 72 gamma^2 L_h^2 (I-1)^2 zeta2
    ``sharp``: 600/59 and 1200/59 for 24 and 72.
    ``star``: Y^2, the larger root of P Y^2 = 2 Q Y + T + F/(gamma eta I R), under P > 0 alone; see
    :mod:`fedgauge.theory.star`. At small gamma its constants are 1, 1/2 and 1/4 for 4, 4 and 72.
Source:
    Theorem 4.3; the constants are those of its proof, re-derived and right as printed. ``prior`` has L_tilde in place
    of L_g and L_h. ``sharp`` is fedgauge's: the mean of the gradients is the best centre for them, so Lemma B.1 holds
    with 2 L_g^2 and 2 zeta2 and no L_h, and L_h never limits the rate. ``star`` is fedgauge's too: a proof of its own,
    in norms instead of squares.

>>> from fedgauge.theory import evaluate
>>> values = dict(F=1, I=1, R=100, N=8, sigma2=0, zeta2=5, L_g=1, L_h=0.1)
>>> bound = evaluate("nonconvex", "corrected", gamma=0.08, **values)
>>> round(bound.total, 6), bool(bound.certified), round(bound.gamma_max, 6)
(0.5, True, 0.091287)
>>> bound = evaluate("nonconvex", gamma=1, **values)  # one step of gradient descent at 1/L_g: 2 F L_g/R
>>> round(bound.total, 6), bool(bound.certified), round(bound.gamma_max, 6)
(0.02, True, 2.0)
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fedgauge.theory import star
from fedgauge.theory.base import AS_PRINTED, IN_PLACE, Statement, Theorem, at_most, over, smoothness_limit, term
from fedgauge.theory.inputs import (
    GRADIENT_NOISE,
    INITIAL_GAP,
    LOCAL_DIVERGENCE,
    NOISE_OF_MEAN,
    NOISE_OF_WORKERS,
    Quantity,
    Values,
)
from fedgauge.values import Version


def _state(version: Version, v: Values) -> Statement:
    if version == "star":
        return star.statement(v)
    sharp = version == "sharp"
    noise, divergence = (Fraction(600, 59), Fraction(1200, 59)) if sharp else (24, 72)
    return Statement(
        (
            term(v, "initial gap", 4, "F", "gamma eta I R"),
            term(v, "gradient noise", 4, "gamma eta L_g sigma2", "N"),
            term(v, "local noise of the mean", 20, "gamma^2 L_g^2 (I-1) sigma2", "N"),
            term(v, "local noise of workers", noise, "gamma^2 L_h^2 (I-1) sigma2"),
            term(v, "local divergence", divergence, "gamma^2 L_h^2 (I-1)^2 zeta2"),
        ),
        (
            at_most(v, "gamma eta", "1/(2 I L_g)", over(1.0, 2 * v["I"] * v["L_g"])),
            at_most(v, "gamma", "1/(2 sqrt(30) I L_g)", over(1.0, 2 * np.sqrt(30.0) * v["I"] * v["L_g"])),
            *(() if sharp else (smoothness_limit(v),)),
        ),
    )


THEOREM = Theorem(
    name="nonconvex",
    title="FedAvg, full participation, smooth objectives",
    locator="Theorem 4.3",
    needs=("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "gamma"),
    versions={
        "printed": (),
        "corrected": (AS_PRINTED,),
        "sharp": ("Lemma B.1 about grad f at the mean model: no limit by L_h, 600/59 and 1200/59 for 24 and 72.",),
        "star": (
            "A proof in norms instead of squares, by recursions over the local steps: one condition, P > 0, which L_h "
            "does not enter, and constants 4 to 288 times smaller at small gamma.",
        ),
        "prior": (IN_PLACE,),
    },
    state=_state,
    algorithm="fedavg",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, NOISE_OF_MEAN, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    rate_shape="powers",
    rate_shapes={"star": "root"},
    rounds_to=lambda version, v, target: star.rounds_to(v, target),
    optional={"eta": 1.0},
)
