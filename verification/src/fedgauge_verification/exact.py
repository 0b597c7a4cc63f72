"""The left-hand sides: what a run on quadratics really does, in expectation.

For FedAvg, momentum and mini-batch SGD they are exact. FedAdam divides by a random number, so it is run: once where
there is no noise, which is exact as well, and otherwise many times, with an interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauge.algorithms import make_algorithm, parameters_of
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Floats
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.theory import Theorem
from fedgauge.theory.expectation import States, divergence, states
from fedgauge_verification.problem import QuadraticProblem

RUNS = 64
"""Runs of FedAdam where there is noise."""

ERRORS = 5.0
"""How many standard errors the interval reaches down; 64 runs leave less than one false alarm in a hundred thousand."""


@dataclass(frozen=True)
class Measured:
    """What the theorems need to know about one run.

    Attributes:
        round_grad2: E‖∇f(x̄^r)‖² for r < R.
        low_grad2: lower ends of their intervals; the same where they are exact.
        step_grad2: E‖∇f(x̂^{r,k})‖² for r < R and k < I, in that order; where the averaged models mean nothing to the
            theorem, the rounds again.
        excess: E f(x̄^r) - f* for r = 0..R; empty where f has no least value, and for FedAdam.
        descent: f(x̄^0) - E f(end), where the end is x̄^R, or for momentum the point that its proof follows instead.
        descent_size: the largest sum of absolute values that a descent adds up in any round, by which its rounding is
            measured: the models of later rounds carry the rounding of those before.
        zeta2: the largest (1/N) sum_i E‖∇F_i - ∇f‖² at the models where the theorem's proof takes it.
        G: the largest entry of a stochastic gradient (FedAdam only).
    """

    round_grad2: Floats
    low_grad2: Floats
    step_grad2: Floats
    excess: Floats
    descent: float
    descent_size: float
    zeta2: float
    G: float = 0.0


def _grad2(federation: QuadraticFederation, mean: Floats, covariance: Floats) -> Floats:
    A = federation.mean_hessian
    gradient = mean @ A + federation.mean_linear
    found: Floats = np.sum(gradient * gradient, axis=-1) + np.sum(covariance * (A @ A), axis=(-2, -1))
    return found


def _excess(federation: QuadraticFederation, mean: Floats, covariance: Floats) -> Floats:
    x_star, _ = federation.minimiser()
    if x_star is None:
        return np.empty(0)
    A, off = federation.mean_hessian, mean - x_star
    found: Floats = (np.sum((off @ A) * off, axis=-1) + np.sum(covariance * A, axis=(-2, -1))) / 2
    return found


def _end(run: States, problem: QuadraticProblem, gamma: float) -> tuple[Floats, Floats]:
    """Mean and covariance of the model whose expected loss the proof telescopes to."""
    d = problem.federation.dim
    m, C = run.mean[-1], run.covariance[-1]
    if len(m) == d:
        return m, C
    # With momentum the proof follows x̂ - gamma beta/(1 - beta) û, which starts at x̂^0.
    to_point = np.hstack([np.eye(d), -gamma * problem.beta / (1 - problem.beta) * np.eye(d)])
    return to_point @ m, to_point @ C @ to_point.T


def _averaged(run: States, d: int) -> tuple[Floats, Floats]:
    """Mean and covariance of x̂^{r,k} for r < R and k < I, with every worker in every round and eta = 1."""
    before, m, C = run.before_steps(), run.mean[:-1, None], run.covariance[:-1, None]
    P = np.array([maps.T[:, :d].mean(axis=0) for maps in before])
    p = np.array([maps.t[:, :d].mean(axis=0) for maps in before])
    Q = np.array([maps.Q[:, :d, :d].mean(axis=0) / len(maps.Q) for maps in before])
    return (P @ m[..., None])[..., 0] + p, P @ C @ P.swapaxes(1, 2) + Q


def parameters(problem: QuadraticProblem, theorem: Theorem, gamma: float) -> dict[str, float]:
    """The parameters with which a problem runs a theorem's algorithm; the theorems cover beta1 = 0 only."""
    known = {"gamma": gamma, "eta": problem.eta, "beta": problem.beta, "tau": problem.tau, "beta1": 0.0}
    known["beta2"] = problem.beta2
    return {name: known[name] for name in parameters_of(theorem.algorithm) if name in known}


