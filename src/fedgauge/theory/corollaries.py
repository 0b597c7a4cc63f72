"""The corollaries as what they are: choices of rates, which are put into the theorem.

The paper's corollaries are orders of magnitude for particular rates, most of them without the number of rounds from
which those rates are admissible. Here each gives the rates, that number, and the theorem's own bound at the rates,
which is never worse than the closed form. ``B.1`` is the rate that Appendix B.1 chooses for Theorem 5.5.

:func:`local_beats_minibatch` is the region that the paper draws from Corollaries A.3 and A.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.types import Floats
from fedgauge.theory import find
from fedgauge.theory.base import largest_factor, over
from fedgauge.theory.inputs import Values, check_values
from fedgauge.theory.quadratic import drift_sum_root, geometric_sum
from fedgauge.values import Bound, Condition, Number, Value
from fedgauge.values.bounds import Inequality
from fedgauge.values.display import Displayed


@dataclass(frozen=True)
class CorollaryRates(Value, Displayed):
    """A corollary's rates and what the theorem says at them.

    Attributes:
        locator: where the paper states the corollary.
        gamma: the local rate.
        eta: the global rate.
        R_min: the fewest rounds for which the rates are admissible, infinite where no number is; the bound at fewer
            shows which condition fails.
        bound: the theorem at these rates and your R.
        conditions: what the corollary asks in addition to the theorem, e.g. a small sigma2.
        rival: where the corollary compares the two, mini-batch SGD at its largest rate with as many gradients.
        deviations: how the choice departs from print.
    """

    locator: str
    gamma: Number
    eta: Number
    R_min: Number
    bound: Bound
    conditions: tuple[Condition, ...] = ()
    rival: Bound | None = None
    deviations: tuple[str, ...] = ()


class _Rates(NamedTuple):
    gamma: Floats
    product: Floats
    rounds: Floats  # the least R, not yet rounded


def _inverse_root(v: Values, rounds: Floats) -> tuple[Floats, Floats]:
    return over(1.0, np.sqrt(v["R"]) * v["I"]), np.maximum(rounds, 6 * (v["L_h"] ** 2 + v["L_g"] ** 2))


def _rates_4_4(v: Values) -> _Rates:
    best = np.sqrt(over(v["F"] * v["N"], v["R"] * v["I"] * v["L_g"] * v["sigma2"]))
    gamma, rounds = _inverse_root(v, 120 * v["L_g"] ** 2)
    return _Rates(gamma, np.minimum(best, over(1.0, 2 * v["I"] * v["L_g"])), rounds)


def _rates_4_6(v: Values) -> _Rates:
    spread = v["sigma2"] + v["I"] * v["zeta2"]
    best = np.sqrt(over(v["M"] * v["F"], v["L_g"] * v["I"] * v["R"] * spread))
    gamma, rounds = _inverse_root(v, 300 * v["L_g"] ** 2)
    return _Rates(gamma, np.minimum(best, over(1.0, 16 * v["I"] * v["L_g"])), rounds)


def _rates_5_6(v: Values) -> _Rates:
    gamma = over(1.0, v["L_g"])
    return _Rates(gamma, gamma, np.asarray(1.0))


def _rates_b_1(v: Values) -> _Rates:
    gamma = 1 / np.sqrt(v["R"] * v["I"])
    return _Rates(gamma, gamma, v["L_g"] ** 2 / v["I"])


def _rates_cube_root(v: Values) -> _Rates:
    L_h_rms = v.get("L_h_rms", v["L_h"])
    drift = 2 * np.sqrt(v["L_h"] * L_h_rms) * drift_sum_root(np.maximum(v["kappa"], 1.0), v["I"])
    gamma = 1 / np.cbrt(v["R"] * v["I"])
    return _Rates(gamma, gamma, np.maximum(v["L_tilde"], drift) ** 3 / v["I"])


def _rates_a_10(v: Values) -> _Rates:
    I, R, L_g, mu = v["I"], v["R"], v["L_g"], v["mu"]  # noqa: E741
    root = np.sqrt(over(mu, L_g))
    size = over(mu * mu * R * I * v["N"] * v["d0"], v["sigma2"])
    product = np.minimum(over(4 * np.log(np.maximum(size, np.e)), mu * R * I), over(1.0, 16 * I * L_g))
    rounds = np.maximum(24.0, over(np.sqrt(6 * (v["L_h"] ** 2 + L_g**2)) * root, L_g))
    return _Rates(over(root, L_g * I * R), product, rounds)


def _small_noise(v: Values, gamma: Floats) -> tuple[Condition, ...]:
    limit = over(v["F"] * v["N"] * v["L_g"], v["R"] * v["I"])
    return (Condition("sigma2", "F N L_g/(R I)", limit, v["sigma2"]),)


def _no_noise(v: Values, gamma: Floats) -> tuple[Condition, ...]:
    return (Condition("sigma2", "0", 0.0, v["sigma2"]),)


def _balanced_noise(v: Values, gamma: Floats) -> tuple[Condition, ...]:
    limit = over(v["N"] * v["F"], gamma**2 * v["L_g"] * v["R"] * v["I"])
    return (Condition("sigma2", "N F/(gamma^2 L_g R I)", limit, v["sigma2"]),)


class _Corollary(NamedTuple):
    theorem: str
    rates: Callable[[Values], _Rates]
    deviations: tuple[str, ...]
    conditions: Callable[[Values, Floats], tuple[Condition, ...]] | None = None  # and a comparison with mini-batch SGD
    locator: str = ""  # where it is not a corollary


_ROUNDS = "The number of rounds from which the rates are admissible is ours; the paper states none."
_EVALUATED = "The theorem is evaluated at the rates; the printed closed form needs a condition other than the stated."

COROLLARIES: dict[str, _Corollary] = {
    "4.4": _Corollary("nonconvex", _rates_4_4, (_ROUNDS,)),
    "4.6": _Corollary(
        "partial", _rates_4_6, (_ROUNDS, "The cap is 1/(16 I L_g): the printed 1/(15 I L_g) is too large for M = 1.")
    ),
    "5.6": _Corollary("equal-hessians", _rates_5_6, ("gamma = 1/L_g for both, as in the proof.",), _small_noise),
    "B.1": _Corollary(
        "equal-hessians",
        _rates_b_1,
        ("R I >= L_g^2 makes the rate admissible, so that I may be as large as you like, as the paper says.",),
        locator="Theorem 5.5 at the rate of Appendix B.1",
    ),
    "A.3": _Corollary("quadratic", _rates_cube_root, (_ROUNDS,), _no_noise),
    "A.4": _Corollary("quadratic", _rates_cube_root, (_ROUNDS, _EVALUATED), _balanced_noise),
    "A.10": _Corollary(
        "strongly-convex",
        _rates_a_10,
        (
            _ROUNDS,
            "gamma eta takes 4 log(.)/(mu R I), as the proof's exponent has mu gamma eta I R/4, and the log is at "
            "least 1, so that the rate is never 0.",
            "The cap is 1/(16 I L_g), as the theorem no longer limits gamma eta by L_h.",
        ),
    ),
}


def _fewest(estimate: Floats, admissible: Callable[[Floats], Any]) -> Floats:
    """Return the least whole R that is admissible, by bisection near an estimate that carries rounding."""
    near = np.where(np.isfinite(estimate), estimate, 1.0)
    low, high = np.maximum(np.floor(near * (1 - 1e-6)) - 1, 0.0), np.ceil(near * (1 + 1e-6)) + 1
    while np.any(high - low > np.maximum(1.0, np.spacing(high))):
        middle = np.floor((low + high) / 2)
        fine = admissible(np.maximum(middle, 1.0)) & (middle > low)
        low, high = np.where(fine, low, middle), np.where(fine, middle, high)
    # Where something else fails (a mu above L_g), no number of rounds helps.
    return np.where(np.isfinite(estimate) & admissible(high), high, np.inf)


def corollary_rates(corollary: str, **values: Any) -> CorollaryRates:
    """Choose the rates as a corollary does, and evaluate its theorem at them.

    Args:
        corollary: ``4.4``, ``4.6``, ``5.6``, ``B.1``, ``A.3``, ``A.4`` or ``A.10``.
        **values: what the theorem needs, except gamma and eta.

    >>> values = dict(F=1, I=4, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.1)
    >>> choice = corollary_rates("4.4", R=200, **values)
    >>> choice.R_min, bool(choice.bound.admissible), bool(corollary_rates("4.4", R=119, **values).bound.admissible)
    (120.0, True, False)
    """
    if corollary not in COROLLARIES:
        raise InputError(f"There is no corollary {corollary}; {nearest(corollary, COROLLARIES)}")
    item = COROLLARIES[corollary]
    theorem = find(item.theorem)
    for name in ("gamma", "eta"):
        if name in values:
            raise InputError(f"Corollary {corollary} chooses {name} itself; leave it out.")
    theorem.prepare("corrected", {**values, "gamma": 1.0})  # says what is missing before anything is computed
    v = check_values(values)

    def at(R: Floats) -> tuple[_Rates, Floats]:
        rates = item.rates({**v, "R": R})
        if not (np.isfinite(rates.product).all() and (rates.product > 0).all()):
            raise InputError(f"Corollary {corollary} has no rate where L_g or F is 0; give numbers above 0.")
        return rates, largest_factor(rates.product, rates.gamma)

    def admissible(R: Floats) -> Any:
        rates, eta = at(R)
        return theorem.evaluate("corrected", **{**values, "R": R, "gamma": rates.gamma, "eta": eta}).admissible

    rates, eta = at(v["R"])
    fewest = _fewest(rates.rounds, admissible)
    rival = None
    if item.conditions:
        largest = {**values, "gamma": over(1.0, v["L_g"])}
        rival = find("minibatch").evaluate("corrected", **largest)
    plain = [float(x) if np.ndim(x) == 0 else x for x in (rates.gamma, eta, fewest)]
    return CorollaryRates(
        locator=item.locator or f"Corollary {corollary}",
        gamma=plain[0],
        eta=plain[1],
        R_min=plain[2],
        bound=theorem.evaluate("corrected", **{**values, "gamma": rates.gamma, "eta": eta}),
        conditions=item.conditions(v, rates.gamma) if item.conditions else (),
        rival=rival,
        deviations=item.deviations,
    )


def local_beats_minibatch(**values: Any) -> Inequality:
    """Check the paper's closed form of where local SGD beats mini-batch SGD on quadratics, after A.3 and A.4.

    The claim is R^(1/3)/I^(2/3) < F L_g/(F + L_h^2 I phi zeta2): the order of Theorem A.2 at gamma = (R I)^(-1/3) is
    below that of mini-batch SGD at 1/L_g. It leaves out the constants (4 and 16 of the one, 2 of the other), the rounds
    from which that gamma is admissible, and its units. Noise must stay below what Corollary A.4 allows.

    Args:
        **values: F, L_g, L_h, I, R, zeta2, kappa, N and sigma2; arrays broadcast.

    Returns:
        Both sides; local SGD is better by orders where it holds and its condition does.

    >>> sides = dict(F=1, L_g=1, L_h=0.05, zeta2=1, kappa=0.9, N=8, sigma2=0)
    >>> [bool(local_beats_minibatch(I=I, R=20, **sides).holds) for I in (1, 8, 64)]
    [False, True, False]
    """
    v = check_values(values)
    phi = geometric_sum(np.maximum(v["kappa"], 1.0), v["I"])
    right = v["F"] * v["L_g"] / (v["F"] + v["L_h"] ** 2 * v["I"] * phi * v["zeta2"])
    noise = _balanced_noise(v, 1 / np.cbrt(v["R"] * v["I"]))
    return Inequality("the region after Corollaries A.3 and A.4", np.cbrt(v["R"] / v["I"] ** 2), right, noise)
