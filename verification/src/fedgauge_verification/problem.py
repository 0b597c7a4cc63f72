"""What a theorem is tried on: a quadratic federation and a way to run it, drawn at random, named, or changed a little.

Every federation starts at the origin. Nothing is lost, as the linear parts are free, and f(x0) - E f(end) is then
computed without the difference of two large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedgauge.algorithms import parameters_of
from fedgauge.base.types import Floats
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.federation.random_quadratics import Shape, random_quadratics
from fedgauge.theory import Theorem

SIGMA2 = (0.0, 0.01, 0.3, 1.0, 10.0, 100.0)
BOUNDED: tuple[Shape, ...] = ("convex", "mean-convex")
SIMULATED = ("fedadam",)
"""The algorithms whose expectations have no closed form, so that they are run."""
MOST_STEPS, MOST_ROUNDS = 48, 60
"""How far the directed search may raise I and R."""


def is_simulated(theorem: Theorem) -> bool:
    """Whether the algorithm that the theorem is about has to be run."""
    return theorem.algorithm in SIMULATED


def shapes(theorem: Theorem) -> tuple[Shape, ...]:
    """The federations that a theorem is tried on: those with a least value where only f - f* can be checked."""
    bounded = theorem.objectives == "strongly convex" or is_simulated(theorem)
    return BOUNDED if bounded else (*BOUNDED, "indefinite")


@dataclass(frozen=True)
class QuadraticProblem:
    """A federation that starts at the origin, and how it is run.

    Attributes:
        federation: the workers.
        I: local steps.
        R: rounds.
        M: participants, where they are sampled.
        eta: global rate.
        share: gamma as a share of the largest that the version under test admits.
        beta: momentum.
        tau: floor of FedAdam's step.
        beta2: decay of its second moment.
        noise_seed: of FedAdam's noise, which is simulated.
    """

    federation: QuadraticFederation
    I: int = 1  # noqa: E741
    R: int = 1
    M: int = 1
    eta: float = 1.0
    share: float = 1.0
    beta: float = 0.0
    tau: float = 1.0
    beta2: float = 0.99
    noise_seed: int = 0


def starting_at(federation: QuadraticFederation, start: Floats) -> QuadraticFederation:
    """Move the origin to ``start``, without changing what the workers do or their gradients.

    >>> moved = starting_at(QuadraticFederation([[[2.0]]], [[1.0]]), np.array([3.0]))
    >>> moved.linear.tolist(), moved.first_model.tolist()
    ([[7.0]], [0.0])
    """
    A = federation.hessians
    return QuadraticFederation(A, federation.linear + A @ start, sigma2=federation.sigma2)


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


def _count(generator: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, the small ones more often."""
    return int(_log_uniform(generator, low, high + 1))


def draw(theorem: Theorem, generator: np.random.Generator, most: int = 5) -> QuadraticProblem:
    """Draw a problem; ``most`` is the largest dimension, and where it is below 5 there are at most as many workers."""
    small = most < 5
    simulated, sampled = is_simulated(theorem), theorem.sampling != "full"
    covered, equal = shapes(theorem), theorem.objectives == "equal Hessians"
    N = int(generator.integers(1, most + 1) if small else generator.integers(2, 9))
    if sampled and generator.random() < 0.5:
        N = int(generator.integers(9, 65))
    noisy = not simulated or (generator.random() < 0.25 and not small)
    federation = random_quadratics(
        N,
        int(generator.integers(1, most + 1)),
        shape=covered[generator.integers(len(covered))],
        hessian_spread=0.0 if equal or generator.random() < 0.1 else _log_uniform(generator, 0.02, 1.0),
        linear_spread=0.0 if generator.random() < 0.2 else _log_uniform(generator, 0.01, 10.0),
        conditioning=_log_uniform(generator, 1.0, 1000.0),
        smoothness=_log_uniform(generator, 0.1, 10.0),
        sigma2=SIGMA2[generator.integers(len(SIGMA2))] if noisy else 0.0,
        seed=int(generator.integers(2**62)),
    )
    distance = _log_uniform(generator, 1e-4 if simulated else 0.1, 10.0)
    return QuadraticProblem(
        starting_at(federation, distance * federation.first_model),
        I=_count(generator, 1, 16),
        R=_count(generator, 1, 30),
        M=N if generator.random() < 0.4 else int(generator.integers(1, N + 1)),
        eta=_log_uniform(generator, 0.1, 1000.0 if simulated or sampled else 30.0) if theorem.eta == "free" else 1.0,
        share=1.0 if generator.random() < 0.4 else _log_uniform(generator, 0.01, 1.0),
        beta=(0.0, 0.3, 0.5, 0.9, 0.97)[generator.integers(5)],
        tau=_log_uniform(generator, 1e-3, 10.0),
        beta2=(0.0, 0.5, 0.9, 0.99, 0.999)[generator.integers(5)],
        noise_seed=int(generator.integers(2**62)),
    )


