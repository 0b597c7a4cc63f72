"""Plan by theory: the local steps, rates and rounds with which a theorem's bound meets a goal soonest.

The bound is minimised over I and gamma at a fixed eta. If eta is free, gamma needs a lower limit: as gamma goes to 0 at
a fixed product of gamma and eta, all terms that come from local steps vanish, so the best gamma would be 0.

A certified plan is not a practical one. The conditions of the theorems require rates far below those that people use;
``practice`` says how far. What works in practice is found by trial, and both answers are worth having.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError, count, positive
from fedgauge.federation.participation import Participation
from fedgauge.theory import covering, find
from fedgauge.theory.inputs import look_up
from fedgauge.theory.rates import refuse_free_rates
from fedgauge.theory.search import Choice, Task, solve
from fedgauge.values import Constants, Version
from fedgauge_planning import theorem_inputs as inputs
from fedgauge_planning.curve import Point, relaxed, trace
from fedgauge_planning.goal import Goal
from fedgauge_planning.theory_result import End, Practice, TheoryPlan

_STEP = 0.01  # by which the logarithm of a constant is moved, to compute an elasticity


def theory_plan(
    constants: Constants,
    *,
    goal: Goal | str,
    cost: Cost | str,
    num_workers: int,
    participants: int | Participation | None = None,
    eta: float | None = 1.0,
    gamma_min: float | None = None,
    theorem: str | None = None,
    version: Version | None = None,
    practice: tuple[int, float, float] | None = None,
    cap: int = 10_000,
    remarks: tuple[str, ...] = (),
) -> TheoryPlan:
    """Choose the I, gamma and R with which a theorem's bound meets the goal soonest, or is smallest within a budget.

    Args:
        constants: F (d0 and mu for ``strongly-convex``), sigma, zeta, L_g, L_h, and L_tilde for the prior bound.
        goal: a ``grad2`` to reach, or to make small within a budget; for ``strongly-convex``, a ``loss``.
        cost: the cost of a round, with the bytes of a model and the time of a step filled in.
        num_workers: the number N of workers.
        participants: how participants are drawn, and their weights, which must be equal unless all take part. By
            default, all workers take part with equal weights; a number M means M draws with replacement.
        eta: the global rate; None to let the plan choose it, which needs ``gamma_min``.
        gamma_min: the smallest gamma to consider.
        theorem: one of :func:`~fedgauge_planning.theorem_inputs.planning_theorems`. By default, the one that applies:
            ``partial`` if workers are drawn with replacement, even M = N of them, and ``partial-shared`` and
            ``partial-without`` for the other ways to draw; ``equal-hessians`` if L_h is certainly 0 and eta is 1; and
            ``nonconvex`` otherwise.
        version: by default ``star`` if the theorem has that version, otherwise ``corrected``; others to compare.
        practice: the I, gamma and eta in use, to compare with the conditions.
        cap: the largest number of local steps to consider.
        remarks: notes to begin with, such as why a constant counts for less here than where it was measured.

    >>> from fedgauge.values import Estimate
    >>> table = dict(F=1, sigma2=1, zeta2=1, L_g=1, L_h=0.1, L_tilde=1.2)
    >>> constants = Constants(tuple(Estimate.exact(name, value, "assumed") for name, value in table.items()))
    >>> cost = Cost("mine", fixed=1.0, step=0.1)
    >>> plan = theory_plan(constants, goal=Goal("grad2", 0.1), cost=cost, num_workers=8, practice=(10, 1.0, 1.0))
    >>> plan.I, plan.R, plan.certified, plan.prior.I, plan.winner
    (1, 46, True, 1, 'mini-batch SGD')
    >>> print(plan.practice.words)
    I = 10, gamma = 1 and eta = 1 in practice: gamma is 8.6 times the largest that Theorem 4.3 admits (0.116), so no
    certificate covers these rates; only a trial can judge them.
    """
    goal, cost = Goal.given(goal), Cost.of(cost)
    N = count("num_workers", num_workers)
    who = participants if isinstance(participants, Participation) else _who(participants)
    M = inputs.check_participation(who, N)
    if eta is not None:
        positive("eta", eta)
    if gamma_min is not None:
        positive("gamma_min", gamma_min)
    check_cost(cost)
    name = inputs.choose_theorem(constants, theorem, goal, who, eta)
    statement, notes = find(name), [*remarks]
    if version is None or (theorem is None and version not in statement.versions):
        version = statement.default
    if eta is None and statement.eta == "one":
        eta = 1.0
        notes.append(f"{statement.locator} holds for eta = 1 only.")
    if eta is None and gamma_min is None:
        raise refuse_free_rates(statement)
    inputs_of = inputs.collect(constants, name, version)
    gap = statement.gap
    start = inputs_of[gap].at("value")
    if not (math.isfinite(start) and start > 0):
        what = "f has no known minimum" if math.isinf(start) else "there is nothing left to gain"
        raise InputError(f"{gap} must be above 0 and finite to plan, not {start!r}: {what}; give another value.")
    target, beside = inputs.target_of(goal, constants)
    counts = {"N": who.effective_workers(N), **({"M": float(M)} if "M" in statement.needs else {})}
    if counts["N"] < N:
        notes.append(
            f"With these weights the mean of the workers reduces noise as {counts['N']:.3g} workers with equal weights"
            " would, which is N in the theorem."
        )
    values = {symbol: item.at("value") for symbol, item in inputs_of.items()} | counts
    task = Task(name, version, values, cost, M, target, goal.budget, eta, gamma_min, count("cap", cap))
    choice = solve(task)
    notes += _remarks(constants, choice, task)
    if who.sampling.startswith("with-") and M == N:
        notes.append(
            "M = N draws with replacement do not reach all workers: some are drawn twice and others not at all."
        )
    prior, prior_curve = _prior(constants, task, counts, notes)
    return TheoryPlan(
        goal=goal,
        cost=cost,
        choice=choice,
        M=M,
        cap=task.cap,
        values=values,
        kinds=inputs.kinds(inputs_of) | beside,
        target=target,
        sensitivity=_sensitivity(task, list(inputs_of), choice.I),
        best=_end(task, {symbol: item.at("best") for symbol, item in inputs_of.items()} | counts),
        worst=_end(task, {symbol: item.at("worst") for symbol, item in inputs_of.items()} | counts),
        prior=prior,
        minibatch=_minibatch(task, N, notes),
        practice=None if practice is None else _practice(task, *practice),
        notes=tuple(notes),
        curve=trace(task, choice),
        prior_curve=prior_curve,
    )


def _who(participants: int | None) -> Participation:
    """Who takes part if only their number is known: the same default as an experiment's."""
    if participants is None:
        return Participation()
    return Participation("with-replacement", count("participants", participants))


