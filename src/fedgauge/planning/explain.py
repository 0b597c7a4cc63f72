"""Why a plan is what it is: what of the error is drift, noise and way still to go, and what of the time is waiting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedgauge.pace.cost import Cost
from fedgauge.planning.candidates import Candidate
from fedgauge.values import Constants, Value

_STABLE = 2.0  # a step of gradient descent overshoots where the rate times the smoothness is above this
_ALIKE = 1e-9  # of the squared gradient: what rounding leaves of the divergence of equal workers


@dataclass(frozen=True)
class Seen(Value):
    """What was measured where a plan's numbers are to be explained.

    Attributes:
        fall: by which f fell in the run.
        grad2: squared norm of f's gradient at the end of it.
        sigma2: variance of a stochastic gradient, mean over workers.
        zeta2: divergence of the gradients, mean over workers.
        L_g: smoothness of f, seen.
        L_h: seen.
        deviation2: squared distance between the averaged local gradients and the gradient at the averaged model, after
            ``local_steps`` local steps with rate ``gamma``.
        local_steps: for ``deviation2``.
        gamma: for ``deviation2``.
    """

    fall: float
    grad2: float
    sigma2: float
    zeta2: float
    L_g: float
    L_h: float
    deviation2: float
    local_steps: int
    gamma: float

    @property
    def identical(self) -> bool:
        """Whether the workers' gradients are the same up to rounding."""
        return self.zeta2 <= _ALIKE * max(self.grad2, self.sigma2)

    def drift(self, local_steps: int, gamma: float) -> float:
        """What local steps add: gamma^2 ((I-1) sigma^2 + (I-1)^2 zeta^2) times L_h^2, scaled to what was measured.

        The shape is that of Theorem 4.3. Its constants are worst cases, and what was measured replaces them.
        """

        def shape(steps: int, rate: float) -> float:
            return rate**2 * ((steps - 1) * self.sigma2 + (steps - 1) ** 2 * self.zeta2)

        measured = shape(self.local_steps, self.gamma)
        scale = self.deviation2 / measured if measured > 0 else self.L_h**2
        return scale * shape(local_steps, gamma)


@dataclass(frozen=True)
class Terms(Value):
    """What stands in the way after some time, each a squared gradient norm, as the theory adds them up.

    Attributes:
        I: local steps.
        progress: 2 F/(gamma eta I R): what more time would take away.
        noise: gamma eta L_g sigma^2/M.
        drift: of the local models, with which time does nothing.
    """

    I: int  # noqa: E741
    progress: float
    noise: float
    drift: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.progress + self.noise + self.drift

    def share(self, name: str) -> float:
        """A term's part of all.

        >>> Terms(8, 3.0, 0.0, 1.0).share("drift")
        0.25
        """
        return float(getattr(self, name)) / self.total if self.total > 0 else 0.0


def terms(seen: Seen, candidate: Candidate, cost: Cost, seconds: float) -> Terms:
    """The terms of a candidate after some seconds."""
    rate, rounds = candidate.gamma * candidate.eta, seconds / candidate.seconds(cost)
    return Terms(
        candidate.I,
        progress=2 * max(seen.fall, 0.0) / (rate * candidate.I * rounds),
        noise=rate * seen.L_g * seen.sigma2 / candidate.M,
        drift=seen.drift(candidate.I, candidate.gamma),
    )


def from_constants(constants: Constants, fall: float, grad2: float) -> Seen:
    """What is known before any run: constants measured at the first model, none of which says how much drift adds."""

    def value(*names: str) -> float:
        return next((float(constants[name].value) for name in names if name in constants), 0.0)

    sigma, zeta, L_g, L_h = (
        value(*names) for names in (("sigma_rms", "sigma"), ("zeta_rms", "zeta"), ("L_g",), ("L_h",))
    )
    return Seen(fall, grad2, sigma**2, zeta**2, L_g, L_h, deviation2=0.0, local_steps=1, gamma=1.0)


def order(candidates: Sequence[Candidate], seen: Seen, cost: Cost, seconds: float) -> list[Candidate]:
    """The candidates by the error that the constants promise after some seconds; those that overshoot come last."""

    def promise(candidate: Candidate) -> tuple[bool, float]:
        overshoots = candidate.gamma * max(candidate.eta, 1.0) * seen.L_g > _STABLE
        return overshoots, terms(seen, candidate, cost, seconds).total

    return sorted(candidates, key=promise)


def say(candidate: Candidate, cost: Cost, found: Terms) -> str:
    """The sentence that people came for.

    >>> cost = Cost("given", fixed=8.0, step=0.05)
    >>> say(Candidate(40, 0.1, 1.0, 10), cost, Terms(40, 88.0, 6.0, 6.0))
    'At I = 40, client drift is 6% of the error and gradient noise 6%; communication is 80% of the time.'
    """
    waiting = cost.communication(candidate.M) / candidate.seconds(cost)
    parts = f"client drift is {found.share('drift'):.0%} of the error and gradient noise {found.share('noise'):.0%}"
    if not math.isfinite(found.total) or found.total <= 0:
        parts = "nothing is left of the error"
    return f"At I = {candidate.I}, {parts}; communication is {waiting:.0%} of the time."
