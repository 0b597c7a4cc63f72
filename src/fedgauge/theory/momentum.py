"""Theorem A.5: FedAvg with momentum in the local steps, the momentum averaged with the models.

Setting:
    As for Theorem 4.3, with u_i <- beta u_i + g_i and x_i <- x_i - gamma u_i on every worker, both averaged after I
    steps (Yu et al. 2019, which is not FedAvgM), and eta = 1.
Quantity:
    (1/T) sum_t E|grad f(xhat^t)|^2 over all T = R I local steps, at the mean of the local models.
Conditions:
    gamma <= (1-beta)^2/(L_g (1+beta))
    gamma <= (1-beta)/(sqrt(18 (L_g^2 + L_h^2)) I), which ``star`` does without
    eta = 1
Bound:
    2 (1-beta) F/(gamma R I) + gamma L_g sigma2/(N (1-beta)^2)
    + 3 gamma^2 L_h^2 I sigma2/(1-beta)^2 + 9 gamma^2 L_h^2 I^2 zeta2/(1-beta)^2
    ``star`` has L_h^2 (1/I) sum_{k<I} |x_i^k - xhat^k|^2 for the last two, by the recursion for the spread in norms,
    |x_i^k - xhat^k| <= gamma sigma' sqrt(sum_{j<=k} c_j^2) + gamma sum_{m<k} c_{k-m} (zeta + L_g |x_i^m - xhat^m|) with
    c_j = (1-beta^j)/(1-beta) and sigma'^2 = sigma2 (1 - 1/N); products of noise and divergence are shared equally.
Source:
    Theorem A.5, re-derived and right as printed (its Lemma B.4 prints 1-beta^2 for (1-beta)^2, the theorem does not).
    ``prior`` is the bound of Yu et al. 2019 as the paper quotes it: L_tilde in place, I <= (1-beta)/(6 L_tilde gamma).

>>> from fedgauge.theory import evaluate
>>> values = dict(F=1, I=2, R=100, N=4, sigma2=1, zeta2=1, L_g=1, L_h=0, L_tilde=1, gamma=0.05, beta=0.5)
>>> round(evaluate("momentum", **values).total, 6), round(evaluate("momentum", version="prior", **values).total, 6)
(0.15, 0.57)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import AS_PRINTED, Factor, Statement, Theorem, at_most, equals_one, over, term
from fedgauge.theory.inputs import GRADIENT_NOISE, INITIAL_GAP, LOCAL_DIVERGENCE, NOISE_OF_WORKERS, Quantity, Values
from fedgauge.values import Term, Version


def _spread(I: Floats, y: Floats, beta: Floats) -> tuple[Floats, Floats, Floats]:  # noqa: E741
    """The means over k < I of the squared spread over gamma^2: of divergence, of both, and of noise."""
    shape = np.broadcast_shapes(np.shape(I), np.shape(y), np.shape(beta))
    apart, push, noise, pull, own, walk = (np.zeros(shape) for _ in range(6))
    sums = [np.zeros(shape) for _ in range(3)]
    power = np.ones(shape)
    for k in range(int(np.max(I, initial=1.0))):
        for total, more in zip(sums, (apart * apart, apart * noise, noise * noise), strict=True):
            total += np.where(k < I, more, 0.0)
        push = beta * push + 1 + y * apart
        pull = beta * pull + y * noise
        power = power * beta
        walk = walk + ((1 - power) / (1 - beta)) ** 2
        apart, own = apart + push, own + pull
        noise = np.sqrt(walk) + own
    return sums[0] / I, sums[1] / I, sums[2] / I


def spread(I: Any, y: Any, beta: Any) -> tuple[Any, Any, Any]:  # noqa: E741
    """Return the means over k < I of the squared spread over gamma^2: of divergence, of both, and of noise.

    >>> [float(found) for found in spread(np.array(2.0), np.array(0.0), np.array(0.0))]  # only before the second step
    [0.5, 0.5, 0.5]
    """
    for argument in (I, y, beta):
        if hasattr(argument, "record_call"):
            names = ("momentum_divergence", "momentum_product", "momentum_noise")
            return tuple(argument.record_call(name, I, y, beta) for name in names)
    with np.errstate(over="ignore", invalid="ignore"):
        return _spread(np.asarray(I, dtype=float), np.asarray(y, dtype=float), np.asarray(beta, dtype=float))


def _star(v: Values) -> Statement:
    rest = 1 - v["beta"]
    limit = over(rest * rest, v["L_g"] * (1 + v["beta"]))
    y = np.minimum(v["gamma"] * v["L_g"], rest * rest / (1 + v["beta"]))  # beyond, there is no bound
    apart, both, noise = spread(v["I"], y, v["beta"])
    holds = v["gamma"] <= limit
    product = np.sqrt(v["sigma2"]) * np.sqrt(np.where(np.equal(v["zeta2"], np.inf), 0.0, v["zeta2"]))
    share = np.maximum(1 - 1 / v["N"], 0.0)
    factors = {
        "rest": Factor("(1-beta)", rest, ("beta",)),
        "D": Factor("D", apart, ("I", "beta", "L_g", "gamma")),
        "S": Factor("S", np.where(share > 0, noise * share, 0.0), ("I", "beta", "L_g", "gamma", "N")),
        "C": Factor(
            "C",
            np.where(share * product > 0, both * np.sqrt(share) * product, 0.0),
            ("I", "beta", "L_g", "gamma", "N", "sigma2", "zeta2"),
        ),
    }
    cross = term(v, "both", 1, "gamma^2 L_h^2 C", "", factors)
    terms = [
        term(v, "initial gap", 2, "rest F", "gamma R I", factors),
        term(v, "gradient noise", 1, "gamma L_g sigma2", "N rest^2", factors),
    ]
    for name, own in (("local noise of workers", "sigma2 S"), ("local divergence", "zeta2 D")):
        made = term(v, name, 1, f"gamma^2 L_h^2 {own}", "", factors)
        formula = f"gamma^2 L_h^2 ({own} + C)"
        terms.append(Term(name, formula, made.value + cross.value, tuple(dict.fromkeys(made.symbols + cross.symbols))))
    terms = [Term(t.name, t.formula, np.where(holds, t.value, np.inf), t.symbols) for t in terms]
    return Statement(tuple(terms), (at_most(v, "gamma", "(1-beta)^2/(L_g (1+beta))", limit), equals_one(v)))


def _state(version: Version, v: Values) -> Statement:
    if version == "star":
        return _star(v)
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
        "star": (
            "The spread of the models by its recursion in norms, summed exactly: no limit by I or L_h, and at small "
            "gamma 1/2 for 3 and 1/3 for 9 where beta is 0.",
        ),
        "prior": ("The bound of Yu et al. 2019 as the paper quotes it, with L_tilde in place of L_g and L_h.",),
    },
    state=_state,
    algorithm="momentum",
    quantity=Quantity("(1/T) sum_t E|grad f(xhat^t)|^2", "grad2", "average", "local steps"),
    terms=(INITIAL_GAP, GRADIENT_NOISE, NOISE_OF_WORKERS, LOCAL_DIVERGENCE),
    eta="one",
    rate_shape="powers",
    rate_shapes={"star": "inverse"},
    optional={"eta": 1.0},
)
