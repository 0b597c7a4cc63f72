"""The last model of a strongly convex objective in norms: the ``star`` version of ``strongly-convex-last``.

With D = |xbar - x*|, u = gamma eta I, v = u L_g, c, n and b = m + w + d as in :mod:`fedgauge.theory.star`: a step of
gradient descent shrinks D by rho = max(1 - u mu, v - 1) at least, |grad f(xbar)| <= L_g D, and the noise is orthogonal
to the model that it is added to. So a round takes D^2 to at most

    (a D + u b)^2 + u^2 (2 v c D n/u + 2 b n + n^2),  a = rho + v c,

that is to a^2 D^2 + 2 q D + t with q = u (a b + v c n) and t = u^2 (b + n)^2. Where a < 1 this has one fixed point D =
Z, and D_R^2 <= k^R d0 + (1 - k^R) Z^2, where k = a^2 + q/Z if d0 is above Z^2, as 2 q (D - Z) <= (q/Z) (D^2 - Z^2), and
k = a^2 otherwise. Smoothness makes it a bound on f(xbar^R) - f* <= L_g D_R^2/2. Z^2 is divided among its causes as in
4.3.
"""

from __future__ import annotations

import numpy as np

from fedgauge.theory.base import Statement, at_most, ordered, over
from fedgauge.theory.growth import growth_limit, overshoot_limit
from fedgauge.theory.inputs import Values
from fedgauge.theory.star import causes
from fedgauge.values import Condition, Term

_FORMULA = {
    "gradient noise": "L_g (1 - k^R) (2 q_n Z + t_n)/(2 (1 - a^2))",
    "local noise of the mean": "L_g (1 - k^R) (2 q_m Z + t_m)/(2 (1 - a^2))",
    "local noise of workers": "L_g (1 - k^R) (2 q_w Z + t_w)/(2 (1 - a^2))",
    "local divergence": "L_g (1 - k^R) (2 q_d Z + t_d)/(2 (1 - a^2))",
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
    above = v["d0"] > Z * Z
    shrink = np.where(above, left - np.where(Z > 0, q / np.where(Z > 0, Z, 1.0), 0.0), left)  # 1 - k
    log = v["R"] * np.log1p(-np.minimum(shrink, 1.0))
    front = -np.expm1(log) * L_g / (2 * left)
    shares = {
        "gradient noise": n * (2 * u * step * c * Z + u * u * (b + n)),
        "local noise of the mean": made.mean * u * (2 * a * Z + u * (b + n)),
        "local noise of workers": made.workers * u * (2 * a * Z + u * (b + n)),
        "local divergence": made.divergence * u * (2 * a * Z + u * (b + n)),
    }
    first = np.where(holds, L_g * v["d0"] * np.exp(log) / 2, np.inf)
    terms = [Term("initial distance", "(1/2) L_g d0 k^R, k = a^2 + q/Z", first, _SYMBOLS)]
    endless = np.logical_and(np.equal(v["zeta2"], np.inf), v["L_h"] * (I - 1) > 0)
    for name, share in shares.items():
        value = np.where(holds, front * share, np.inf)
        if name == "local divergence":
            value = np.where(endless, np.inf, value)
        terms.append(Term(name, _FORMULA[name], value, _SYMBOLS))
    return Statement(tuple(terms), conditions(v))