def check_cost(cost: Cost) -> None:
    """Refuse a cost that is incomplete, or by which a round is free, or that overlaps."""
    cost.refuse_overlap("The theory")
    if cost.step is None or (cost.bytes is None and math.isfinite(cost.bandwidth)):
        missing = "step" if cost.step is None else "bytes"
        raise InputError(
            f"The cost has no value for {missing}; complete the cost for a federation, or give {missing}=NUMBER."
        )
    if not cost.round(1, 1) > 0:
        raise InputError("A round must cost something, not 0 s; give the cost a fixed part, a bandwidth or a step.")


def _remarks(constants: Constants, choice: Choice, task: Task) -> list[str]:
    """Notes on what is special about these constants and this choice."""
    notes = []
    theorem = find(task.theorem)
    L_h, zeta = (look_up(constants, symbol) for symbol in ("L_h", "zeta2"))
    if inputs.is_zero(L_h) and inputs.is_zero(zeta):
        notes.append("The workers are identical (zeta = L_h = 0): averaging them only divides the noise.")
    elif inputs.is_zero(L_h):
        notes.append("The workers share one Hessian (L_h = 0): drift cancels in the average, however large zeta is.")
    if theorem.objectives == "equal Hessians":
        notes.append(
            f"{theorem.locator} is about the averaged models after every local step, not only those after a round."
        )
    if zeta is not None and zeta.estimate.symbol == "zeta_rms" and "zeta2" in task.values:
        notes.append("zeta is the root mean square over workers, which is all that the proof uses.")
    if choice.I == task.cap > 1 and choice.R > 1:
        notes.append(f"I is at its cap of {task.cap}; more local steps might be better.")
    least = constants.get("f_star")
    wide = least is not None and least.high - least.low > 1e-6 * abs(least.high)
    if theorem.quantity.measure == "loss" and task.target is not None and least is not None and wide:
        notes.append(f"The goal is measured from the upper end of the interval of f*, {least.high:g}.")
    return notes


