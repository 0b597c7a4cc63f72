"""The last model of a strongly convex objective in norms: the ``star`` version of ``strongly-convex-last``.

With D = |xbar - x*|, u = gamma eta I, v = u L_g, c, n and b = m + w + d as in :mod:`fedgauge.theory.star`: a step of
gradient descent shrinks D by rho = max(1 - u mu, v - 1) at least, |grad f(xbar)| <= L_g D, and the noise is orthogonal
to the model that it is added to. So a round takes D^2 to at most

    (a D + u b)^2 + u^2 (2 v c D n/u + 2 b n + n^2),  a = rho + v c,

that is to a^2 D^2 + 2 q D + t with q = u (a b + v c n) and t = u^2 (b + n)^2. Where a < 1 this has one fixed point D =
Z, and D_R^2 <= p d0 + (1 - p) Z^2 for a part p of d0 that is kept, in two ways, of which the lower bound counts:

- in squares: the map is concave in D^2, so below its tangent at Z^2, and p = k^R with k = a^2 + q/Z;
- in norms: its root h is convex in D, because q <= a sqrt(t), so between D_0 and Z it is below the chord, and
  D_R <= Z + l^R (D_0 - Z) with l = (h(D_0) - Z)/(D_0 - Z).

The first is an equality where all error is noise; the second where none is, and after one round. Far above Z only the
second is near what R applications of the map give, with which a test compares it. Smoothness makes it a bound on
f(xbar^R) - f* <= L_g D_R^2/2. Z^2 is divided among its causes as in 4.3.
"""

from __future__ import annotations

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import Statement, at_most, ordered, over
from fedgauge.theory.growth import growth_limit, overshoot_limit
from fedgauge.theory.inputs import Values
from fedgauge.theory.star import causes
from fedgauge.values import Condition, Term

_FIRST = "(1/2) L_g d0 p, p = k^R or l^R (2 Z + l^R (D - Z))/(D + Z), D^2 = d0"
_FORMULA = {
    "gradient noise": "L_g (1 - p) (2 q_n Z + t_n)/(2 (1 - a^2))",
    "local noise of the mean": "L_g (1 - p) (2 q_m Z + t_m)/(2 (1 - a^2))",
    "local noise of workers": "L_g (1 - p) (2 q_w Z + t_w)/(2 (1 - a^2))",
    "local divergence": "L_g (1 - p) (2 q_d Z + t_d)/(2 (1 - a^2))",
}
_SYMBOLS = ("gamma", "eta", "I", "R", "N", "mu", "L_g", "L_h", "sigma2", "zeta2", "d0")


def conditions(v: Values) -> tuple[Condition, ...]:
    """Make the limits on gamma that together say a < 1, and mu <= L_g."""
    I, L_g = v["I"], v["L_g"]  # noqa: E741
    ratio = np.minimum(over(v["mu"], L_g), 1.0)
    return (
        at_most(v, "gamma", "y/L_g, (1 + y)^I = 1 + (1 + mu/L_g) I y", over(growth_limit(I, ratio), L_g)),
        at_most(v, "gamma", "((1 + 2/eta)^(1/I) - 1)/L_g", over(overshoot_limit(v["eta"], I), L_g)),
        ordered(v, "mu", "L_g"),
    )


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def statement(v: Values) -> Statement:
    """Return the terms and conditions; where a is not below 1 there is no bound, and every term is infinite."""
    I, L_g, mu = v["I"], v["L_g"], np.minimum(v["mu"], v["L_g"])  # noqa: E741  # a larger mu fails its own condition
    limit = growth_limit(I, np.minimum(over(v["mu"], L_g), 1.0))
    made = causes(v, limit)
    u, c, n, b = v["gamma"] * v["eta"] * I, made.c, made.noise, made.mean + made.workers + made.divergence
    step = u * L_g
    short = np.minimum(u * (mu - L_g * c), 2 - step * (1 + c))  # 1 - a, without a difference of numbers near 1
    holds = np.logical_or(np.logical_and(short > 0, v["gamma"] * L_g <= made.y), np.equal(L_g, 0))  # f is flat there
    short = np.where(short > 0, short, 1.0)
    a, left = 1 - short, short * (2 - short)
    q, t = u * (a * b + step * c * n), u * u * (b + n) * (b + n)
    Z = (q + np.sqrt(q * q + left * t)) / left
    kept, lost = _kept(v["R"], np.sqrt(v["d0"]), a, short, q, t, Z)
    front = lost * L_g / (2 * left)
    shares = {
        "gradient noise": n * (2 * u * step * c * Z + u * u * (b + n)),
        "local noise of the mean": made.mean * u * (2 * a * Z + u * (b + n)),
        "local noise of workers": made.workers * u * (2 * a * Z + u * (b + n)),
        "local divergence": made.divergence * u * (2 * a * Z + u * (b + n)),
    }
    first = np.where(holds, L_g * v["d0"] * kept / 2, np.inf)
    terms = [Term("initial distance", _FIRST, first, _SYMBOLS)]
    endless = np.logical_and(np.equal(v["zeta2"], np.inf), v["L_h"] * (I - 1) > 0)
    for name, share in shares.items():
        value = np.where(holds, front * share, np.inf)
        if name == "local divergence":
            value = np.where(endless, np.inf, value)
        terms.append(Term(name, _FORMULA[name], value, _SYMBOLS))
    return Statement(tuple(terms), conditions(v))


def _kept(R: Floats, D: Floats, a: Floats, short: Floats, q: Floats, t: Floats, Z: Floats) -> tuple[Floats, Floats]:
    """Return p and 1 - p after R rounds from the distance D, where short is 1 - a; no difference of near ones is taken.

    Without any error (Z = 0) p is a^(2 R), as it is where Z or D is infinite, and with them the bound.
    """
    usual = np.logical_and(np.logical_and(Z > 0, np.less(Z, np.inf)), np.less(D, np.inf))
    D, Z, q, t = (np.where(usual, value, default) for value, default in ((D, 1.0), (Z, 1.0), (q, 0.0), (t, 0.0)))
    left = short * (2 - short)
    squares = R * np.log1p(-np.minimum(left - q / Z, 1.0))
    h = np.sqrt(a * a * D * D + 2 * q * D + t)
    fall = ((2 * q * D + t) / (h + a * D) + a * D * short + t / Z) / (h + Z)  # 1 - l, because left Z = 2 q + t/Z
    power = R * np.log1p(-np.minimum(fall, 1.0))
    rest, gone = np.exp(power), -np.expm1(power)  # l^R and 1 - l^R
    norms, others = rest * (2 * Z + rest * (D - Z)) / (D + Z), gone * (2 * D - gone * (D - Z)) / (D + Z)
    # Above the fixed point less of d0 is to be kept, below it more.
    better = np.logical_and(usual, np.where(D > Z, norms < np.exp(squares), norms > np.exp(squares)))
    return np.where(better, norms, np.exp(squares)), np.where(better, others, -np.expm1(squares))
