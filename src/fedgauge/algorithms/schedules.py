"""Schedules: learning rates that change with the rounds or the local steps of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.base.errors import InputError, count, nearest, positive

if TYPE_CHECKING:
    import torch

OPTIONS = ("gamma_schedule", "eta_schedule")
"""The parameters that :func:`scheduled` adds to an algorithm."""

_SHAPES = ("constant", "step", "cosine", "linear")


@dataclass(frozen=True)
class Schedule:
    """The factor by which a rate is multiplied, as a function of the time t: rounds or local steps before now.

    After the warm-up, which lasts for w units, with T = over - w and t counted from its end:

    - ``constant``: 1;
    - ``step``: factor^⌊t / every⌋;
    - ``cosine``: end + (1 - end) (1 + cos(π t/T)) / 2;
    - ``linear``: 1 - (1 - end) t/T.

    During the warm-up the factor is (t + 1)/w. When a cosine or a line is over, its last value above 0 stays.

    Attributes:
        shape: constant, step, cosine or linear.
        by: ``round`` or ``step``. In a round, t is the number of earlier rounds; or the participants' mean number of
            local steps in earlier rounds, plus a worker's own in this round.
        over: when a cosine or a line ends, warm-up included.
        end: the factor at the end of a cosine or a line.
        warmup: how long the rate rises linearly at the beginning.
        every: after how long a ``step`` schedule multiplies the rate once more.
        factor: by what.

    >>> [Schedule.parse("linear,over=4,warmup=2").at(t) for t in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.5]
    """

    shape: str
    by: str = "round"
    over: int | None = None
    end: float = 0.0
    warmup: int = 0
    every: int | None = None
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.shape not in _SHAPES:
            raise InputError(f"There is no schedule {self.shape!r}; {nearest(str(self.shape), _SHAPES)}")
        if self.by not in ("round", "step"):
            raise InputError(f"A schedule goes by=round or by=step, not by={self.by}.")
        count("warmup", self.warmup, least=0)
        if not 0 <= self.end <= 1:
            raise InputError(f"A schedule's end must be from 0 to 1, as part of the rate, not {self.end!r}.")
        positive("factor", self.factor)
        if self.shape == "step":
            if self.every is None:
                raise InputError("The schedule step needs every, as in step,every=30,factor=0.1.")
            count("every", self.every)
        elif self.every is not None:
            raise InputError(f"every is for the schedule step, not for {self.shape}; leave it out.")
        if self.over is not None:
            if not self.has_end:
                raise InputError(f"over is for the schedules cosine and linear, not for {self.shape}; leave it out.")
            if count("over", self.over) <= self.warmup:
                raise InputError(f"over must be larger than the warm-up of {self.warmup}, not {self.over}.")

    @property
    def has_end(self) -> bool:
        """Whether it has to know how long the run is."""
        return self.shape in ("cosine", "linear")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schedule, as in ``cosine,over=100,warmup=5``.

        >>> Schedule.parse("step,every=30").factor
        0.1
        >>> Schedule.parse("cosin")
        Traceback (most recent call last):
        fedgauge.base.errors.InputError: There is no schedule 'cosin'; did you mean cosine?
        """
        if not isinstance(text, str):
            raise InputError(f"A schedule must be text, as in 'cosine,over=100', not {text!r}.")
        shape, *rest = (part.strip() for part in text.split(","))
        kinds: dict[str, Callable[[str], Any]] = {"end": float, "factor": float, "by": str}
        allowed = [field.name for field in fields(cls) if field.name != "shape"]
        values: dict[str, Any] = {}
        for part in rest:
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in allowed:
                raise InputError(f"A schedule has no {name!r}; {nearest(name, allowed)}")
            try:
                values[name] = kinds.get(name, int)(value)
            except ValueError:
                what = "a number" if name in kinds else "a whole number"
                raise InputError(f"A schedule's {name} must be {what}, not {value!r}.") from None
        return cls(shape, **values)

    def __str__(self) -> str:
        changed = [field for field in fields(self)[1:] if getattr(self, field.name) != field.default]
        return ",".join([self.shape, *(f"{field.name}={_short(getattr(self, field.name))}" for field in changed)])

    def over_run(self, rounds: int, steps: float | None) -> Self:
        """The schedule of a run of this length, if it does not say itself when it ends; ``steps`` is I times R."""
        if not self.has_end or self.over is not None:
            return self
        length = rounds if self.by == "round" else steps
        if length is None:
            raise InputError(
                f"The schedule {self} counts local steps, whose number is not known in advance if it adapts; add over,"
                " as in over=1000."
            )
        return replace(self, over=max(round(length), self.warmup + 1))

    def at(self, time: float) -> float:
        """The factor at a time."""
        if time < self.warmup:
            return (time + 1) / self.warmup if time + 1 < self.warmup else 1.0
        t = time - self.warmup
        if self.shape == "step":
            assert self.every is not None
            return float(self.factor ** math.floor(t / self.every))
        if not self.has_end:
            return 1.0
        assert self.over is not None
        T = self.over - self.warmup
        t = min(t, T if self.end > 0 else T - 1)
        if self.shape == "linear":
            return 1 - (1 - self.end) * t / T
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * t / T)) / 2