def _prior(
    constants: Constants, task: Task, counts: Mapping[str, float], notes: list[str]
) -> tuple[Choice | None, tuple[Point, ...]]:
    """The choice by the bound that uses L_tilde alone, which cannot know that the Hessians are equal."""
    theorem = find(task.theorem)
    wider = (
        covering(theorem.algorithm, theorem.sampling, "smooth") if theorem.objectives == "equal Hessians" else theorem
    )
    assert wider is not None, "FedAvg on smooth objectives has a theorem"
    name = wider.name
    try:
        inputs_of = inputs.collect(constants, name, "prior")
        values = {symbol: item.at("value") for symbol, item in inputs_of.items()} | dict(counts)
        other = replace(task, theorem=name, version="prior", values=values)
        choice = solve(other)
    except InputError as error:
        notes.append(f"The prior bound chooses nothing: {error}")
        return None, ()
    return choice, trace(other, choice)


def _minibatch(task: Task, num_workers: int, notes: list[str]) -> Choice | None:
    own, rival = find(task.theorem), covering("minibatch")
    if rival is None or own.quantity.measure != rival.quantity.measure:
        notes.append("The theorem for mini-batch SGD bounds |grad f|^2, not f, so the two are not compared.")
        return None
    if own.sampling != rival.sampling:
        notes.append("Mini-batch SGD is planned with all workers in every round, as its theorem requires.")
    version = task.version if task.version in rival.versions else "corrected"
    other = replace(task, theorem=rival.name, version=version, participants=num_workers, eta=1.0, gamma_min=None)
    try:
        return solve(other)
    except InputError as error:  # a budget may suffice for M workers but not for all
        notes.append(f"Mini-batch SGD has no plan: {error}")
        return None


def _end(task: Task, values: Mapping[str, float]) -> End:
    # A plan with I = 1 does not depend on zeta, so zeta alone may be infinite.
    endless = [symbol for symbol, value in values.items() if not math.isfinite(value) and symbol != "zeta2"]
    if endless:
        return End(None, f"{' and '.join(endless)} has no upper limit, so nothing limits the cost either")
    try:
        return End(solve(replace(task, values=values)))
    except InputError as error:
        return End(None, str(error))


def _sensitivity(task: Task, symbols: list[str], near: int) -> dict[str, float]:
    """Elasticities by central differences, with I and the rates chosen again; one-sided at the limits."""
    middle = relaxed(task, near)
    elasticities = {}
    for symbol in symbols:
        value = task.values[symbol]
        if value == 0 or not math.isfinite(value):
            elasticities[symbol] = 0.0  # multiplying it by a factor does not change it
            continue
        sides = []
        for sign in (1, -1):
            moved = {**task.values, symbol: value * math.exp(sign * _STEP)}
            try:
                height = relaxed(replace(task, values=moved), near)
            except InputError:
                height = math.inf
            if math.isfinite(height):
                sides.append(sign * math.log(height / middle) / _STEP)
        elasticities[symbol] = float(np.mean(sides)) if sides else math.nan
    return elasticities


def _practice(task: Task, local_steps: int, gamma: float, eta: float) -> Practice:
    count("practice's I", local_steps)
    used = replace(task, eta=positive("practice's eta", eta), gamma_min=None)
    bound = used.free.bound(local_steps, positive("practice's gamma", gamma))
    rounds = used.rounds(local_steps, gamma) if bound.admissible and task.target is not None else math.inf
    if bound.admissible and task.budget is not None:
        rounds = float(np.floor(task.budget / task.seconds(local_steps)))
    locator = find(task.theorem).locator
    return Practice(local_steps, gamma, eta, float(bound.gamma_max), bound.conditions, rounds, locator)
