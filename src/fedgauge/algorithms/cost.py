"""The cost of a round in seconds of a modelled federation: communication, coordination and local steps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from fedgauge.base.errors import InputError, nearest, non_negative
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.protocols import Federation
from fedgauge.values import Value

TOPOLOGIES = ("server", "all-reduce")
_BITS = {"gbit/s": 1e9 / 8, "mbit/s": 1e6 / 8, "kbit/s": 1e3 / 8, "gb/s": 1e9, "mb/s": 1e6, "kb/s": 1e3}
_WORDS = ("name", "topology")


@dataclass(frozen=True)
class Cost(Value):
    """The cost of a round in seconds: its local steps, and communication, of which a part may run beside them.

    With a server, communication takes fixed + 2 latency + M bytes/bandwidth: the participants' messages share the
    server's bandwidth. As a ring all-reduce, it takes fixed + 2 (M-1) latency + (M-1)/M bytes/bandwidth, where the
    bandwidth is that of one participant's link in each direction.

    Attributes:
        name: the name of the preset, or ``given``.
        fixed: seconds that every round takes: coordination, and waiting for the slowest participant.
        bandwidth: bytes per second; in text also as in ``10Gbit/s`` or ``100MB/s``.
        bytes: bytes that a participant receives and sends in a round; None means one model each way.
        step: seconds of a local step; None means the time that it takes on this machine.
        steps: what every round takes besides, counted in local steps, where that is what is known.
        parameters: the number of parameters that are sent, where the model that will be trained is another one.
        precision: bytes per parameter on the wire, as in 2 for bfloat16; by default those of the model.
        latency: seconds until a message begins to arrive.
        topology: ``server``, or ``all-reduce`` in a ring.
        overlap: communication runs beside this share of a round's local steps, from 0 to 1. What a delay between
            sending and applying does to training is not in it.

    >>> cost = Cost("given", fixed=1.0, bandwidth=1e6, bytes=2e5, step=0.01)
    >>> cost.round(local_steps=10, participants=5)
    2.1
    >>> ring = Cost("given", bandwidth=1.25e9, parameters=1e9, precision=2, step=0.5, topology="all-reduce")
    >>> round(ring.communication(participants=4), 6), ring.round(local_steps=50, participants=4)
    (2.4, 27.4)
    """

    name: str
    fixed: float = 0.0
    bandwidth: float = math.inf
    bytes: float | None = None
    step: float | None = None
    steps: float | None = None
    parameters: float | None = None
    precision: float | None = None
    latency: float = 0.0
    topology: str = "server"
    overlap: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed", "bytes", "step", "steps", "parameters", "precision", "latency", "overlap"):
            value = getattr(self, name)
            if value is not None:
                non_negative(f"The cost's {name}", value)
        if not self.bandwidth > 0:
            raise InputError(
                f"The cost's bandwidth must be above 0 bytes per second, not {self.bandwidth!r}: nothing would arrive."
            )

        if self.topology not in TOPOLOGIES:
            raise InputError(f"There is no topology {self.topology!r}; {nearest(str(self.topology), TOPOLOGIES)}")
        if self.overlap > 1:
            raise InputError(f"The cost's overlap is a share of the local steps, at most 1, not {self.overlap!r}.")
        if self.bytes is not None and (self.parameters is not None or self.precision is not None):
            raise InputError(
                "The cost has both bytes and parameters or precision, which say the same; leave one of them out."
            )
        if self.bytes is None and self.parameters is not None and self.precision is not None:
            object.__setattr__(self, "bytes", 2.0 * self.parameters * self.precision)
            object.__setattr__(self, "parameters", None)
            object.__setattr__(self, "precision", None)
        is_empty = all(getattr(self, each.name) == each.default for each in fields(self) if each.name != "name")
        if is_empty and PRESETS.get(self.name, {}).get("fixed"):
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
        >>> Cost.parse("banana")
        Traceback (most recent call last):
        fedgauge.base.errors.InputError: There is no cost banana; give what a round costs in local steps, or choose
        one of cross-device, cross-silo, local.
        """
        first, *rest = (part.strip() for part in text.split(","))
        if not rest and (steps := _number(first)) is not None:
            return cls(f"{steps:g} local steps", steps=steps)
        if "=" in first:
            cost, rest = cls("given"), [first, *rest]
        elif first in PRESETS:
            cost = cls(first, **PRESETS[first])  # type: ignore[arg-type]  # all are numbers
        else:
            hint = nearest(first, PRESETS)
            number = "" if hint.startswith("did you mean") else "give what a round costs in local steps, or "
            raise InputError(f"There is no cost {first}; {number}{hint}")
        changes: dict[str, Any] = {}
        for part in rest:
            name, _, number = (piece.strip() for piece in part.partition("="))
            if name not in KEYS:
                raise InputError(f"A cost has no {name!r}; {nearest(name, KEYS)}")
            value: Any = number if name in _WORDS else _number(number)
            if name == "bandwidth" and value is None:
                value = _with_unit(number)
            if value is None:
                example = "10Gbit/s" if name == "bandwidth" else "1.5"
                raise InputError(f"The cost's {name} must be a number, as in {name}={example}, not {number!r}.")
            changes[name] = value
        return replace(cost, **changes)

    def completed(self, federation: Federation) -> Self:
        """The cost with missing numbers filled in for a federation: the size of its model and the time of a step."""
        model = federation.start(0)
        if self.parameters is not None and self.step is None:
            raise InputError(
                f"The time of a step was not measured for a model of {self.parameters:,.0f} parameters; add"
                " step=SECONDS to the cost."
            )
        number = model.numel() if self.parameters is None else self.parameters
        each = model.element_size() if self.precision is None else self.precision
        size = float(2 * number * each if self.bytes is None else self.bytes)
        step = step_seconds(federation) if self.step is None else self.step
        fixed = self.fixed + (self.steps or 0.0) * step
        return replace(self, bytes=size, step=step, fixed=fixed, steps=None, parameters=None, precision=None)

    def messages(self, participants: int) -> float:
        """Seconds that the messages of all participants take, without latency."""
        shared = participants if self.topology == "server" else (participants - 1) / participants
        return (self.bytes or 0.0) / self.bandwidth * shared

    def communication(self, participants: int) -> float:
        """Seconds of a round without its local steps."""
        waits = 2 if self.topology == "server" else 2 * (participants - 1)
        return self.fixed + waits * self.latency + self.messages(participants)

    def round(self, local_steps: float, participants: int) -> float:
        """Seconds of a round."""
        steps, communication = (self.step or 0.0) * local_steps, self.communication(participants)
        return steps + (max(communication - self.overlap * steps, 0.0) if self.overlap else communication)

    def refuse_overlap(self, who: str) -> None:
        """Refuse a cost whose communication runs beside local steps, for those who count one after the other."""
        if self.overlap:
            raise InputError(
                f"{who} counts communication and local steps one after the other; leave the cost's overlap out, or take"
                " a gauge, which knows it."
            )

    @property
    def counts_steps(self) -> bool:
        """Whether it counts local steps alone, and no seconds."""
        return self.steps is not None and not self.fixed and not self.latency and self.bandwidth == math.inf

    def in_local_steps(self, federation: Federation, participants: int) -> float:
        """What a round takes besides its local steps, counted in local steps.

        A local step is timed on this machine only where that is needed.

        Args:
            federation: whose model is sent, and whose local step is timed.
            participants: in a round.
        """
        if self.counts_steps:
            return self.steps or 0.0
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


def step_seconds(federation: Federation) -> float:
    """The time of one worker's local step on one core of this machine: the median of five trials."""
    from fedgauge.base.threads import one_thread

    worker, none, steps = np.array([0]), np.array([0]), 50
    streams, seconds = Streams(0, Purpose.MEASURE), []
    with one_thread():
        model = federation.start(0).unsqueeze(0)
        for turn in range(6):  # the first warms up
            began = time.perf_counter()
            federation.local_sgd(model, worker, federation.draws(streams, turn, worker, none, steps), 0.0)
            seconds.append((time.perf_counter() - began) / steps)
    return float(np.median(seconds[1:]))


KEYS = tuple(each.name for each in fields(Cost) if each.name not in ("name", "steps"))
"""What text may say."""


def _with_unit(text: str) -> float | None:
    """Bytes per second.

    >>> _with_unit("10 Gbit/s"), _with_unit("100MB/s"), _with_unit("fast")
    (1250000000.0, 100000000.0, None)
    """
    unit = next((unit for unit in _BITS if text.lower().endswith(unit)), None)
    number = None if unit is None else _number(text[: -len(unit)])
    return None if number is None or unit is None else number * _BITS[unit]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
