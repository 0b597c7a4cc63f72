"""What a theorem is tried on: a quadratic federation and a way to run it, drawn at random, named, or changed a little.

Every federation starts at the origin. Nothing is lost, as the linear parts are free, and f(x0) - E f(end) is then
computed without the difference of two large numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedgauge.federation.generate import Shape, random_quadratics
from fedgauge.federation.quadratic import Floats, QuadraticFederation

Algorithm = Literal["fedavg", "momentum", "minibatch", "fedadam"]
SIGMA2 = (0.0, 0.01, 0.3, 1.0, 10.0, 100.0)
BOUNDED: tuple[Shape, ...] = ("convex", "mean-convex")
MOST_STEPS, MOST_ROUNDS = 48, 60
"""How far the directed search may raise I and R."""


@dataclass(frozen=True)
class Setting:
    """What a theorem speaks of.

    Attributes:
        algorithm: which one.
        shapes: the federations that it covers.
        free_eta: whether eta may differ from 1.
        equal: whether all Hessians are one.
        sampled: whether only M workers, drawn with replacement, take part in a round.
    """

    algorithm: Algorithm = "fedavg"
    shapes: tuple[Shape, ...] = (*BOUNDED, "indefinite")
    free_eta: bool = True
    equal: bool = False
    sampled: bool = False


SETTINGS: dict[str, Setting] = {
    "nonconvex": Setting(),
    "partial": Setting(sampled=True),
    "equal-hessians": Setting(free_eta=False, equal=True),
    "minibatch": Setting("minibatch", free_eta=False),
    "quadratic": Setting(free_eta=False),
    "momentum": Setting("momentum", free_eta=False),
    "fedadam": Setting("fedadam", BOUNDED),
    "strongly-convex": Setting(shapes=BOUNDED),
    "strongly-convex-last": Setting(shapes=BOUNDED),
}


@dataclass(frozen=True)
class Problem:
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


def draw(setting: Setting, generator: np.random.Generator, most: int = 5) -> Problem:
    """Draw a problem; ``most`` is the largest dimension, and where it is below 5 there are at most as many workers."""
    small = most < 5
    adam = setting.algorithm == "fedadam"
    N = int(generator.integers(1, most + 1) if small else generator.integers(2, 9))
    if setting.sampled and generator.random() < 0.5:
        N = int(generator.integers(9, 65))
    noisy = not adam or (generator.random() < 0.25 and not small)
    federation = random_quadratics(
        N,
        int(generator.integers(1, most + 1)),
        shape=setting.shapes[generator.integers(len(setting.shapes))],
        hessian_spread=0.0 if setting.equal or generator.random() < 0.1 else _log_uniform(generator, 0.02, 1.0),
        linear_spread=0.0 if generator.random() < 0.2 else _log_uniform(generator, 0.01, 10.0),
        conditioning=_log_uniform(generator, 1.0, 1000.0),
        smoothness=_log_uniform(generator, 0.1, 10.0),
        sigma2=SIGMA2[generator.integers(len(SIGMA2))] if noisy else 0.0,
        seed=int(generator.integers(2**62)),
    )
    distance = _log_uniform(generator, 1e-4 if adam else 0.1, 10.0)
    return Problem(
        starting_at(federation, distance * federation.first_model),
        I=_count(generator, 1, 16),
        R=_count(generator, 1, 30),
        M=N if generator.random() < 0.4 else int(generator.integers(1, N + 1)),
        eta=_log_uniform(generator, 0.1, 1000.0 if adam or setting.sampled else 30.0) if setting.free_eta else 1.0,
        share=1.0 if generator.random() < 0.4 else _log_uniform(generator, 0.01, 1.0),
        beta=(0.0, 0.3, 0.5, 0.9, 0.97)[generator.integers(5)],
        tau=_log_uniform(generator, 1e-3, 10.0),
        beta2=(0.0, 0.5, 0.9, 0.99, 0.999)[generator.integers(5)],
        noise_seed=int(generator.integers(2**62)),
    )


def _identical() -> Problem:
    """48 times f = x^2/2: at gamma eta = M/16 every round multiplies the error by -2."""
    federation = QuadraticFederation(np.ones((48, 1, 1)), np.zeros((48, 1)))
    return Problem(starting_at(federation, np.ones(1)), I=1, R=8, M=48, eta=3000.0)


def _long_rounds() -> Problem:
    """f = x^2/2 from close by: a round of 24 local steps is one large step, which eta makes too large."""
    federation = QuadraticFederation([[[1.0]]], [[0.0]])
    return Problem(starting_at(federation, np.full(1, 1e-4)), I=24, R=5, eta=192.0, tau=1.0, beta2=0.99)


def _stiff_start() -> Problem:
    """f = (x1^2 + x2^2/100)/2 from (1, 0): mu d0 is a hundredth of what is to be descended, and one round is short."""
    federation = QuadraticFederation([np.diag([1.0, 0.01])], [[0.0, 0.0]])
    return Problem(starting_at(federation, np.array([1.0, 0.0])), I=1, R=1, eta=15.0)


FAMILIES: dict[str, Callable[[], Problem]] = {
    "partial": _identical,
    "fedadam": _long_rounds,
    "strongly-convex": _stiff_start,
    "strongly-convex-last": _stiff_start,
}
"""Problems known to break a printed theorem, from which the directed search of that theorem starts."""


def _change_hessians(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    A = p.federation.hessians
    together = s.equal or g.random() < 0.5
    change = g.standard_normal((1 if together else len(A), *A.shape[1:]))
    change = size * np.abs(A).max() * (change + change.swapaxes(1, 2)) / 2
    return replace(p, federation=QuadraticFederation(A + change, p.federation.linear, sigma2=p.federation.sigma2))


def _change_linear(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    A, b = p.federation.hessians, p.federation.linear
    change = g.standard_normal(b.shape if g.random() < 0.5 else (1, b.shape[1]))
    # Where all gradients are zero at the start there is nothing to scale by.
    change = size * (np.abs(b).max() or 1.0) * change
    return replace(p, federation=QuadraticFederation(A, b + change, sigma2=p.federation.sigma2))


def _change_noise(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    old = p.federation.sigma2
    new = 0.0 if g.random() < 0.2 else (old or 0.01) * np.exp(3 * size * g.standard_normal())
    if s.algorithm == "fedadam":
        new = 0.0  # one run is then exact
    federation = QuadraticFederation(p.federation.hessians, p.federation.linear, sigma2=float(new))
    return replace(p, federation=federation)


def _near(g: np.random.Generator, value: int, most: int) -> int:
    other = value + int(g.choice([-1, 1])) if g.random() < 0.5 else round(value * np.exp(g.standard_normal()))
    return int(np.clip(other, 1, most))


def _change_counts(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    which = g.integers(3)
    if which == 0:
        return replace(p, I=_near(g, p.I, MOST_STEPS))
    if which == 1 or not s.sampled:
        return replace(p, R=_near(g, p.R, MOST_ROUNDS))
    return replace(p, M=_near(g, p.M, p.federation.num_workers))


def _change_rates(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    if s.free_eta and g.random() < 0.6:
        return replace(p, eta=float(np.clip(p.eta * np.exp(3 * size * g.standard_normal()), 1e-3, 1e5)))
    return replace(p, share=float(min(1.0, max(1e-4, p.share * np.exp(2 * size * g.standard_normal())))))


def _change_momenta(p: Problem, s: Setting, g: np.random.Generator, size: float) -> Problem:
    return replace(
        p,
        beta=float(np.clip(p.beta + 0.3 * size * g.standard_normal(), 0.0, 0.99)),
        beta2=float(np.clip(p.beta2 + 0.3 * size * g.standard_normal(), 0.0, 0.9999)),
        tau=float(np.clip(p.tau * np.exp(3 * size * g.standard_normal()), 1e-6, 1e6)),
    )


def change(problem: Problem, setting: Setting, generator: np.random.Generator) -> Problem:
    """Change one thing about a problem, by a step whose size is drawn too."""
    ways = [_change_hessians, _change_linear, _change_noise, _change_counts, _change_rates]
    if setting.algorithm in ("momentum", "fedadam"):
        ways.append(_change_momenta)
    return ways[generator.integers(len(ways))](problem, setting, generator, _log_uniform(generator, 0.01, 1.0))
