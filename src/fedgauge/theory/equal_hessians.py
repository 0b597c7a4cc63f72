"""Theorem 5.5, first half: local SGD on quadratics that share one Hessian, so that L_h = 0.

Setting:
    F_i = x'Ax/2 + b_i'x + c_i with the same A for all workers, unbiased gradients of variance sigma2, eta = 1. The
    divergence zeta2 may be anything.
Quantity:
    min_t E|grad f(xhat^t)|^2 over all local steps t < R I, at the mean of the local models; the average over t obeys
    the same bound. At the global models alone the bound does not hold.
Conditions:
    gamma <= 1/L_g; for ``star`` 2/L_g
    eta = 1, and L_h = 0 where an L_h is given: exactly 0, because with any other L_h a large enough zeta2 breaks it
Bound:
    2 F/(gamma R I) + gamma L_g sigma2/N
    ``star``: F/(gamma R I (1 - gamma L_g/2)) + gamma L_g sigma2/(2 N (1 - gamma L_g/2)), never more.
Source:
    Theorem 5.5; the constants are those of its proof, re-derived and right as printed. With one Hessian L_tilde is
    L_g, so that ``prior`` only renames it. ``star`` keeps what the proof rounds up: the mean of the local models takes
    R I steps of SGD, each of which descends by gamma (1 - gamma L_g/2) |grad f|^2 at least.

>>> from fedgauge.theory import evaluate
>>> bound = evaluate("equal-hessians", "corrected", F=1, I=10, R=10, N=4, sigma2=0.08, L_g=1, gamma=1)
>>> [(term.formula, round(term.value, 6)) for term in bound.terms]
[('2 F/(gamma R I)', 0.02), ('gamma L_g sigma2/N', 0.02)]
"""

from __future__ import annotations

from fedgauge.theory.base import AS_PRINTED, Statement, Theorem, at_most, descent, equals_one, over, term
from fedgauge.theory.inputs import GRADIENT_NOISE, INITIAL_GAP, Quantity, Values
from fedgauge.values import Condition, Version


def _state(version: Version, v: Values) -> Statement:
    rest = equals_one(v), Condition("L_h", "0", 0.0, v["L_h"])
    if version == "star":
        terms, limit = descent(v, "gamma", "gamma R I", "N")
        return Statement(terms, (limit, *rest))
    return Statement(
        (
            term(v, "initial gap", 2, "F", "gamma R I"),
            term(v, "gradient noise", 1, "gamma L_g sigma2", "N"),
        ),
        (at_most(v, "gamma", "1/L_g", over(1.0, v["L_g"])), *rest),
    )


THEOREM = Theorem(
    name="equal-hessians",
    title="local SGD, quadratics with one Hessian",
    locator="Theorem 5.5",
    needs=("F", "I", "R", "N", "sigma2", "L_g", "gamma"),
    versions={
        "printed": (),
        "corrected": (AS_PRINTED,),
        "star": ("What the proof has before it rounds 1 - gamma L_g/2 down to 1/2: half as much at small gamma.",),
        "prior": ("L_tilde is written for L_g; with one Hessian they are equal.",),
    },
    state=_state,
    algorithm="fedavg",
    quantity=Quantity("min_t E|grad f(xhat^t)|^2", "grad2", "least", "local steps"),
    terms=(INITIAL_GAP, GRADIENT_NOISE),
    objectives="equal Hessians",
    eta="one",
    rate_shape="powers",
    rate_shapes={"star": "inverse"},
    optional={"eta": 1.0, "L_h": 0.0},
)
