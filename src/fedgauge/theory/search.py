"""The local steps, rates and rounds with the least bound: for a cost, or at the least cost for a bound.

Every I up to the cap is tried where the best rate has a closed form, and enough of them where it is searched (see
:mod:`fedgauge.theory.rates`). :func:`best_gamma` and :func:`best_local_steps` are what ``fedgauge theory tune`` shows,
:func:`solve` is what a plan by theory rests on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.algorithms.cost import Cost
from fedgauge.base.errors import InputError, positive
from fedgauge.base.types import Floats
from fedgauge.theory import find
from fedgauge.theory.base import Theorem
from fedgauge.theory.inputs import check_values
from fedgauge.theory.rates import BestRate, FreeRate, best_rate, limits, needed_rounds, refuse_free_rates
from fedgauge.values import Bound, Condition, Number, Value, Version
from fedgauge.values.display import Displayed

_DENSE = 20  # where the rate is searched: every I up to this is tried, and this many per factor of e beyond
_TIE = 1e-12  # costs that differ by less count as equal, and the fewest local steps are chosen among equals


@dataclass(frozen=True)
class Task:
    """What is sought: a theorem at its constants, a cost, and a goal.

    Attributes:
        theorem: its name.
        version: its version.
        values: the constants, N, and M where the theorem has one.
        cost: the cost of a round.
        participants: how many workers send messages in a round.
        target: the bound to reach; None with a budget.
        budget: seconds to spend; None with a target.
        eta: the global rate; None leaves it free, and gamma is then ``gamma_min``.
        gamma_min: a floor under gamma.
        cap: the most local steps.
        candidates: the local steps to consider; all up to the cap where None.
    """

    theorem: str
    version: Version
    values: Mapping[str, float]
    cost: Cost
    participants: int
    target: float | None = None
    budget: float | None = None
    eta: float | None = 1.0
    gamma_min: float | None = None
    cap: int = 10_000
    candidates: tuple[int, ...] | None = None

    @property
    def free(self) -> FreeRate:
        """The bound whose rate is sought."""
        return FreeRate(find(self.theorem), self.version, self.values, self.eta, self.gamma_min)

    def seconds(self, steps: Floats | int) -> Floats:
        """Return the cost of a round."""
        return np.asarray(self.cost.round(np.asarray(steps, dtype=float), self.participants))  # type: ignore[arg-type]

    def rounds(self, local_steps: int, rate: float) -> float:
        """Return how many rounds it takes to reach the target at a rate, infinite where it is never reached."""
        rounds = needed_rounds(self.free, np.array([local_steps]), np.array([rate]), self.target or 0.0)
        needed = float(rounds[0])
        return max(1.0, math.ceil(needed)) if math.isfinite(needed) else math.inf


@dataclass(frozen=True)
class Choice(Value):
    """What one theorem chooses.

    Attributes:
        theorem: its name.
        version: its version.
        I: local steps per round.
        gamma: the local rate.
        eta: the global rate.
        R: rounds.
        seconds: the time that they take by the cost model.
        bound: the bound after them.
    """

    theorem: str
    version: Version
    I: int  # noqa: E741
    gamma: float
    eta: float
    R: int
    seconds: float
    bound: float


def _affordable(task: Task, steps: Floats) -> Floats | None:
    """Return the whole rounds that the budget allows."""
    if task.budget is None:
        return None
    return np.asarray(np.floor(task.budget / task.seconds(steps) * (1 + _TIE)))


def candidate_steps(task: Task) -> npt.NDArray[Any]:
    """Return the local steps I to consider."""
    most = task.cap
    if task.budget is not None:
        communication, step = float(task.seconds(0)), task.cost.step or 0.0
        room = task.budget * (1 + _TIE) - communication
        most = min(most, int(room / step)) if step else most
        if most < 1 or room < 0:
            raise InputError(
                f"The budget must cover one round, which takes {float(task.seconds(1)):.6g} s at least, not "
                f"{task.budget!r} s; raise it or lower the cost."
            )
    if task.candidates is not None:
        return np.array([steps for steps in task.candidates if steps <= most])
    if find(task.theorem).shape_of(task.version) == "powers":
        return np.arange(1, most + 1)
    points = 2 + round(_DENSE * max(0.0, math.log(most / _DENSE)))
    far = np.geomspace(min(most, _DENSE), most, points).round().astype(int)
    return np.union1d(np.arange(1, min(most, _DENSE) + 1), far)


def _tune(task: Task, steps: Floats, rounds: Floats | None = None) -> BestRate:
    return best_rate(task.free, steps, rounds=rounds, target=task.target)


def height_of(task: Task, steps: Floats, whole: bool = True) -> tuple[BestRate, Floats]:
    """Return what is to be least, for each I: the seconds to the target, or the bound within the budget."""
    tuned = _tune(task, steps, _affordable(task, steps))
    if task.target is None:
        return tuned, tuned.total
    rounds = np.maximum(np.ceil(tuned.rounds) if whole else tuned.rounds, 1.0)
    return tuned, rounds * task.seconds(steps)


def _search(task: Task) -> tuple[Floats, Floats]:
    """Return candidates for I and their heights; where I was thinned out, all between the best one's neighbours."""
    steps = candidate_steps(task)
    height = height_of(task, steps)[1]
    at = int(np.argmin(height))
    between: npt.NDArray[Any] = np.arange(steps[max(at - 1, 0)], steps[min(at + 1, len(steps) - 1)] + 1)
    if task.candidates is None and np.isfinite(height[at]) and np.setdiff1d(between, steps).size:
        steps = between
        height = height_of(task, steps)[1]
    return steps, height