def refuse_round_schedules(parameters: Mapping[str, Any], what: str) -> None:
    """Refuse schedules that mean different rates in runs of different lengths, where such runs are compared.

    Args:
        parameters: of an algorithm, or as an experiment gives them.
        what: what compares the runs.
    """
    for name in OPTIONS:
        schedule = Schedule.parse(parameters.get(name, "constant"))
        if schedule.by == "round" and schedule != Schedule("constant"):
            raise InputError(
                f"{what} compares runs with different numbers of rounds, to which {name} would give different rates;"
                " let it go by=step, or leave it out."
            )
        if schedule.has_end and schedule.over is None:
            raise InputError(
                f"{what} compares runs of different lengths, with each of which {name} would end at another step; say"
                " when it ends, as in over=1000."
            )


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


Remake = Callable[[float, float], Algorithm]
"""The algorithm with its gamma and its eta multiplied by factors."""


@dataclass(frozen=True)
class _ScheduledStep:
    """A step at the rate that the schedule has for it."""

    remake: Remake
    gamma: Schedule | None

    def __call__(self, local: Tensors, gradient: torch.Tensor) -> Tensors:
        inner = self.remake(_factor(self.gamma, local), 1.0)
        moved = {**inner.step(_others(local), gradient), **_clocks(local)}
        return {name: rows + 1 if name == _CLOCK["step"] else rows for name, rows in moved.items()}

    def fused_rate(self, server: Tensors) -> float | None:
        """gamma in this round, unless it changes from step to step."""
        if self.gamma is not None and self.gamma.by == "step":
            return None
        return self.remake(_factor(self.gamma, server), 1.0).fused_rate(_others(server))


_CLOCK = {"round": "clock.round", "step": "clock.step"}
_SHARE = "clock.share"
"""In a message, the sum of the participants' weights."""


def _clocks(state: Tensors) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if name in _CLOCK.values()}


def _others(state: Tensors) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if name not in _CLOCK.values()}


def _factor(schedule: Schedule | None, state: Tensors) -> float:
    # Workers that have taken all their steps stand still; the others' clocks agree and are ahead of theirs.
    return 1.0 if schedule is None else schedule.at(float(state[_CLOCK[schedule.by]].max()))


def scheduled(algorithm: Algorithm, remake: Remake, gamma: Schedule | None, eta: Schedule | None) -> Algorithm:
    """Let the rates of an algorithm follow schedules.

    The server's state has a clock: the number of rounds, or of local steps, that were taken. With a clock of steps,
    participants send how many they took.

    Args:
        algorithm: the algorithm with constant rates.
        remake: makes it with its gamma and its eta multiplied by factors.
        gamma: the schedule of gamma.
        eta: the schedule of eta.
    """
    import torch

    for name, schedule in (("gamma", gamma), ("eta", eta)):
        if schedule is not None and name not in algorithm.parameters:
            raise InputError(f"{algorithm.name} has no {name} that a schedule could change; leave out {name}_schedule.")
        if schedule is not None and schedule.has_end and schedule.over is None:
            raise InputError(f"The schedule {schedule} needs over, as in {schedule},over=100, to know when it ends.")
    if gamma is not None and gamma.by == "step" and algorithm.facts.same_gamma_in_a_round:
        raise InputError(
            f"{algorithm.name} needs the same gamma for all steps of a round; let the schedule go by=round, or use"
            " fedavg."
        )
    kinds = {schedule.by for schedule in (gamma, eta) if schedule is not None}
    by_step = "step" in kinds

    def init(model: torch.Tensor) -> Tensors:
        clocks = {_CLOCK[kind]: torch.zeros(1, dtype=torch.float64, device=model.device) for kind in sorted(kinds)}
        return {**algorithm.init(model), **clocks}

    def begin(model: torch.Tensor, server: Tensors, memory: Tensors) -> Tensors:
        return {**algorithm.begin(model, _others(server), memory), **_clocks(server)}

    def finish(model: torch.Tensor, local: Tensors, steps: torch.Tensor) -> tuple[Tensors, Tensors]:
        inner = remake(_factor(gamma, local), 1.0)
        sent, remembered = inner.finish(model, _others(local), steps)
        return ({**sent, _CLOCK["step"]: steps, _SHARE: steps.new_ones(steps.shape)} if by_step else sent), remembered

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        inner = remake(_factor(gamma, server), _factor(eta, server))
        sent = {name: value for name, value in _others(mean).items() if name != _SHARE}
        moved, after = inner.update(model, _others(server), sent, fraction)
        clocks = _clocks(server)
        if "round" in kinds:
            clocks[_CLOCK["round"]] = clocks[_CLOCK["round"]] + 1
        if by_step:
            # Rounded, so that equal numbers of steps have exactly that mean, whatever the weights.
            taken = (mean[_CLOCK["step"]] / mean[_SHARE]).double().round(decimals=3)
            clocks[_CLOCK["step"]] = clocks[_CLOCK["step"]] + taken
        return moved, {**after, **clocks}

    texts = {"gamma_schedule": gamma, "eta_schedule": eta}
    shown = {name: str(schedule) for name, schedule in texts.items() if schedule is not None}
    return replace(
        algorithm,
        parameters={**algorithm.parameters, **shown},
        step=_ScheduledStep(remake, gamma),
        init=init,
        begin=begin,
        finish=finish,
        update=update,
    )
