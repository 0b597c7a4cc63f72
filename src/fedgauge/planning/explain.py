"""Explain a plan: how much of the error is drift, noise and remaining progress, and how much time is communication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedgauge.pace.cost import Cost
from fedgauge.planning.candidates import Candidate
from fedgauge.values import Constants, Value

_STABLE = 2.0  # gradient descent overshoots if the rate times the smoothness is above this
_ALIKE = 1e-9  # divergence that rounding may leave between equal workers, as a fraction of the squared gradient


@dataclass(frozen=True)
class Seen(Value):
    """Measurements at the end of a run, with which a plan is explained.

    Attributes:
        fall: how far f fell during the run.
        grad2: squared norm of the gradient of f at the end of the run.
        sigma2: variance of a stochastic gradient, averaged over workers.
        zeta2: divergence of the gradients, averaged over workers.
        L_g: smoothness of f, as observed.
        L_h: the constant L_h, as observed.
        deviation2: squared distance between the averaged local gradients and the gradient at the averaged model, after
            ``local_steps`` local steps with rate ``gamma``.
        local_steps: the local steps of ``deviation2``.
        gamma: the rate of ``deviation2``.
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
        """The error that local steps add: gamma^2 ((I-1) sigma^2 + (I-1)^2 zeta^2) times a factor.

        The shape is that of Theorem 4.3. Its factor is a worst case, so the measured deviation replaces it; if there is
        none, the factor is L_h^2.
        """

        def shape(steps: int, rate: float) -> float:
            # A product becomes infinite where a power raises an error.
            return rate * rate * ((steps - 1) * self.sigma2 + (steps - 1) ** 2 * self.zeta2)

        measured = shape(self.local_steps, self.gamma)
        scale = self.deviation2 / measured if measured > 0 else self.L_h**2
        return scale * shape(local_steps, gamma)


@dataclass(frozen=True)
class Terms(Value):
    """The terms of the error after some time, each a squared gradient norm, as the theory adds them up.

    Attributes:
        I: number of local steps.
        progress: 2 F/(gamma eta I R), which falls with more time.
        noise: gamma eta L_g sigma^2/M, which does not.
        drift: the drift of the local models, which does not fall with time either.
    """

    I: int  # noqa: E741
    progress: float
    noise: float
    drift: float

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return self.progress + self.noise + self.drift

    def share(self, name: str) -> float:
        """The fraction of the total that is in one term.

        >>> Terms(8, 3.0, 0.0, 1.0).share("drift")
        0.25
        """
        return float(getattr(self, name)) / self.total if self.total > 0 else 0.0


def terms(seen: Seen, candidate: Candidate, cost: Cost, seconds: float) -> Terms:
    """The terms of a candidate's error after some seconds."""
    rate, rounds = candidate.gamma * candidate.eta, seconds / candidate.seconds(cost)
    return Terms(
        candidate.I,
        progress=2 * max(seen.fall, 0.0) / (rate * candidate.I * rounds),
        noise=rate * seen.L_g * seen.sigma2 / candidate.M,
        drift=seen.drift(candidate.I, candidate.gamma),
    )


def from_constants(constants: Constants, fall: float, grad2: float) -> Seen:
    """What is known before any run: constants at the first model, none of which says how much error drift adds."""

    def value(*names: str) -> float:
        return next((float(constants[name].value) for name in names if name in constants), 0.0)

    sigma, zeta, L_g, L_h = (
        value(*names) for names in (("sigma_rms", "sigma"), ("zeta_rms", "zeta"), ("L_g",), ("L_h",))
    )
    return Seen(fall, grad2, sigma**2, zeta**2, L_g, L_h, deviation2=0.0, local_steps=1, gamma=1.0)


def order(candidates: Sequence[Candidate], seen: Seen, cost: Cost, seconds: float) -> list[Candidate]:
    """Sort candidates by the error that the constants predict after some seconds; those that overshoot come last."""

    def predicted(candidate: Candidate) -> tuple[bool, float]:
        overshoots = candidate.gamma * max(candidate.eta, 1.0) * seen.L_g > _STABLE
        return overshoots, terms(seen, candidate, cost, seconds).total

    return sorted(candidates, key=predicted)


def say(candidate: Candidate, cost: Cost, found: Terms) -> str:
    """Say in one sentence what the error and the time consist of.

    >>> cost = Cost("mine", fixed=8.0, step=0.05)
    >>> say(Candidate(40, 0.1, 1.0, 10), cost, Terms(40, 88.0, 6.0, 6.0))
    'At I = 40, client drift is 6% of the error and gradient noise 6%; communication is 80% of the time.'
    """
    waiting = cost.communication(candidate.M) / candidate.seconds(cost)
    parts = f"client drift is {found.share('drift'):.0%} of the error and gradient noise {found.share('noise'):.0%}"
    if not math.isfinite(found.total) or found.total <= 0:
        parts = "nothing is left of the error"
    return f"At I = {candidate.I}, {parts}; communication is {waiting:.0%} of the time."
