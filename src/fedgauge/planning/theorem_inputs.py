"""From measured constants to the numbers of a theorem: which one applies, what it needs, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from fedgauge.errors import InputError, nearest
from fedgauge.federation.participation import Participation
from fedgauge.planning.goal import Goal
from fedgauge.theory import find
from fedgauge.theory.search import PLANNED
from fedgauge.values import Constants, Estimate, Kind

End = Literal["value", "best", "worst"]
_CHOSEN = ("I", "R", "gamma", "eta")
# What stands for a symbol, and the power to which it is to be raised. The proofs use the mean of zeta over workers.
_STANDS: dict[str, tuple[tuple[str, int], ...]] = {
    "sigma2": (("sigma2", 1), ("sigma", 2)),
    "zeta2": (("zeta2", 1), ("zeta", 2), ("zeta_rms", 2)),
    "L_h_rms": (("L_h_rms", 1), ("L_h_paper", 1)),
}


class Given(NamedTuple):
    """A symbol of a theorem: the estimate that it is taken from, and to which power."""

    estimate: Estimate
    power: int

    def at(self, end: End) -> float:
        """The number itself, or the end of its interval at which a bound is smaller (best) or larger (worst)."""
        if end == "value":
            return float(self.estimate.value) ** self.power
        # A bound grows with every constant but mu.
        low = (end == "best") != (self.estimate.symbol == "mu")
        return float(self.estimate.low if low else self.estimate.high) ** self.power


def look_up(constants: Constants, symbol: str) -> Given | None:
    """What the constants have for a theorem's symbol.

    >>> look_up(Constants((Estimate("sigma", 2.0, 1.0, 3.0, "sample", "batches"),)), "sigma2").at("worst")
    9.0
    """
    for name, power in _STANDS.get(symbol, ((symbol, 1),)):
        estimate = constants.get(name)
        if estimate is not None:
            return Given(estimate, power)
    return None


def collect(constants: Constants, theorem: str, version: str = "corrected") -> dict[str, Given]:
    """The constants that a theorem needs, or one sentence with those that are missing and how to come by them."""
    found: dict[str, Given] = {}
    missing: list[str] = []
    statement = find(theorem)
    for symbol in statement.needed(version):  # type: ignore[arg-type]  # evaluated, and so checked, later
        if symbol in ("I", "R", "N", "M", "gamma"):
            continue
        given = look_up(constants, symbol)
        if given is None:
            missing.append(symbol)
        else:
            found[symbol] = given
    if missing:
        raise InputError(_say_missing(theorem, missing))
    for symbol in ("L_h_rms", "L_h"):
        given = look_up(constants, symbol) if symbol in statement.optional else None
        if given is not None and version != "prior":
            found[symbol] = given
    return found


def _say_missing(theorem: str, missing: Iterable[str]) -> str:
    names = ", ".join(missing)
    return (
        f"A plan by {theorem} ({find(theorem).locator}) lacks {names}; measure with 'fedgauge measure' (of quadratics "
        f"'fedgauge constants' gives all), or give as numbers what you know."
    )


def kinds(found: dict[str, Given]) -> dict[str, Kind]:
    """The kind of each constant."""
    return {symbol: given.estimate.kind for symbol, given in found.items()}


def is_zero(given: Given | None, scale: float = 0.0) -> bool:
    """Whether a constant is surely zero, up to the rounding of numbers of the given size."""
    return given is not None and given.estimate.certain and given.at("value") <= 1e-12 * scale


def check_participation(who: Participation, num_workers: int) -> int:
    """How many take part in a round; refuse those of whom no theorem here speaks."""
    M = who.num_participants(num_workers)
    if num_workers < M:
        raise InputError(f"participants must be at most the {num_workers} workers, not {M}; sample fewer.")
    who.check(num_workers)
    if who.weights is not None:
        raise InputError("The theorems speak of workers that count alike; leave out the weights, or plan by trial.")
    if who.sampling == "with-replacement-shared":
        raise InputError(
            f"{find('partial').locator} gives every draw of a worker noise of its own, and {who.sampling} does not;"
            " choose with-replacement or without-replacement, or plan by trial."
        )
    return M


def check_large_eta(who: Participation, participants: int, etas: Iterable[float | None]) -> None:
    """Refuse rates at which Theorem 4.5 needs more than its conditions say, since its draws are not independent.

    The proof then asks for gamma eta <= 1/(2 I L_g). Up to M = 8 that follows from gamma eta <= M/(16 I L_g), and up to
    eta = 5 sqrt(3) from gamma <= 1/(10 sqrt(3) I L_g).
    """
    if who.sampling == "with-replacement" or participants <= 8:
        return
    for eta in etas:
        if eta is None or eta > 5 * math.sqrt(3):
            raise InputError(
                f"With the sampling {who.sampling} of more than 8 workers {find('partial').locator} covers eta up to"
                f" 5 sqrt(3) = 8.66, not {'one that is free' if eta is None else f'{eta:g}'}; lower it, or sample with"
                " replacement."
            )


def choose_theorem(constants: Constants, theorem: str | None, goal: Goal, who: Participation, eta: float | None) -> str:
    """The theorem that a plan rests on, as asked for or as the federation has it.

    Only sampling that is ``full`` is full participation: of M = N draws with replacement some are of the same worker.

    L_h = 0 means that the workers share one constant Hessian: moving the local models about their mean changes no
    averaged gradient, so each worker's Hessian is that of f, wherever the others are. So Theorem 5.5 holds.
    """
    for symbol in _CHOSEN:
        if symbol in constants:
            raise InputError(
                f"{symbol} is given among the constants and is to be chosen; leave it out, or give it as practice."
            )
    if theorem is None:
        L_h, L_g = look_up(constants, "L_h"), look_up(constants, "L_g")
        equal = is_zero(L_h, L_g.at("value") if L_g else 0.0) and eta in (1.0, None)
        full = "strongly-convex" if goal.quantity == "loss" else "equal-hessians" if equal else "nonconvex"
        theorem = full if who.sampling == "full" else "partial"
    if theorem not in PLANNED:
        find(theorem)
        raise InputError(f"Theory plans FedAvg, so {theorem} has no plan; {nearest(theorem, PLANNED)}")
    if who.sampling != "full" and theorem != "partial":
        raise InputError(
            f"{theorem} speaks of all workers in every round, not of {who.participants} that are drawn"
            f" {who.sampling.replace('-', ' ')}; choose partial."
        )
    wanted = "loss" if theorem == "strongly-convex" else "grad2"
    if goal.quantity != wanted:
        raise InputError(
            f"{theorem} ({find(theorem).locator}) bounds {'f - f*' if wanted == 'loss' else '|grad f|^2'}, which says "
            f"nothing of a goal of {goal.quantity}; ask for {wanted}, or plan by trial."
        )
    return theorem


def target_of(goal: Goal, constants: Constants) -> tuple[float | None, dict[str, Kind]]:
    """The bound to reach, and the kind of f* where a loss is counted from it.

    f - f* <= goal - c makes f at most the goal only if f* <= c, so that it is counted from the upper end of f*.

    >>> least = Estimate("f_star", 1.0, 1.0, 1.5, "lower", "f(x) - |grad f(x)|^2/(2 mu), and f(x) above it")
    >>> target_of(Goal("loss", 2.0), Constants((least,)))
    (0.5, {'f_star': 'upper'})
    """
    if goal.value is None or goal.quantity == "grad2":
        return goal.value, {}
    least = constants.get("f_star")
    if least is None:
        raise InputError(
            "The theorem bounds f - f*, so that a goal of loss needs f_star; give it, or a budget instead."
        )
    if not goal.value > least.high:
        what = f"f* = {least.high:g}" if least.kind == "exact" else f"{least.high:g}, which f* may be"
        raise InputError(f"The goal loss must be above {what}, not {goal.value!r}.")
    # A lower bound with room above it comes with an upper one; by itself it may be below f*, and the goal with it.
    bounded = least.kind == "lower" and least.high > least.value
    return goal.value - least.high, {"f_star": "upper" if bounded else least.kind}
