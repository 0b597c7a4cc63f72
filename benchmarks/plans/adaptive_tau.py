r"""The adaptive number of local steps of Wang et al., as a baseline.

**Setting.** Wang, Tuor, Salonidis, Leung, Makaya, He, Chan: Adaptive Federated Learning in Resource Constrained Edge
Computing Systems, IEEE J-SAC 37(6), 2019 (arXiv:1804.05271), Algorithms 2 and 3. tau is their name for I, and their
eta, the step size, is our gamma. All workers take part, and models are averaged.

**Measured** at each aggregation, from the local models w_i and their mean w, each averaged over the workers:

    rho_i   = |F_i(w_i) - F_i(w)| / |w_i - w|
    beta_i  = |grad F_i(w_i) - grad F_i(w)| / |w_i - w|
    delta_i = |grad F_i(w) - grad F(w)|

**Rule.** With c seconds per local step, b seconds per aggregation, R' seconds of the budget left, and

    h(tau) = (delta / beta) ((gamma beta + 1)^tau - 1) - gamma delta tau
    q(tau) = (c tau + b) / (2 gamma phi R' tau)
    G(tau) = q(tau) + sqrt(q(tau)^2 + rho h(tau) / (gamma phi tau)) + rho h(tau)

the next tau is the whole number that minimises G, from 1 to ten times the last one and at most ``cap``.

**What is chosen by hand.** phi: 0.025 on their convex models (``PHI``) and 0.00005 on their CNN (``PHI_NETWORK``), as
in the configuration of the authors' programs, which is also where the factor of ten, the smallest beta of 1e-5 and the
limit of h to at least 0 come from. We use exact losses and gradients at the models of the same aggregation, where they
use those of the last mini-batch and aggregation; equal weights for all workers; and seconds of the cost model, where
they estimate c and b. The loop ends when a round no longer fits into the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedgauge.base.errors import InputError, count, positive
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.protocols import Federation, HasLosses
from fedgauge.values import Round, Value
from fedgauge_planning.goal import Goal

if TYPE_CHECKING:
    import torch

    from fedgauge.simulation.options import Evaluator

PHI, PHI_NETWORK = 0.025, 5e-5
"""Their control parameter on convex models and on a CNN."""
_GROWTH = 10
"""A tau is at most this many times the last one, as in their programs."""
_LEAST_BETA = 1e-5


@dataclass(frozen=True)
class Aggregation(Value):
    """One round of the baseline.

    Attributes:
        round: r, counted from 0.
        seconds: the seconds of the cost model before the round.
        loss: f before the round.
        reached: whether the model before the round is as good as the goal.
        tau: local steps of the round; 0 in the record that ends the run.
        rho: measured after the round.
        beta: measured after the round.
        delta: measured after the round.
    """

    round: int
    seconds: float
    loss: float
    reached: bool = False
    tau: int = 0
    rho: float = 0.0
    beta: float = 0.0
    delta: float = 0.0


def divergence_bound(tau: int, gamma: float, beta: float, delta: float) -> float:
    """h(tau), their bound on the distance between the mean of the local models and a model trained on all data.

    >>> divergence_bound(1, 0.1, 2.0, 3.0)
    0.0
    >>> round(divergence_bound(2, 0.1, 2.0, 3.0), 12)  # gamma^2 beta delta
    0.06
    """
    beta = max(beta, _LEAST_BETA)
    # Growth that overflows a float would never be chosen; its size does not matter.
    grown = math.expm1(min(tau * math.log1p(gamma * beta), 700.0))
    # Rounding can make the difference of equal numbers negative.
    return max(delta / beta * grown - gamma * delta * tau, 0.0) if tau > 1 else 0.0


def gap(
    tau: int, *, gamma: float, rho: float, beta: float, delta: float, step: float, fixed: float, left: float, phi: float
) -> float:
    """G(tau), their bound on the loss at the end of the budget, minus the smallest possible loss.

    >>> numbers = dict(gamma=0.1, rho=1.0, beta=1.0, step=1.0, fixed=1.0, left=100.0, phi=0.025)
    >>> round(gap(1, delta=0.0, **numbers), 12), round(gap(2, delta=0.0, **numbers), 12)
    (8.0, 6.0)
    """
    h = divergence_bound(tau, gamma, beta, delta)
    q = (step * tau + fixed) / (2 * gamma * phi * left * tau)
    return q + math.sqrt(q * q + rho * h / (gamma * phi * tau)) + rho * h


def best_tau(
    last: int,
    cap: int,
    *,
    gamma: float,
    rho: float,
    beta: float,
    delta: float,
    step: float,
    fixed: float,
    left: float,
    phi: float,
) -> int:
    """The tau that minimises G.

    >>> numbers = dict(gamma=0.1, rho=1.0, beta=1.0, step=1.0, fixed=1.0, left=100.0, phi=0.025)
    >>> best_tau(3, 100, delta=0.0, **numbers), best_tau(3, 100, delta=50.0, **numbers)
    (30, 1)
    """

    def of(tau: int) -> float:
        return gap(tau, gamma=gamma, rho=rho, beta=beta, delta=delta, step=step, fixed=fixed, left=left, phi=phi)

    return min(range(1, min(_GROWTH * last, cap) + 1), key=of)


def adaptive_tau(
    federation: Federation,
    gamma: float,
    *,
    budget: float,
    step: float,
    fixed: float,
    phi: float = PHI,
    cap: int = 128,
    goal: Goal | None = None,
    evaluator: Evaluator | None = None,
    start: torch.Tensor | None = None,
    seed: int = 0,
) -> tuple[Aggregation, ...]:
    """Run the baseline until its budget is spent or a goal is reached.

    Args:
        federation: what the workers compute; all take part, and all rows are computed at once.
        gamma: the local learning rate.
        budget: R, in seconds.
        step: c, the seconds of a local step.
        fixed: b, the seconds of an aggregation.
        phi: the control parameter.
        cap: the largest tau.
        goal: stop at the first model that is as good.
        evaluator: gives the test accuracy, if the goal is one.
        start: the first model; by default the federation's own for the seed.
        seed: the seed of the mini-batches and the first model, used as in ``simulate``.

    Returns:
        One record per round, and one of the model after the last; they end early if f is no longer finite.

    >>> from fedgauge import random_quadratics
    >>> records = adaptive_tau(random_quadratics(4, 3), 0.1, budget=50.0, step=0.1, fixed=1.0)
    >>> records[-1].loss < records[0].loss, records[-1].seconds <= 50
    (True, True)
    """
    import torch

    from fedgauge.base.threads import one_thread

    for name, value in (("gamma", gamma), ("budget", budget), ("phi", phi)):
        positive(name, value)
    count("cap", cap)
    if step < 0 or fixed < 0 or not step + fixed > 0:
        raise InputError(f"A round must cost something: step {step!r} and fixed {fixed!r} must not both be 0 or less.")
    if not isinstance(federation, HasLosses):
        raise InputError("adaptive_tau compares the losses of single workers, which this federation does not offer.")
    N = federation.num_workers
    workers, copies = np.arange(N), np.zeros(N, dtype=np.int64)
    weights, streams = np.full(N, 1.0 / N), Streams(seed, Purpose.NOISE)
    model, seconds, tau = federation.start(seed) if start is None else start, 0.0, 1
    records: list[Aggregation] = []
    with one_thread():
        while True:
            loss, gradient = federation.pooled(model, workers, weights)
            accuracy = evaluator.accuracy(model) if evaluator else None
            seen = Round(len(records), loss, float(gradient @ gradient), accuracy=accuracy)
            reached = goal is not None and goal.reached(seen)
            lasts = seconds + step * tau + fixed
            if not math.isfinite(loss):
                break
            if reached or lasts > budget:
                records.append(Aggregation(len(records), seconds, loss, reached))
                break
            rows = model.expand(N, -1)
            draws = federation.draws(streams, len(records), workers, copies, tau)
            local = federation.local_sgd(rows, workers, draws, gamma)
            mean = local.double().mean(dim=0).to(model.dtype)
            own_losses, own = federation.evaluate(local, workers)
            losses, slopes = federation.evaluate(mean.expand(N, -1), workers)
            apart = (local - mean).double().norm(dim=1)
            some = apart > 0
            rho = float(((own_losses - losses).double().abs() / apart)[some].sum() / N)
            beta = float(((own - slopes).double().norm(dim=1) / apart)[some].sum() / N)
            delta = float((slopes - slopes.mean(dim=0)).double().norm(dim=1).mean())
            records.append(Aggregation(len(records), seconds, loss, reached, tau, rho, beta, delta))
            if not torch.isfinite(mean.sum()):
                break
            model, seconds = mean, lasts
            left = budget - seconds
            if left > 0 and math.isfinite(rho + beta + delta):
                numbers = {"rho": rho, "beta": beta, "delta": delta, "left": left, "phi": phi}
                tau = best_tau(tau, cap, gamma=gamma, step=step, fixed=fixed, **numbers)
    return tuple(records)
