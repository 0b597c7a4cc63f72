"""Theorem 4.8 of Bottou, Curtis and Nocedal 2018: mini-batch SGD, the average over all rounds.

Setting:
    f is L_g-smooth, unbiased gradients of variance sigma2; each of R steps averages I gradients from each of the N
    workers, taken at the global model, and moves gamma eta along their mean. Nothing is assumed about heterogeneity.
Quantity:
    mean_r E|grad f(xbar^r)|^2 over the R steps.
Conditions:
    gamma eta <= 1/L_g
Bound:
    2 F/(gamma eta R) + gamma eta L_g sigma2/(N I)
Source:
    Their inequality (4.28) with M_G = 1, mu = 1 and M = sigma2/(N I). ``prior`` has L_tilde in place of L_g.

>>> bound = THEOREM.evaluate(F=1, I=10, R=10, N=4, sigma2=8, L_g=1, gamma=1)
>>> [(term.formula, round(term.value, 6)) for term in bound.terms]
[('2 F/(gamma eta R)', 0.2), ('gamma eta L_g sigma2/(N I)', 0.2)]
"""

from __future__ import annotations

from fedgauge.theory.base import AS_PRINTED, IN_PLACE, Statement, Theorem, at_most, over, term
from fedgauge.theory.inputs import GRADIENT_NOISE, INITIAL_GAP, Quantity, Values
from fedgauge.values import Version


def _state(version: Version, v: Values) -> Statement:
    return Statement(
        (
            term(v, "initial gap", 2, "F", "gamma eta R"),
            term(v, "gradient noise", 1, "gamma eta L_g sigma2", "N I"),
        ),
        (at_most(v, "gamma eta", "1/L_g", over(1.0, v["L_g"])),),
    )


THEOREM = Theorem(
    name="minibatch-average",
    title="mini-batch SGD, the average over all rounds",
    locator="Theorem 4.8 of Bottou et al. 2018",
    needs=("F", "I", "R", "N", "sigma2", "L_g", "gamma"),
    versions={"printed": (), "corrected": (AS_PRINTED,), "prior": (IN_PLACE,)},
    state=_state,
    algorithm="minibatch",
    quantity=Quantity("mean_r E|grad f(xbar^r)|^2", "grad2", "average"),
    terms=(INITIAL_GAP, GRADIENT_NOISE),
    eta="product",
    rate_shape="powers",
    optional={"eta": 1.0},
)