# A diverging run overflows to infinity, which is its answer.
@np.errstate(over="ignore", invalid="ignore")
def measure(problem: QuadraticProblem, theorem: Theorem, gamma: float) -> Measured:
    """Measure a run of FedAvg, momentum or mini-batch SGD exactly, as a theorem describes it.

    Args:
        problem: the federation and how it is run.
        theorem: gives the algorithm, the models that it bounds, and where it takes zeta.
        gamma: the local rate.
    """
    federation, d = problem.federation, problem.federation.dim
    who = Participation() if theorem.sampling == "full" else Participation(theorem.sampling, problem.M)
    algorithm = make_algorithm(theorem.algorithm, **parameters(problem, theorem, gamma))
    run = states(federation, algorithm, local_steps=problem.I, rounds=problem.R, participation=who)
    mean, covariance = run.mean[:, :d], run.covariance[:, :d, :d]
    rounds = _grad2(federation, mean, covariance)[:-1]
    end, spread = _end(run, problem, gamma)
    A, b = federation.mean_hessian, federation.mean_linear
    parts = np.array([end @ b, end @ A @ end / 2, np.sum(spread * A) / 2])
    passed = np.abs(mean @ b) + np.abs(np.sum((mean @ A) * mean, axis=1)) / 2
    passed = passed + np.abs(np.sum(covariance * A, axis=(1, 2))) / 2
    found = divergence(federation, run)
    return Measured(
        round_grad2=rounds,
        low_grad2=rounds,
        step_grad2=_grad2(federation, *_averaged(run, d)).ravel()
        if theorem.quantity.models == "local steps"
        else rounds,
        excess=_excess(federation, mean, covariance),
        descent=-float(parts.sum()),
        descent_size=max(float(np.abs(parts).sum()), float(passed.max())),
        zeta2=float((found[:, 0] if theorem.zeta_at == "global models" else found).max()),
    )


@np.errstate(over="ignore", invalid="ignore")
def measure_adam(problem: QuadraticProblem, gamma: float, runs: int = RUNS) -> Measured:
    """Run FedAdam (beta1 = 0): once without noise, otherwise ``runs`` times with the same draws for every gamma."""
    federation = problem.federation
    A, b, d = federation.hessians, federation.linear[:, None], federation.dim
    off, off_b = A - federation.mean_hessian, b - federation.mean_linear
    deviation = (federation.sigma2 / d) ** 0.5
    runs = runs if deviation else 1
    noise = Streams(problem.noise_seed, Purpose.NOISE).at()
    x, v = np.zeros((runs, d)), np.zeros((runs, d))
    path, G, zeta2 = [], 0.0, 0.0
    # A round's local models and gradients, one entry per step: they are looked at together, because a reduction of so
    # few numbers takes longer than the step itself.
    models, gradients = (np.empty((problem.I, len(A), runs, d)) for _ in range(2))
    for _ in range(problem.R):
        path.append(x)
        local = np.broadcast_to(x, (len(A), runs, d))
        for step in range(problem.I):
            models[step] = local
            gradient = local @ A + b
            if deviation:
                gradient = gradient + deviation * noise.standard_normal(gradient.shape)
            gradients[step] = gradient
            local = local - gamma * gradient
        gap = models @ off + off_b
        # What is no number any more comes after what was infinite, and is passed over.
        zeta2 = float(np.fmax.reduce(np.sum(gap * gap, axis=-1).mean(axis=(1, 2)), initial=zeta2))
        G = float(np.fmax.reduce(np.abs(gradients), axis=None, initial=G))
        change = x - local.mean(axis=0)
        v = problem.beta2 * v + (1 - problem.beta2) * change * change
        x = x - problem.eta * change / (np.sqrt(v) + problem.tau)
    each = _grad2(federation, np.array(path), np.zeros((d, d)))
    error = each.std(axis=1, ddof=1) / runs**0.5 if runs > 1 else np.zeros(len(each))
    mean = each.mean(axis=1)
    return Measured(
        round_grad2=mean,
        low_grad2=mean - ERRORS * error,
        step_grad2=mean,
        excess=np.empty(0),
        descent=0.0,
        descent_size=0.0,
        zeta2=zeta2,
        G=G,
    )
