"""The weighted average of a strongly convex objective in norms: the ``star`` version of ``strongly-convex``.

With D = |xbar - x*|, W = sqrt(E f(xbar) - f*), u = gamma eta I, v = u L_g, m = mu/L_g, c, n and b as in
:mod:`fedgauge.theory.star`, and X = |grad f(xbar)| <= sqrt(2 L_g) W. A step of gradient descent takes D to at most
rho D, rho = 1 - u mu, where v <= 1, and a round adds u times an error of at most c X + b, and noise n. So

    D_+^2 <= (1 - u mu) D^2 - 2 u k W^2 + 2 u rho D (c X + b) + u^2 (c X + b + n)^2,

without its u^2 c^2 X^2, where k = 1 - min(v (1 + c^2), m): either u^2 (1 + c^2) X^2 is charged to W^2, or f's own
interpolation inequality, <grad f, xbar - x*> >= (1 - m) W^2 + X^2/(2 L_g) + mu D^2/2, pays for it, as v (1 + c^2) <= 1.
This is a quadratic form in (D, W, 1). Half of the contraction, u mu/2, pays for the products with D (the Schur
complement of the form's first entry), and what is left, over 2 u, is

    P W^2 - 2 Q W - T <= (q D^2 - D_+^2)/(2 u),  q = 1 - u mu/2,

with P = k - 2 rho^2 c^2/m, Q = c sqrt(2/L_g) (v (b + n)/2 + rho^2 b/m) and
T = (v (b + n)^2/2 + rho^2 b^2/m)/L_g. Weights q^-(r+1) make the distances telescope, and a mean is at most a root mean
square: where P > 0 the weighted mean Y^2 of W^2 is at most the larger root of P Y^2 = 2 Q Y + T + S with
S = mu d0/(4 (q^-R - 1)). The conditions v <= 3/4 and c <= sqrt(m)/2 leave P >= 0.029.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import Statement, at_most, ordered, over
from fedgauge.theory.growth import growth_limit
from fedgauge.theory.inputs import Values
from fedgauge.theory.star import causes
from fedgauge.values import Condition, Term

_SYMBOLS = ("gamma", "eta", "I", "R", "N", "mu", "L_g", "L_h", "sigma2", "zeta2", "d0")
_WRITTEN = {
    "gradient noise": "(2 Q_n Z + T_n)/P",
    "local noise of the mean": "(2 Q_m Z + T_m)/P",
    "local noise of workers": "(2 Q_w Z + T_w)/P",
    "local divergence": "(2 Q_d Z + T_d)/P",
}


class AverageRound(NamedTuple):
    """The inequality of one round, and whether there is one; the shares of Q and T by cause."""

    P: Any
    Q: Any
    T: Any
    holds: Any
    linear: dict[str, Any]
    square: dict[str, Any]


def _ratio(v: Values) -> Any:
    return np.minimum(over(v["mu"], v["L_g"]), 1.0)  # a larger mu fails its own condition


def conditions(v: Values) -> tuple[Condition, ...]:
    """Make the limits on the rates, and mu <= L_g."""
    I, L_g = v["I"], v["L_g"]  # noqa: E741
    return (
        at_most(v, "gamma eta", "3/(4 I L_g)", over(3.0, 4 * I * L_g)),
        at_most(
            v,
            "gamma",
            "y/L_g, (1 + y)^I = 1 + (1 + sqrt(mu/L_g)/2) I y",
            over(growth_limit(I, np.sqrt(_ratio(v)) / 2), L_g),
        ),
        ordered(v, "mu", "L_g"),
    )


def one_round(v: Values) -> AverageRound:
    """Return the inequality of one round; an infinite zeta counts as 0 here, see :func:`statement`."""
    I, L_g = v["I"], v["L_g"]  # noqa: E741
    m = _ratio(v)
    made = causes(v, growth_limit(I, np.sqrt(m) / 2))
    c, n, b = made.c, made.noise, made.mean + made.workers + made.divergence
    step = v["gamma"] * v["eta"] * I * L_g
    scale = np.where(np.equal(L_g, 0), 1.0, L_g)  # mu <= 0 fails there
    # The limits are rounded, and so are the products here; growth_limit leaves room for that, and so does P.
    holds = np.logical_and(step <= 0.75 * (1 + 1e-12), v["gamma"] * L_g <= made.y * (1 + 1e-15))
    rho = 1 - np.minimum(step, 1.0) * m
    pay = rho * rho / m
    P = 1 - np.minimum(step * (1 + c * c), m) - 2 * c * c * pay
    half, slope = step / 2, c * np.sqrt(2 / scale)
    parts = {"local noise of the mean": made.mean, "local noise of workers": made.workers}
    parts |= {"local divergence": made.divergence}
    linear = {"gradient noise": slope * half * n}
    linear |= {name: slope * (half + pay) * part for name, part in parts.items()}
    square = {"gradient noise": half * n * (b + n) / scale}
    square |= {name: part * (half * (b + n) + pay * b) / scale for name, part in parts.items()}
    return AverageRound(P, sum(linear.values()), sum(square.values()), holds, linear, square)


def _start(v: Values) -> Any:
    """S of the derivation: mu d0/(4 (q^-R - 1)), q = 1 - mu gamma eta I/2."""
    growth = -v["R"] * np.log1p(-np.minimum(v["mu"] * v["gamma"] * v["eta"] * v["I"] / 2, 1.0))
    return np.where(np.equal(v["d0"], 0), 0.0, v["mu"] * v["d0"] / (4 * np.expm1(growth)))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def statement(v: Values) -> Statement:
    """Return the terms and conditions; beyond the limits there is no bound, and every term is infinite."""
    made, left = one_round(v), _start(v)
    P = np.where(made.holds, made.P, 1.0)
    below, above = np.sqrt(made.Q * made.Q + P * made.T), np.sqrt(made.Q * made.Q + P * (made.T + left))
    Z, roots = (made.Q + below) / P, above + below
    gap = left / P * (1 + np.where(roots > 0, 2 * made.Q / np.where(roots > 0, roots, 1.0), 0.0))
    text = "Y^2 - Z^2, P Y^2 = 2 Q Y + T + mu d0/(4 (q^-R - 1)), P Z^2 = 2 Q Z + T, q = 1 - mu gamma eta I/2"
    terms = [Term("initial distance", text, np.where(made.holds, gap, np.inf), _SYMBOLS)]
    endless = np.logical_and(np.equal(v["zeta2"], np.inf), v["L_h"] * (v["I"] - 1) > 0)
    for name, formula in _WRITTEN.items():
        value = np.where(made.holds, (2 * made.linear[name] * Z + made.square[name]) / P, np.inf)
        if name == "local divergence":
            value = np.where(endless, np.inf, value)
        terms.append(Term(name, formula, value, _SYMBOLS))
    return Statement(tuple(terms), conditions(v))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def rounds_to(v: Values, target: Any) -> Floats:
    """Return after how many rounds, not rounded up, the bound is the target; infinite where it never is."""
    made = one_round(v)
    room = made.P * target - 2 * made.Q * np.sqrt(target) - made.T
    endless = np.logical_and(np.equal(v["zeta2"], np.inf), v["L_h"] * (v["I"] - 1) > 0)
    fine = made.holds & (room > 0) & ~endless
    shrink = -np.log1p(-np.minimum(v["mu"] * v["gamma"] * v["eta"] * v["I"] / 2, 1.0))
    return np.where(fine, np.log1p(v["mu"] * v["d0"] / (4 * np.where(fine, room, 1.0))) / shrink, np.inf)
