"""The cost of a round in seconds of a modelled federation: communication, coordination and local steps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedgauge.base.errors import InputError, nearest, non_negative
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.protocols import Federation
from fedgauge.values import Value


@dataclass(frozen=True)
class Cost(Value):
    """The cost of a round: fixed + bytes/bandwidth M + step I.

    Attributes:
        name: the name of the preset, or ``given``.
        fixed: seconds that every round takes: coordination, and waiting for the slowest participant.
        bandwidth: bytes per second that the server receives and sends; the participants' messages share it.
        bytes: bytes that a participant receives and sends in a round; None means one model each way.
        step: seconds of a local step; None means the time that it takes on this machine.
        steps: what every round takes besides, counted in local steps, where that is what is known.

    >>> cost = Cost("given", fixed=1.0, bandwidth=1e6, bytes=2e5, step=0.01)
    >>> cost.round(local_steps=10, participants=5)
    2.1
    """

    name: str
    fixed: float = 0.0
    bandwidth: float = math.inf
    bytes: float | None = None
    step: float | None = None
    steps: float | None = None

    def __post_init__(self) -> None:
        for name in ("fixed", "bytes", "step", "steps"):
            value = getattr(self, name)
            if value is not None:
                non_negative(f"The cost's {name}", value)
        if not self.bandwidth > 0:
            raise InputError(
                f"The cost's bandwidth must be above 0 bytes per second, not {self.bandwidth!r}: nothing would arrive."
            )

        empty = (
            not self.fixed
            and self.steps is None
            and self.bandwidth == math.inf
            and self.bytes is None
            and self.step is None
        )
        if empty and PRESETS.get(self.name, {}).get("fixed"):
            raise InputError(
                f"A Cost made from the name {self.name} alone would cost nothing; write cost={self.name!r} instead, or"
                f" Cost.parse({self.name!r})."
            )

    @classmethod
    def of(cls, cost: Self | str) -> Self:
        """Return a cost as it is, or read one from text, as :meth:`parse` does."""
        if isinstance(cost, str):
            return cls.parse(cost)
        if not isinstance(cost, cls):
            raise InputError(
                f"cost must be a Cost, or text such as 'cross-device' or 'fixed=1,step=0.1', not {cost!r}."
            )
        return cost

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a preset, numbers, or a preset with changed numbers, as in ``cross-device,step=0.2``.

        A number alone is what a round of communication takes, counted in local steps.

        >>> Cost.parse("cross-silo,fixed=2").fixed, Cost.parse("100").steps
        (2.0, 100.0)
        >>> Cost.parse("cross-devise")
        Traceback (most recent call last):
        fedgauge.base.errors.InputError: There is no cost cross-devise; did you mean cross-device?
        """
        first, *rest = (part.strip() for part in text.split(","))
        if not rest and (steps := _number(first)) is not None:
            return cls(f"{steps:g} local steps", steps=steps)
        if "=" in first:
            cost, rest = cls("given"), [first, *rest]
        elif first in PRESETS:
            cost = cls(first, **PRESETS[first])
        else:
            raise InputError(f"There is no cost {first}; {nearest(first, PRESETS)}")
        for part in rest:
            name, _, number = (piece.strip() for piece in part.partition("="))
            if name not in ("fixed", "bandwidth", "bytes", "step"):
                raise InputError(f"A cost has no {name!r}; {nearest(name, ('fixed', 'bandwidth', 'bytes', 'step'))}")
            value = _number(number)
            if value is None:
                raise InputError(f"The cost's {name} must be a number, as in {name}=1.5, not {number!r}.")
            cost = replace(cost, **{name: value})  # type: ignore[arg-type]  # all are numbers
        return cost

    def completed(self, federation: Federation) -> Self:
        """The cost with missing numbers filled in for a federation: the size of its model and the time of a step."""
        model = federation.start(0)
        size = 2 * model.numel() * model.element_size() if self.bytes is None else self.bytes
        step = step_seconds(federation) if self.step is None else self.step
        return replace(self, bytes=float(size), step=step, fixed=self.fixed + (self.steps or 0.0) * step, steps=None)

    @property
    def per_participant(self) -> float:
        """Seconds for the messages of one participant."""
        return (self.bytes or 0.0) / self.bandwidth

    def round(self, local_steps: float, participants: int) -> float:
        """Seconds of a round."""
        return self.fixed + self.per_participant * participants + (self.step or 0.0) * local_steps

    def communication(self, participants: int) -> float:
        """Seconds of a round without its local steps."""
        return self.round(0, participants)

    def in_local_steps(self, federation: Federation, participants: int) -> float:
        """What a round takes besides its local steps, counted in local steps.

        A local step is timed on this machine only where that is needed.

        Args:
            federation: whose model is sent, and whose local step is timed.
            participants: in a round.
        """
        if self.steps is not None and not self.fixed and self.bandwidth == math.inf:
            return self.steps
        known = self.completed(federation)
        if not known.step:
            raise InputError("The cost of a local step must be above 0 for a round to be counted in local steps.")
        return known.communication(participants) / known.step


PRESETS: Mapping[str, Mapping[str, float]] = {
    # Phones on slow links; every round waits ten seconds for them.
    "cross-device": {"fixed": 10.0, "bandwidth": 2e6, "step": 0.05},
    # A few data centres on good links.
    "cross-silo": {"fixed": 0.5, "bandwidth": 1e8, "step": 0.01},
    # This machine: only computing takes time.
    "local": {"fixed": 0.0},
}


def step_seconds(federation: Federation, steps: int = 50, turns: int = 5) -> float:
    """The time of one worker's local step on one core of this machine: the median of several trials."""
    from fedgauge.base.threads import one_thread

    worker, none = np.array([0]), np.array([0])
    streams, seconds = Streams(0, Purpose.MEASURE), []
    with one_thread():
        model = federation.start(0).unsqueeze(0)
        for turn in range(turns + 1):
            began = time.perf_counter()
            federation.local_sgd(model, worker, federation.draws(streams, turn, worker, none, steps), 0.0)
            seconds.append((time.perf_counter() - began) / steps)
    return float(np.median(seconds[1:]))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
