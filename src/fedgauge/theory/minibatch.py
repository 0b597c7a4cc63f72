"""Theorem 5.5, second half: mini-batch SGD with I gradients from each worker in a round.

Setting:
    f is L_g-smooth, unbiased gradients of variance sigma2; each of R steps averages I gradients from each of the N
    workers, taken at the global model, and moves gamma eta along their mean. Nothing is assumed about heterogeneity.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the R steps (print says R I steps); the average over them obeys the same bound.
Conditions:
    gamma eta <= 1/L_g
Bound:
    2 F/(gamma eta R) + gamma eta L_g sigma2/(N I)
Source:
    Theorem 5.5; the constants of its proof for local SGD, with R steps and variance sigma2/(N I). Its right-hand side
    is right as printed, where eta is 1: only the product of the rates counts. ``prior`` has L_tilde in place of L_g.

>>> from fedgauge.theory import evaluate
>>> bound = evaluate("minibatch", F=1, I=10, R=10, N=4, sigma2=8, L_g=1, gamma=1)
>>> [(term.formula, round(term.value, 6)) for term in bound.terms]
[('2 F/(gamma eta R)', 0.2), ('gamma eta L_g sigma2/(N I)', 0.2)]
"""

from __future__ import annotations

from fedgauge.theory.base import Statement, Theorem, at_most, over, term
from fedgauge.theory.facts import GRADIENT_NOISE, INITIAL_GAP, Quantity
from fedgauge.theory.inputs import Values
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
    name="minibatch",
    title="mini-batch SGD with I gradients per worker",
    locator="Theorem 5.5",
    needs=("F", "I", "R", "N", "sigma2", "L_g", "gamma"),
    versions={
        "printed": (),
        "corrected": ("The formula is as printed; the least is over the R iterates that exist, not over R I.",),
        "prior": ("The corrected formula with L_tilde in place of L_g.",),
    },
    state=_state,
    algorithm="minibatch",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    # Print writes R I steps, but mini-batch SGD has one model per round.
    quantities={"printed": Quantity("min_t E|grad f(xhat^t)|^2", "grad2", "least")},
    terms=(INITIAL_GAP, GRADIENT_NOISE),
    eta="product",
    rate_shape="powers",
    optional={"eta": 1.0},
)