def named(theorem: Theorem) -> QuadraticProblem | None:
    """The problem known to break the printed theorem, where its file declares one.

    >>> from fedgauge.theory import find
    >>> named(find("partial")).M, named(find("nonconvex"))
    (48, None)
    """
    known = theorem.counterexample
    if known is None:
        return None
    hessians = np.array(known.hessians)
    federation = QuadraticFederation(hessians, np.zeros(hessians.shape[:2]))
    return QuadraticProblem(starting_at(federation, np.array(known.start)), **known.settings)  # type: ignore[arg-type]


def _change_hessians(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    A = p.federation.hessians
    together = t.objectives == "equal Hessians" or g.random() < 0.5
    change = g.standard_normal((1 if together else len(A), *A.shape[1:]))
    change = size * np.abs(A).max() * (change + change.swapaxes(1, 2)) / 2
    return replace(p, federation=QuadraticFederation(A + change, p.federation.linear, sigma2=p.federation.sigma2))


def _change_linear(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    A, b = p.federation.hessians, p.federation.linear
    change = g.standard_normal(b.shape if g.random() < 0.5 else (1, b.shape[1]))
    # Where all gradients are zero at the start there is nothing to scale by.
    change = size * (np.abs(b).max() or 1.0) * change
    return replace(p, federation=QuadraticFederation(A, b + change, sigma2=p.federation.sigma2))


def _change_noise(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    old = p.federation.sigma2
    new = 0.0 if g.random() < 0.2 else (old or 0.01) * np.exp(3 * size * g.standard_normal())
    if is_simulated(t):
        new = 0.0  # one run is then exact
    federation = QuadraticFederation(p.federation.hessians, p.federation.linear, sigma2=float(new))
    return replace(p, federation=federation)


def _near(g: np.random.Generator, value: int, most: int) -> int:
    other = value + int(g.choice([-1, 1])) if g.random() < 0.5 else round(value * np.exp(g.standard_normal()))
    return int(np.clip(other, 1, most))


def _change_counts(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    which = g.integers(3)
    if which == 0:
        return replace(p, I=_near(g, p.I, MOST_STEPS))
    if which == 1 or t.sampling == "full":
        return replace(p, R=_near(g, p.R, MOST_ROUNDS))
    return replace(p, M=_near(g, p.M, p.federation.num_workers))


def _change_rates(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    if t.eta == "free" and g.random() < 0.6:
        return replace(p, eta=float(np.clip(p.eta * np.exp(3 * size * g.standard_normal()), 1e-3, 1e5)))
    return replace(p, share=float(min(1.0, max(1e-4, p.share * np.exp(2 * size * g.standard_normal())))))


def _change_momenta(p: QuadraticProblem, t: Theorem, g: np.random.Generator, size: float) -> QuadraticProblem:
    return replace(
        p,
        beta=float(np.clip(p.beta + 0.3 * size * g.standard_normal(), 0.0, 0.99)),
        beta2=float(np.clip(p.beta2 + 0.3 * size * g.standard_normal(), 0.0, 0.9999)),
        tau=float(np.clip(p.tau * np.exp(3 * size * g.standard_normal()), 1e-6, 1e6)),
    )


def change(problem: QuadraticProblem, theorem: Theorem, generator: np.random.Generator) -> QuadraticProblem:
    """Change one thing about a problem, by a step whose size is drawn too."""
    ways = [_change_hessians, _change_linear, _change_noise, _change_counts, _change_rates]
    if {"beta", "beta2", "tau"} & set(parameters_of(theorem.algorithm)):
        ways.append(_change_momenta)
    return ways[generator.integers(len(ways))](problem, theorem, generator, _log_uniform(generator, 0.01, 1.0))
