"""From measured constants to the inputs of a theorem: which theorem applies, what it needs, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from fedgauge.base.errors import InputError, nearest
from fedgauge.federation.participation import Participation
from fedgauge.theory import THEOREMS, Theorem, find
from fedgauge.theory.inputs import Objectives, SymbolValue, look_up
from fedgauge.values import Constants, Kind
from fedgauge_planning.goal import Goal

_CHOSEN = ("I", "R", "gamma", "eta")


def planning_theorems() -> tuple[Theorem, ...]:
    """Return the theorems that can plan FedAvg: their bounds have a form whose best rate can be searched.

    >>> print(*(theorem.name for theorem in planning_theorems()))
    nonconvex partial equal-hessians quadratic strongly-convex partial-shared partial-without
    """
    return tuple(one for one in THEOREMS.values() if one.rate_shape is not None and one.algorithm == "fedavg")


def collect(constants: Constants, theorem: str, version: str = "corrected") -> dict[str, SymbolValue]:
    """Return the constants that a theorem needs; an error says which are missing and how to get them."""
    values: dict[str, SymbolValue] = {}
    missing: list[str] = []
    statement = find(theorem)
    for symbol in statement.needed(version):  # type: ignore[arg-type]  # evaluated, and so checked, later
        if symbol in ("I", "R", "N", "M", "gamma"):
            continue
        item = look_up(constants, symbol)
        if item is None:
            missing.append(symbol)
        else:
            values[symbol] = item
    if missing:
        raise InputError(_say_missing(theorem, missing))
    for symbol in ("L_h_rms", "L_h"):
        item = look_up(constants, symbol) if symbol in statement.optional else None
        if item is not None and version != "prior":
            values[symbol] = item
    return values


def _say_missing(theorem: str, missing: Iterable[str]) -> str:
    names = ", ".join(missing)
    return (
        f"A plan by {theorem} ({find(theorem).locator}) lacks {names}; measure with 'fedgauge measure' (for quadratics,"
        " 'fedgauge theory constants' computes all of them), or give the numbers that you know."
    )


def kinds(values: dict[str, SymbolValue]) -> dict[str, Kind]:
    """The kind of each constant."""
    return {symbol: item.estimate.kind for symbol, item in values.items()}


def is_zero(item: SymbolValue | None) -> bool:
    """Whether a constant is certainly zero; a tiny one is not, because zeta may be as large as it is small."""
    return item is not None and item.estimate.certain and item.at("value") == 0


def check_participation(who: Participation, num_workers: int) -> int:
    """Return the number of participants in a round; refuse participation that no theorem here covers."""
    M = who.num_participants(num_workers)
    if num_workers < M:
        raise InputError(f"participants must be at most the {num_workers} workers, not {M}; sample fewer.")
    who.check(num_workers)
    if who.weights is not None and who.sampling != "full":
        raise InputError(
            "The theorems about drawn workers are about workers with equal weights, because weighing what a drawn"
            " worker sends adds a variance of its own; leave out the weights, let all workers take part, or plan by"
            " trial."
        )
    if not any(theorem.sampling == who.sampling for theorem in planning_theorems()):
        covered = dict.fromkeys(theorem.sampling for theorem in planning_theorems())
        raise InputError(
            f"No theorem for plans covers the sampling {who.sampling}; choose {' or '.join(covered)}, or plan by trial."
        )
    return M


# From narrow to wide: the theorem for the narrowest class that a federation belongs to is the strongest.
_NARROWNESS: tuple[Objectives, ...] = ("equal Hessians", "strongly convex", "quadratic", "smooth")


def _fitting(constants: Constants, goal: Goal, who: Participation, eta: float | None) -> Theorem:
    """The theorem that applies to the federation and the goal; if there is none, one that does not fit the goal.

    L_h = 0 means that the workers share one constant Hessian: moving the local models about their mean does not change
    the averaged gradient, so each worker's Hessian is that of f, wherever the other workers' models are.
    """
    known: set[Objectives] = {"smooth", *(("strongly convex",) if goal.quantity == "loss" else ())}
    if is_zero(look_up(constants, "L_h")):
        known.add("equal Hessians")
    covering = [theorem for theorem in planning_theorems() if theorem.sampling == who.sampling]
    admitted = [
        theorem for theorem in covering if theorem.objectives in known and (theorem.eta != "one" or eta in (1.0, None))
    ]
    matching = [theorem for theorem in admitted if theorem.quantity.measure == goal.quantity]

    return min(matching or admitted or covering, key=lambda theorem: _NARROWNESS.index(theorem.objectives))


def choose_theorem(constants: Constants, theorem: str | None, goal: Goal, who: Participation, eta: float | None) -> str:
    """The theorem for a plan: the named one, or the one that applies to the federation.

    Only the sampling ``full`` is full participation: M = N draws with replacement may draw a worker more than once.
    """
    for symbol in _CHOSEN:
        if symbol in constants:
            raise InputError(
                f"{symbol} is among the constants, but a plan chooses it; leave it out, or give it as practice."
            )
    chosen = _fitting(constants, goal, who, eta) if theorem is None else find(theorem)
    able = [one.name for one in planning_theorems()]
    if chosen.name not in able:
        raise InputError(f"The theory plans FedAvg, so {chosen.name} has no plan; {nearest(chosen.name, able)}")
    if chosen.sampling != who.sampling:
        others = ", ".join(one.name for one in planning_theorems() if one.sampling == who.sampling)
        speaks = (
            "all workers in every round"
            if chosen.sampling == "full"
            else f"workers drawn {chosen.sampling.replace('-', ' ')}"
        )
        drawn = (
            "all workers"
            if who.sampling == "full"
            else f"{who.participants} workers drawn {who.sampling.replace('-', ' ')}"
        )
        raise InputError(f"{chosen.name} is about {speaks}, not {drawn}; choose {others}.")
    measure = chosen.quantity.measure
    if goal.quantity != measure:
        raise InputError(
            f"{chosen.name} ({chosen.locator}) bounds {'f - f*' if measure == 'loss' else '|grad f|^2'}, which says "
            f"nothing about a goal of {goal.quantity}; choose a goal of {measure}, or plan by trial."
        )
    return chosen.name


def target_of(goal: Goal, constants: Constants) -> tuple[float | None, dict[str, Kind]]:
    """The bound to reach, and the kind of f* if the goal is a loss.

    f - f* <= goal - c makes f at most the goal only if f* <= c, so c is the upper end of the interval of f*.

    >>> from fedgauge.values import Estimate
    >>> least = Estimate("f_star", 1.0, 1.0, 1.5, "lower", "f(x) - |grad f(x)|^2/(2 mu), and f(x) above it")
    >>> target_of(Goal("loss", 2.0), Constants((least,)))
    (0.5, {'f_star': 'upper'})
    """
    if goal.value is None or goal.quantity == "grad2":
        return goal.value, {}
    least = constants.get("f_star")
    if least is None:
        raise InputError(
            "The theorem bounds f - f*, so a goal of loss needs f_star; give f_star, or a budget instead of the goal."
        )
    if not goal.value > least.high:
        what = f"f* = {least.high:g}" if least.kind == "exact" else f"{least.high:g}, which may be the value of f*"
        raise InputError(f"The goal loss must be above {what}, not {goal.value!r}.")
    # A lower bound whose interval extends above it comes with an upper bound. Without one, f* may be above the goal.
    bounded = least.kind == "lower" and least.high > least.value
    return goal.value - least.high, {"f_star": "upper" if bounded else least.kind}
