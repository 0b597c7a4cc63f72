"""What the ``star`` versions of Theorems 4.3 and 4.5 share: one round in norms instead of squares.

Write |.| for the root of the mean square over workers and chance, X = |grad f(xbar)|, s = sqrt(sigma2/N), and
sigma' = sqrt(sigma2 (1 - 1/N)) for the noise of a worker about the mean. In a round,

    spread of the models   |x_i^k - xhat^k| <= gamma sigma' sqrt(k) + gamma sum_{m<k} (zeta + L_g |x_i^m - xhat^m|)
    way of their mean      |xhat^k - xbar|  <= gamma s sqrt(k) + gamma sum_{m<k} (X + |w_m|)
    error of the gradients |w_m| <= L_h |x_i^m - xhat^m| + L_g |xhat^m - xbar|

where w_m is the mean gradient at step m less grad f(xbar). All of it is linear, and :mod:`fedgauge.theory.growth`
solves it: |sum_m w_m| <= (E - I) X + I b. With u = gamma eta I, v = u L_g and c = E/I - 1, smoothness of f gives, over
u,

    P X^2 - 2 Q X - T <= (E f(xbar^r) - E f(xbar^{r+1}))/u,

with P = (1-c) (1 - v (1-c)/2) where v <= 1 and (1+c) (1 - v (1+c)/2) beyond. Summed over the rounds, and as a mean is
at most a root mean square, Y^2 = mean of X^2 obeys P Y^2 <= 2 Q Y + T + F/(u R): where P > 0, that bounds Y.

The breakdown: Z, which Y becomes after endless rounds, solves P Z^2 = 2 Q Z + T, so that Z^2 = (2 Q Z + T)/P. Q is
linear in the causes and T quadratic; a product of two causes is shared equally between them. The initial gap is Y^2 -
Z^2: all that more rounds would take away, products of the start with other causes included. docs/theory/star.md has the
derivation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.types import Floats
from fedgauge.theory.base import Statement, at_most, over
from fedgauge.theory.growth import growth_limit, growths, overshoot_limit
from fedgauge.theory.inputs import Values
from fedgauge.values import Condition, Term


class Draws(NamedTuple):
    """How the participants' noise and divergence enter the second moment of a round's step.

    Attributes:
        whole: the share of the averaged noise of all workers that stays: 1, or 1/M where every draw runs by itself.
        apart: the factor of the mean square by which one worker's steps differ from the mean of all.
    """

    whole: Any
    apart: Any


FULL = Draws(1.0, 0.0)
_NEAR_LIMIT = 1e-3
"""Below this P, rounding is more than the last digits of a bound."""
_ROUNDED = 4e-13
"""More than rounding can change P by, relative to c: the series of c has at most 48 terms, each good to a few digits in
the sixteenth place, and P changes by at most three times what c does."""


class RoundTerms(NamedTuple):
    """The inequality of one round: P, Q, T, the length u of its step, and the share of each cause in Q and T."""

    P: Any
    Q: Any
    T: Any
    u: Any
    linear: dict[str, Any]
    square: dict[str, Any]


def _positive(top: Any, bottom: Any) -> Any:
    """Divide, where nothing by nothing is nothing."""
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)


def conditions(v: Values) -> tuple[Condition, ...]:
    """Make the two limits on gamma that together say P > 0."""
    I, L_g = v["I"], v["L_g"]  # noqa: E741
    return (
        at_most(v, "gamma", "y/L_g, (1 + y)^I = 1 + 2 I y", over(growth_limit(I, np.asarray(1.0)), L_g)),
        at_most(v, "gamma", "((1 + 2/eta)^(1/I) - 1)/L_g", over(overshoot_limit(v["eta"], I), L_g)),
    )


class Causes(NamedTuple):
    """What moves the models in one round, over I.

    Attributes:
        y: gamma L_g, at most the limit beyond which there is no bound.
        c: how much the steps enlarge what the first one does: E/I - 1.
        noise: of a mean gradient, n.
        mean: m, that noise as the steps enlarge it beyond a random walk.
        workers: w, the noise that drives the models apart.
        divergence: d, the gradients that drive them apart.
        zeta: the divergence, 0 where it is infinite; see :func:`statement`.
        own: sigma', the noise of a worker about the mean.
        late: by how much the steps enlarge a worker's own noise, over sigma'.
    """

    y: Any
    c: Any
    noise: Any
    mean: Any
    workers: Any
    divergence: Any
    zeta: Any
    own: Any
    late: Any


def causes(v: Values, limit: Any) -> Causes:
    """Solve the recursions of one round for each cause."""
    I, N = v["I"], v["N"]  # noqa: E741
    y = np.minimum(v["gamma"] * v["L_g"], limit)
    model, pull, noise, noise_pull = growths(I, y)
    zeta = np.sqrt(np.where(np.equal(v["zeta2"], np.inf), 0.0, v["zeta2"]))
    mean, of_worker = np.sqrt(v["sigma2"] / N), np.sqrt(v["sigma2"] * (1 - 1 / N))
    pace, late = v["gamma"] * v["L_h"] / I, noise / I
    apart = pace * of_worker * noise_pull, pace * zeta * pull
    return Causes(y, model / I, mean / np.sqrt(I), mean * late, *apart, zeta, of_worker, late)


def one_round(v: Values, draws: Draws = FULL) -> RoundTerms:
    """Return the inequality of one round; an infinite zeta counts as 0 here, see :func:`statement`."""
    I, L_g = v["I"], v["L_g"]  # noqa: E741
    u = v["gamma"] * v["eta"] * I
    y, c, n, m, w, d, zeta, of_worker, enlarged = causes(v, growth_limit(I, np.asarray(1.0)))
    step, b = u * L_g, m + w + d
    P = np.where(step <= 1, (1 - c) * (1 - step * (1 - c) / 2), (1 + c) * (1 - step * (1 + c) / 2))
    # Near the limit P is a difference of nearly equal numbers: what rounding may have added to it is taken away.
    P = np.where(v["gamma"] * L_g > y, 0.0, np.where(P < _NEAR_LIMIT, P - _ROUNDED * c, P))
    off, half = np.abs(1 - step), step / 2
    local = (off + step * c) / 2
    square = half * (b + draws.whole * n)
    linear = {"gradient noise": half * c * draws.whole * n, "local noise of the mean": local * m}
    linear |= {"local noise of workers": local * w, "local divergence": local * d}
    squares = {"gradient noise": half * draws.whole * n * (n + b), "local noise of the mean": square * m}
    squares |= {"local noise of workers": square * w, "local divergence": square * d}
    if draws is not FULL:
        # |sum_k (g_i - mean g)| <= lead + rest over I: noise is orthogonal to gradients before it only.
        late = zeta * of_worker * growths(I, 0.0 * y)[3] / (I * I)
        lead = np.sqrt(zeta * zeta + of_worker * of_worker / I + 2 * late)
        rest_d, rest_w = zeta * c, of_worker * enlarged
        more = half * draws.apart * (2 * lead + rest_d + rest_w)
        squares["gradient noise"] = squares["gradient noise"] + half * draws.apart * (of_worker * of_worker / I + late)
        squares["local noise of workers"] = squares["local noise of workers"] + more * rest_w
        squares["sampling divergence"] = half * draws.apart * (zeta * zeta + late) + more * rest_d
    total = sum(linear.values()), sum(squares.values())
    return RoundTerms(P, *total, u, linear, squares)


_GAP = "Y^2 - Z^2, P Y^2 = 2 Q Y + T + F/(gamma eta I R), P Z^2 = 2 Q Z + T"
_FORMULAS = {
    "initial gap": _GAP,
    "gradient noise": "(2 Q_n Z + T_n)/P",
    "sampling divergence": "T_a/P",
    "local noise of the mean": "(2 Q_m Z + T_m)/P",
    "local noise of workers": "(2 Q_w Z + T_w)/P",
    "local divergence": "(2 Q_d Z + T_d)/P",
}
_SYMBOLS = {
    "initial gap": ("F", "gamma", "eta", "I", "R", "L_g", "L_h", "sigma2", "zeta2", "N"),
    "gradient noise": ("sigma2", "N", "gamma", "eta", "I", "L_g", "L_h", "zeta2"),
    "sampling divergence": ("zeta2", "gamma", "eta", "I", "L_g", "sigma2", "N"),
    "local noise of the mean": ("sigma2", "N", "gamma", "eta", "I", "L_g", "L_h", "zeta2"),
    "local noise of workers": ("sigma2", "N", "gamma", "eta", "I", "L_g", "L_h", "zeta2"),
    "local divergence": ("zeta2", "gamma", "eta", "I", "L_g", "L_h", "sigma2", "N"),
}


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def statement(v: Values, draws: Draws = FULL) -> Statement:
    """Return the terms and conditions; where P is not positive there is no bound, and every term is infinite."""
    made = one_round(v, draws)
    holds = made.P > 0
    P = np.where(holds, made.P, 1.0)
    left = v["F"] / (made.u * v["R"])
    below = np.sqrt(made.Q * made.Q + P * made.T)
    above = np.sqrt(made.Q * made.Q + P * (made.T + left))
    Z = (made.Q + below) / P
    gap = np.where(np.equal(v["F"], 0), 0.0, left / P * (1 + _positive(2 * made.Q, above + below)))
    values = {"initial gap": gap}
    values |= {name: (2 * made.linear.get(name, 0.0) * Z + part) / P for name, part in made.square.items()}
    endless = np.equal(v["zeta2"], np.inf)
    felt = {"local divergence": v["L_h"] * (v["I"] - 1), "sampling divergence": draws.apart * v["L_g"]}
    more = () if draws is FULL else ("M",)
    terms = []
    for name in (name for name in _SYMBOLS if name in values):
        value = values[name]
        if name in felt:
            value = np.where(endless, np.where(felt[name] > 0, np.inf, value), value)
        symbols = (*_SYMBOLS[name], *more)
        terms.append(Term(name, _FORMULAS[name], np.where(holds, value, np.inf), symbols))
    return Statement(tuple(terms), conditions(v))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def rounds_to(v: Values, target: Any, draws: Draws = FULL) -> Floats:
    """Return after how many rounds, not rounded up, the bound is the target; infinite where it never is."""
    made = one_round(v, draws)
    felt = v["L_h"] * (v["I"] - 1) + draws.apart * v["L_g"]
    endless = np.equal(v["zeta2"], np.inf) & (felt > 0)
    room = made.P * target - 2 * made.Q * np.sqrt(target) - made.T
    fine = (made.P > 0) & (room > 0) & ~endless
    return np.where(fine, v["F"] / (made.u * np.where(fine, room, 1.0)), np.inf)