def solve(task: Task) -> Choice:
    """Find the local steps, rates and rounds with the least time to the target, or the least bound within the budget.

    >>> cost = Cost("given", fixed=1.0, step=0.1)
    >>> values = dict(F=1, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.1)
    >>> choice = solve(Task("nonconvex", "corrected", values, cost, 8, target=0.1))
    >>> choice.I, choice.R, round(choice.gamma, 5), round(choice.bound, 6)
    (3, 569, 0.03043, 0.099964)
    """
    steps, height = _search(task)
    least = height.min()
    if not np.isfinite(least):
        raise InputError(_unreachable(task))
    I = int(steps[np.flatnonzero(height <= least * (1 + _TIE))[0]])  # noqa: E741
    one = np.array([I])
    afforded = _affordable(task, one)
    R = max(1.0, float(np.ceil(_tune(task, one).rounds[0]))) if afforded is None else float(afforded[0])
    while True:
        tuned = _tune(task, one, np.array([R]))
        if task.target is None or tuned.total[0] <= task.target:
            break
        R = math.floor(R * (1 + 1e-15)) + 1.0  # rounding left the bound a hair above the target
    rates = task.free.rates(float(tuned.rate[0]))
    seconds = R * float(task.seconds(I))
    return Choice(task.theorem, task.version, I, rates["gamma"], rates["eta"], int(R), seconds, float(tuned.total[0]))


def _unreachable(task: Task) -> str:
    name = find(task.theorem).locator
    endless = [symbol for symbol, value in task.values.items() if math.isinf(value)]
    if endless:
        return (
            f"{name} bounds nothing where {' and '.join(endless)} is infinite; give a finite number, or plan by trial."
        )
    if task.gamma_min is not None:
        return f"{name} does not reach the goal with gamma of at least {task.gamma_min:g}; lower gamma_min."
    probe = task.free.bound(1, 1.0)
    reasons = _say_conditions(_failed(probe)) or "the limit of gamma, which is 0"
    return f"{name} ({task.version}) admits no rates at these values, because of {reasons}."


def _failed(probe: Bound) -> list[Condition]:
    """The conditions that no choice of rates can meet."""
    return [c for c in probe.conditions if "gamma" not in c.name and not np.all(c.holds)]


def _say_conditions(conditions: list[Condition]) -> str:
    return " and ".join(f"{condition.name} <= {condition.formula}" for condition in conditions)


# -- tuning --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned(Value, Displayed):
    """The best rates (and local steps) that a search found, and the bound there.

    Attributes:
        gamma: the local rate.
        eta: the global rate.
        bound: the bound at the choice; its conditions hold.
        I: local steps per round, where they were chosen.
        R: rounds that the budget allows.
    """

    gamma: Number
    eta: Number
    bound: Bound
    I: Number | None = None  # noqa: E741
    R: Number | None = None


def _plain(value: Number) -> Number:
    return float(value) if np.ndim(value) == 0 else value


def _check_rates(free: FreeRate, probe: Bound) -> None:
    """Say in one sentence why no rate is admissible, or none is best, at some of the points."""
    theorem = free.theorem
    if free.eta is None:
        return
    top = np.asarray(probe.gamma_max, dtype=float)
    if np.any(np.isinf(top)):
        raise InputError(f"{theorem.name} sets no limit on gamma at these values, so there is no best one; check L_g.")
    if np.any(top <= 0):
        failed = _failed(probe) + [c for c in probe.conditions if "gamma" in c.name and np.any(np.equal(c.limit, 0))]
        raise InputError(
            f"{theorem.name} ({free.version}) admits no gamma at these values, because of {_say_conditions(failed)}."
        )
    if free.gamma_min is not None and np.any(free.gamma_min > top):
        raise InputError(f"gamma_min must be admissible, at most {top.min().item():.6g}, not {free.gamma_min!r}.")


def _check_gap(theorem: Theorem, values: Mapping[str, Any]) -> None:
    gap = theorem.gap
    if gap in values and not np.all((np.asarray(values[gap]) > 0) & np.isfinite(values[gap])):
        raise InputError(f"{gap} must be above 0 and finite to tune gamma, not {values[gap]!r}; there is no best one.")


