"""Theorem A.5: FedAvg with momentum in the local steps, the momentum averaged with the models.

Setting:
    As for Theorem 4.3, with u_i <- beta u_i + g_i and x_i <- x_i - gamma u_i on every worker, both averaged after I
    steps (Yu et al. 2019, which is not FedAvgM), and eta = 1.
Quantity:
    (1/T) sum_t E|grad f(xhat^t)|^2 over all T = R I local steps, at the mean of the local models.
Conditions:
    gamma <= (1-beta)^2/(L_g (1+beta))
    gamma <= (1-beta)/(sqrt(18 (L_g^2 + L_h^2)) I)
    eta = 1
Bound:
    2 (1-beta) F/(gamma R I) + gamma L_g sigma2/(N (1-beta)^2)
    + 3 gamma^2 L_h^2 I sigma2/(1-beta)^2 + 9 gamma^2 L_h^2 I^2 zeta2/(1-beta)^2
Source:
    Theorem A.5, re-derived and right as printed (its Lemma B.4 prints 1-beta^2 for (1-beta)^2, the theorem does not).
    ``prior`` is the bound of Yu et al. 2019 as the paper quotes it: L_tilde in place, I <= (1-beta)/(6 L_tilde gamma).

>>> from fedgauge.theory import evaluate
>>> values = dict(F=1, I=2, R=100, N=4, sigma2=1, zeta2=1, L_g=1, L_h=0, L_tilde=1, gamma=0.05, beta=0.5)
>>> round(evaluate("momentum", **values).total, 6), round(evaluate("momentum", version="prior", **values).total, 6)
(0.15, 0.57)
"""

from __future__ import annotations

import numpy as np

from fedgauge.theory.base import AS_PRINTED, Factor, Statement, Theorem, at_most, equals_one, over, term
from fedgauge.theory.facts import GRADIENT_NOISE, INITIAL_GAP, LOCAL_DIVERGENCE, NOISE_OF_WORKERS, Quantity
from fedgauge.theory.inputs import Values
from fedgauge.values import Version


def _state(version: Version, v: Values) -> Statement:
    rest = 1 - v["beta"]
    factors = {"rest": Factor("(1-beta)", rest, ("beta",))}
    both = np.sqrt(18 * (v["L_g"] * v["L_g"] + v["L_h"] * v["L_h"]))
    return Statement(
        (
            term(v, "initial gap", 2, "rest F", "gamma R I", factors),
            term(v, "gradient noise", 1, "gamma L_g sigma2", "N rest^2", factors),
            term(v, "local noise of workers", 3, "gamma^2 L_h^2 I sigma2", "rest^2", factors),
            term(v, "local divergence", 9, "gamma^2 L_h^2 I^2 zeta2", "rest^2", factors),
        ),
        (
            at_most(v, "gamma", "(1-beta)^2/(L_g (1+beta))", over(rest * rest, v["L_g"] * (1 + v["beta"]))),
            at_most(v, "gamma", "(1-beta)/(sqrt(18 (L_g^2 + L_h^2)) I)", over(rest, both * v["I"])),
            equals_one(v),
        ),
    )


THEOREM = Theorem(
    name="momentum",
    title="FedAvg with averaged local momentum",
    locator="Theorem A.5",
    needs=("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "gamma", "beta"),
    versions={
        "printed": (),
        "corrected": (AS_PRINTED,),
        "prior": ("The bound of Yu et al. 2019 as the paper quotes it, with L_tilde in place of L_g and L_h.",),
    },
    state=_state,
    algorithm="momentum",
    quantity=Quantity("(1/T) sum_t E|grad f(xhat^t)|^2", "grad2", "average", "local steps"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    eta="one",
    rate_shape="powers",
    optional={"eta": 1.0},
)
