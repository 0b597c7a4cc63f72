"""Theorem A.7: FedAdam, which scales the server's step by a running second moment.

Setting:
    As for Theorem 4.3, with every entry of a stochastic gradient at most G in size. The server keeps
    v <- beta2 v + (1-beta2) Delta^2 from v = 0 and steps by eta Delta/(sqrt(v) + tau), with no bias correction. The
    proof covers beta1 = 0. G may be the largest entry that occurs in the run, as the proof needs no other.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the rounds r < R.
Conditions:
    gamma <= 1/(16 I L_g)
    gamma <= 1/(sqrt(6 (L_h^2 + L_g^2)) I)
    gamma <= tau^(1/3)/(16 I (120 L_g^2 G)^(1/3))
    gamma <= tau/(13 I (2 G + eta L_g)) (in print tau/(6 (2 G + eta L_g)), without I)
    beta1 = 0
Bound:
    With P = sqrt(beta2) gamma I G + tau and Q = sqrt(1-beta2) G + eta L_g/2:
    8 P F/(gamma eta I R) + 40 P gamma^2 L_g^2 (I-1) sigma2/(tau N) + 35.75 P gamma^2 L_h^2 (I-1) sigma2/tau
    + 107.25 P gamma^2 L_h^2 (I-1)^2 zeta2/tau + 33.25 P Q gamma sigma2/(tau^2 N)
    + 286 P Q gamma^3 L_h^2 (I-1)^2 sigma2/tau^2 + 858 P Q gamma^3 L_h^2 (I-1)^3 zeta2/tau^2
Source:
    Theorem A.7. As printed it is false for long rounds: f = x^2/2, tau = 1, beta2 = 0.99, I = 24, eta = 192, R = 5
    breaks it. The re-derivation spends 1/2 of the descent on Young's inequality, 1/4 on the drift and 1/8 on the
    second moment, and keeps 1/8. It does not need the third condition, which is print's, once the fourth has 13 I.
    ``printed`` reads its K as I and keeps its L_h where units ask for L_h^2. ``prior`` has L_tilde in place.

>>> from fedgauge.theory import evaluate
>>> values = dict(F=5e-9, I=24, R=5, N=1, sigma2=0, zeta2=0, L_g=1, L_h=0, tau=1, G=1e-4, beta2=0.99, eta=192)
>>> [bool(evaluate("fedadam", version=v, gamma=8e-4, **values).admissible) for v in ("printed", "corrected")]
[True, False]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgauge.theory.base import IN_PLACE, Factor, Statement, Theorem, at_most, over, smoothness_limit, term
from fedgauge.theory.inputs import (
    INITIAL_GAP,
    LOCAL_DIVERGENCE,
    NOISE_OF_MEAN,
    NOISE_OF_WORKERS,
    Counterexample,
    Quantity,
    TermFacts,
    Values,
)
from fedgauge.values import Condition, Term, Version

_DEVIATIONS = (
    "gamma <= tau/(13 I (2 G + eta L_g)) replaces tau/(6 (2 G + eta L_g)): without I the statement is false.",
    "40, 35.75, 107.25, 33.25, 286 and 858 replace gamma L_g, 32, 96, 32, 256 and 768: the proof loses factors of 2 "
    "and a noise term.",
    "I-1 replaces I in the local terms, and L_h^2 replaces the L_h of the local noise.",
    "beta1 = 0 is a condition, as in the proof, and the second moment starts at 0.",
)


_SECOND_MOMENT = (
    TermFacts("second moment, gradient noise", "the gradient noise in the second moment", "noise", 5),
    TermFacts("second moment, local noise of workers", "the local noise in the second moment", "noise", 6),
    TermFacts("second moment, local divergence", "the local divergence in the second moment", "divergence", 7),
)


def _factors(v: Values) -> dict[str, Factor]:
    P = np.sqrt(v["beta2"]) * v["gamma"] * v["I"] * v["G"] + v["tau"]
    Q = np.sqrt(1 - v["beta2"]) * v["G"] + v["eta"] * v["L_g"] / 2
    return {
        "P": Factor("(sqrt(beta2) gamma I G + tau)", P, ("beta2", "gamma", "I", "G", "tau")),
        "Q": Factor("(sqrt(1-beta2) G + eta L_g/2)", Q, ("beta2", "G", "eta", "L_g")),
    }


def _terms(version: Version, v: Values) -> tuple[Term, ...]:
    f = _factors(v)
    if version == "printed":
        return (
            term(v, "initial gap", 8, "P F", "gamma eta I R", f),
            term(v, "local noise of the mean", 1, "P gamma L_g sigma2", "tau N", f),
            term(v, "local noise of workers", 32, "P gamma^2 L_h I sigma2", "tau", f),
            term(v, "local divergence", 96, "P gamma^2 I^2 L_h^2 zeta2", "tau", f),
            term(v, "second moment, gradient noise", 32, "P Q gamma sigma2", "N tau^2", f),
            term(v, "second moment, local noise of workers", 256, "P Q gamma^3 L_h^2 I^2 sigma2", "tau^2", f),
            term(v, "second moment, local divergence", 768, "P Q gamma^3 L_h^2 I^3 zeta2", "tau^2", f),
        )
    return (
        term(v, "initial gap", 8, "P F", "gamma eta I R", f),
        term(v, "local noise of the mean", 40, "P gamma^2 L_g^2 (I-1) sigma2", "tau N", f),
        term(v, "local noise of workers", 35.75, "P gamma^2 L_h^2 (I-1) sigma2", "tau", f),
        term(v, "local divergence", 107.25, "P gamma^2 L_h^2 (I-1)^2 zeta2", "tau", f),
        term(v, "second moment, gradient noise", 33.25, "P Q gamma sigma2", "N tau^2", f),
        term(v, "second moment, local noise of workers", 286, "P Q gamma^3 L_h^2 (I-1)^2 sigma2", "tau^2", f),
        term(v, "second moment, local divergence", 858, "P Q gamma^3 L_h^2 (I-1)^3 zeta2", "tau^2", f),
    )


def _state(version: Version, v: Values) -> Statement:
    I, G, L_g, tau = v["I"], v["G"], v["L_g"], v["tau"]  # noqa: E741
    both = 2 * G + v["eta"] * L_g
    if version == "printed":
        last = [at_most(v, "gamma", "tau/(6 (2 G + eta L_g))", over(tau, 6 * both))]
    else:
        last = [
            at_most(v, "gamma", "tau/(13 I (2 G + eta L_g))", over(tau, 13 * I * both)),
            Condition("beta1", "0", 0.0, v["beta1"]),
        ]
    cubic = over(np.cbrt(tau), 16 * I * np.cbrt(120 * L_g * L_g * G))
    conditions = (
        at_most(v, "gamma", "1/(16 I L_g)", over(1.0, 16 * I * L_g)),
        smoothness_limit(v),
        at_most(v, "gamma", "tau^(1/3)/(16 I (120 L_g^2 G)^(1/3))", cubic),
        *last,
    )
    return Statement(_terms(version, v), conditions)


def _step_limits(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """|Delta| <= gamma I G, sqrt(v) >= sqrt(1-beta2) |Delta| and the server's step is eta Delta/(sqrt(v) + tau)."""
    within = v["gamma"] * v["I"] * v["G"]
    return v["eta"] * min(1 / np.sqrt(1 - v["beta2"]), within / v["tau"]), within


THEOREM = Theorem(
    name="fedadam",
    title="FedAdam without first moment",
    locator="Theorem A.7",
    needs=("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "gamma", "tau", "G", "beta2"),
    versions={
        "printed": ("K is read as I; L_h stands where units ask for L_h^2.",),
        "corrected": _DEVIATIONS,
        "prior": (IN_PLACE,),
    },
    state=_state,
    algorithm="fedadam",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    terms=(INITIAL_GAP, NOISE_OF_MEAN, NOISE_OF_WORKERS, LOCAL_DIVERGENCE, *_SECOND_MOMENT),
    # From close by, a round of 24 local steps is one large step, which eta makes too large.
    counterexample=Counterexample((((1.0,),),), (1e-4,), {"I": 24, "R": 5, "eta": 192.0, "tau": 1.0, "beta2": 0.99}),
    optional={"eta": 1.0, "beta1": 0.0},
    step_limits=_step_limits,
)