def best_gamma(
    name: str,
    version: Version | None = None,
    eta: Number | None = 1.0,
    gamma_min: float | None = None,
    **values: Any,
) -> Tuned:
    """Find the admissible gamma with the least bound at a fixed eta.

    With ``eta=None`` both rates are free: the best gamma is then ``gamma_min``, and eta is searched.

    Args:
        name: the theorem.
        version: its version; ``star`` by default, where there is one.
        eta: the global rate, or None to have it chosen.
        gamma_min: a floor under gamma; needed where eta is free.
        **values: the theorem's other symbols; arrays broadcast, and each point is tuned by itself.

    >>> values = dict(F=1, I=4, R=1000, N=8, sigma2=1, zeta2=1, L_g=1, L_h=0.5)
    >>> tuned = best_gamma("nonconvex", **values)
    >>> round(tuned.gamma, 4), round(tuned.bound.total, 4)
    (0.0251, 0.0193)
    >>> best_gamma("nonconvex", eta=None, **values)
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: nonconvex cannot be tuned with eta free and no lower limit for gamma: as ...
    """
    theorem = find(name)
    version = version or theorem.default
    if "gamma" in values:
        raise InputError("gamma is what is being tuned; leave it out, or evaluate the theorem at it.")
    floor = None if gamma_min is None else positive("gamma_min", gamma_min)
    if eta is None and theorem.eta != "free":
        eta = 1.0  # only the product of the rates counts, or eta must be 1
    probe = theorem.evaluate(version, **{**values, "gamma": 1.0, "eta": 1.0 if eta is None else eta})
    _check_gap(theorem, values)
    if eta is None and floor is None:
        raise refuse_free_rates(theorem)
    others = {symbol: value for symbol, value in values.items() if symbol not in ("I", "R")}
    free = FreeRate(theorem, version, others, eta, floor)
    _check_rates(free, probe)
    if eta is None and np.any(limits(free, np.asarray(values["I"]))[1] <= 0):
        raise InputError(f"gamma_min must be admissible for some eta, not {floor!r}; {theorem.name} limits gamma.")
    rate = best_rate(free, np.asarray(values["I"]), rounds=np.asarray(values["R"], dtype=float)).rate
    rates = {symbol: _plain(value) for symbol, value in free.rates(rate).items()}
    return Tuned(rates["gamma"], rates["eta"], theorem.evaluate(version, **{**values, **rates}))


def best_local_steps(
    name: str,
    version: Version | None = None,
    *,
    budget: float,
    communication: float = 0.0,
    step: float = 1.0,
    candidates: Sequence[int] | None = None,
    eta: float | None = 1.0,
    gamma_min: float | None = None,
    **values: Any,
) -> Tuned:
    """Find the local steps I, and the best gamma for them, with the least bound under a budget.

    A round costs ``communication + I * step``, and as many whole rounds are run as the budget allows. With the
    defaults that is R I <= budget gradients per worker.

    Args:
        name: the theorem.
        version: its version; ``star`` by default, where there is one.
        budget: what all rounds may cost together.
        communication: the cost of a round's communication.
        step: the cost of a local step.
        candidates: the I to consider; by default every I for which the budget covers a round, up to 10,000.
        eta: the global rate, or None to have it chosen (with ``gamma_min``).
        gamma_min: a floor under gamma.
        **values: the theorem's other symbols, each a single number.

    >>> values = dict(F=1, N=8, sigma2=100, zeta2=1, L_g=1, L_h=0.1)
    >>> tuned = best_local_steps("nonconvex", budget=1000, communication=10, **values)
    >>> tuned.I, tuned.R
    (10, 50)
    """
    theorem = find(name)
    version = version or theorem.default
    for name_taken in ("I", "R"):
        if name_taken in values:
            raise InputError(f"{name_taken} is chosen under the budget; leave it out.")
    per_step, per_round, total = positive("step", step), float(communication), positive("budget", budget)
    if not (np.isfinite(per_round) and per_round >= 0):
        raise InputError(f"communication must be a finite number of at least 0, not {communication!r}.")
    steps = None if candidates is None else tuple(sorted(candidates))
    check_values({"I": np.array(steps)} if steps else {})
    if per_round + per_step * (min(steps) if steps else 1) > total * (1 + _TIE):
        raise InputError(
            f"budget must cover one round, at least {per_round + per_step:g}, not {budget!r}; raise it or try fewer "
            "steps."
        )
    # One round of one step: says what is missing, or that no rate is admissible, before anything is searched.
    best_gamma(name, version, eta, gamma_min, I=min(steps or (1,)), R=1, **values)
    chosen_eta = 1.0 if eta is None and theorem.eta != "free" else eta
    cost = Cost("given", fixed=per_round, step=per_step)
    task = Task(name, version, values, cost, 1, None, total, chosen_eta, gamma_min, candidates=steps)
    choice = solve(task)
    rates = {"I": choice.I, "R": choice.R, "gamma": choice.gamma, "eta": choice.eta}
    bound = theorem.evaluate(version, **{**values, **rates})
    return Tuned(choice.gamma, choice.eta, bound, choice.I, choice.R)
