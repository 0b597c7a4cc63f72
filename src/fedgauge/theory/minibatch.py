"""Theorem 5.5, second half: mini-batch SGD with I gradients from each worker in a round.

Setting:
    f is L_g-smooth, unbiased gradients of variance sigma2; each of R steps averages I gradients from each of the N
    workers, taken at the global model, and moves gamma eta along their mean. Nothing is assumed about heterogeneity.
Quantity:
    min_r E|grad f(xbar^r)|^2 over the R steps (print says R I steps); the average over them obeys the same bound.
Conditions:
    gamma eta <= 1/L_g; for ``star`` 2/L_g
Bound:
    2 F/(gamma eta R) + gamma eta L_g sigma2/(N I)
    ``star``, with p = 1 - gamma eta L_g/2: F/(gamma eta R p) + gamma eta L_g sigma2/(2 N I p), never more.
Source:
    Theorem 5.5; the constants of its proof for local SGD, with R steps and variance sigma2/(N I). Its right-hand side
    is right as printed, where eta is 1: only the product of the rates counts. ``prior`` has L_tilde in place of L_g.
    ``star`` is that of Theorem 4.3 at I = 1, where the two are the same algorithm, with batches of I gradients.

>>> from fedgauge.theory import evaluate
>>> bound = evaluate("minibatch", "corrected", F=1, I=10, R=10, N=4, sigma2=8, L_g=1, gamma=1)
>>> [(term.formula, round(term.value, 6)) for term in bound.terms]
[('2 F/(gamma eta R)', 0.2), ('gamma eta L_g sigma2/(N I)', 0.2)]
>>> values = dict(F=1, I=1, R=10, N=4, sigma2=8, L_g=1, gamma=0.1)
>>> [round(evaluate(name, zeta2=1, L_h=1, **values).total, 9) for name in ("minibatch", "nonconvex")]
[1.157894737, 1.157894737]
"""

from __future__ import annotations

from fedgauge.theory.base import Statement, Theorem, at_most, descent, over, term
from fedgauge.theory.inputs import GRADIENT_NOISE, INITIAL_GAP, Quantity, Values
from fedgauge.values import Version


def _state(version: Version, v: Values) -> Statement:
    if version == "star":
        terms, limit = descent(v, "gamma eta", "gamma eta R", "N I")
        return Statement(terms, (limit,))
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
        "star": ("What the proof has before it rounds 1 - gamma eta L_g/2 down to 1/2: half as much at small rates.",),
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
    rate_shapes={"star": "inverse"},
    optional={"eta": 1.0},
)
