"""The rules that are entered so far; a rule of your own is a function like these.

A rule is called with the set-up of a federation, the cost of a round in local steps, and the local steps of a run. It
returns a number of local steps, or whatever ``fg.simulate`` takes as ``local_steps``; or a :class:`Choice`, if it has
spent gradient steps to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import answer
import fedgauge as fg
import regret
from live_runs import Case

ALPHA = 0.3981071705534973
"""QSR's, the best for the 34 federations on which the gauge was developed."""


@dataclass(frozen=True)
class Choice:
    """What a rule has chosen, and the gradient steps of each worker that it has spent."""

    local_steps: Any
    spent: float = 0.0


def gauge(setup: fg.Setup, cost: float, steps: int) -> Choice:
    """The gauge, with runs of half the length."""
    found = fg.gauge(setup, cost=cost, steps=steps // 2, progress=None)
    return Choice(found.answer.best().local_steps, found.spent.gradient_steps)


def one_epoch(setup: fg.Setup, cost: float, steps: int) -> int:
    """The rule of thumb."""
    return answer.epoch(setup)


def always_16(setup: fg.Setup, cost: float, steps: int) -> int:
    """A fixed number."""
    return regret.OWN


def qsr(setup: fg.Setup, cost: float, steps: int) -> int:
    """The quadratic synchronisation rule; with a constant rate it is a constant too."""
    return max(int((ALPHA / setup.algorithm.parameters["gamma"]) ** 2), 1)


def adacomm(setup: fg.Setup, cost: float, steps: int) -> Any:
    """AdaComm, from 64 local steps."""
    return regret.RULES["AdaComm"](Case({}, steps), cost)


def auto(setup: fg.Setup, cost: float, steps: int) -> Any:
    """``--local-steps auto``, which evaluates models within a round."""
    return regret.RULES["auto"](Case({}, steps), cost)


def live_gauge(setup: fg.Setup, cost: float, steps: int) -> Any:
    """The live gauge in charge of the run."""
    return regret.RULES["live gauge"](Case({}, steps), cost)
