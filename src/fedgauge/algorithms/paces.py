"""Local steps by rules that others have published, to compare with: QSR, post-local SGD and AdaComm.

A rule says how many local steps a round has, from the number of the round, the local steps before it, the rate gamma
at that time and, for AdaComm, the recorded losses. It is a pure fold over the rounds, so a resumed run replays the
rounds before and needs nothing else.

``qsr``         the quadratic synchronisation rule, H = max(base, ⌊(alpha/gamma)²⌋). Gu, Lyu, Arora, Zhang and Huang,
                "A Quadratic Synchronization Rule for Distributed Deep Learning" (ICLR 2024).
``post-local``  H = 1 up to a switch, and then a constant. Lin, Stich, Patel and Jaggi, "Don't Use Large Mini-Batches,
                Use Local SGD" (ICLR 2020).
``adacomm``     H = ⌈sqrt(f_l/f_0) H_0⌉ in the l-th interval of time. Wang and Joshi, "Adaptive Communication
                Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update SGD" (MLSys 2019).

Each can be written as text, as in ``qsr,alpha=0.02,base=4``; with ``steps``, the run ends after that many local steps,
and its last round is cut so that it ends exactly there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from fedgauge.algorithms.schedules import Schedule
from fedgauge.base.errors import InputError, count, nearest, non_negative, positive

if TYPE_CHECKING:
    from fedgauge.algorithms.live.gauge import LiveGauge
    from fedgauge.values.traces import Round

LIVE = "live"
"""The name of a live gauge, among the settings of a run and in an experiment."""
_MOST = 100_000
"""A round of more local steps than this is taken for a mistake, unless the user names a larger number."""

Rate: TypeAlias = Callable[[int, int], float]
"""gamma in a round, from its number and the local steps before it."""


@dataclass(frozen=True)
class RunPosition:
    """How far a run is.

    Attributes:
        round: the number of the round that begins here.
        taken: the local steps before it.
        local_steps: those of the round before; 0 at the beginning.
        first: f before the first round.
        recorded: the round of the last record, and the local steps before it.
    """

    round: int = 0
    taken: int = 0
    local_steps: int = 0
    first: float | None = None
    recorded: tuple[int, int] = (0, 0)


class _Paced:
    """What rules with a usual number of local steps share: those of the whole run may be given, and end it."""

    local_steps: int
    steps: int | None

    def _check_steps(self) -> None:
        if self.steps is not None:
            count("steps", self.steps)

    @property
    def usual(self) -> int:
        """A number of local steps that stands for all of them where work is estimated."""
        return self.local_steps


@dataclass(frozen=True)
class QSR:
    """H = max(base, ⌊(alpha/gamma)²⌋), with the rate gamma that the schedule has when the round begins.

    A rate that rises at the beginning counts only once it has risen: during the warm-up, H is that of the first round
    after it; in the authors' code (hmgxr128/QSR), it is a number that the user gives. If gamma is constant, so is H.

    Attributes:
        alpha: the growth coefficient α.
        base: H_base, the least number of local steps.
        most: the largest number of local steps; the paper has none.
        steps: the local steps of the whole run; by default, the number of rounds alone decides.

    >>> QSR(alpha=0.1, base=4).choose(RunPosition(), lambda round, taken: 0.02, None)
    25
    """

    alpha: float
    base: int
    most: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        count("base", self.base)
        if self.most is not None:
            count("most", self.most, least=self.base)
        if self.steps is not None:
            count("steps", self.steps)

    @property
    def usual(self) -> int:
        """The least, which stands for all of them where work is estimated."""
        return self.base

    def choose(self, place: RunPosition, rate: Rate, loss: float | None) -> int:
        """H of the round that begins here."""
        # Beyond 10^9 the rate is as good as 0.
        quadratic = math.floor(min((self.alpha / max(rate(place.round, place.taken), 1e-300)), 10**9) ** 2)
        return min(max(self.base, quadratic), self.most or 10**12)


@dataclass(frozen=True)
class PostLocal(_Paced):
    """One local step in each round up to a switch, and then a constant number H.

    In the paper, the switch is where the rate is first lowered.

    Attributes:
        local_steps: H after the switch.
        switch: the number of local steps after which H changes.
        steps: the local steps of the whole run; by default, the number of rounds alone decides.

    >>> rule = PostLocal(local_steps=8, switch=100)
    >>> [rule.choose(RunPosition(taken=taken), lambda round, taken: 0.1, None) for taken in (99, 100)]
    [1, 8]
    """

    local_steps: int
    switch: int
    steps: int | None = None

    def __post_init__(self) -> None:
        count("local_steps", self.local_steps)
        count("switch", self.switch, least=0)
        self._check_steps()

    def choose(self, place: RunPosition, rate: Rate, loss: float | None) -> int:
        """H of the round that begins here."""
        return 1 if place.taken < self.switch else self.local_steps


@dataclass(frozen=True)
class AdaComm(_Paced):
    """H = ⌈sqrt(f_l/f_0) H_0⌉ from the l-th interval of time on, or ``decay`` times the last H if that is not smaller.

    Time is counted in local steps: a round takes H of them and ``cost`` more for its communication. The paper
    evaluates f at the end of each interval; here it is the first record after it, so that with rare records H changes
    later. ``decay`` times H is rounded up, but is smaller than H unless H is 1. The paper's variant for rates that
    change is not here.

    Attributes:
        local_steps: H_0, the local steps of a round in the first interval.
        interval: the length T_0 of an interval, in the time of local steps.
        cost: the time that a round's communication takes, in local steps.
        decay: the factor for H where f has not fallen enough to lower it; the paper takes 1/2.
        steps: the local steps of the whole run; by default, the number of rounds alone decides.

    >>> rule = AdaComm(local_steps=16, interval=100)
    >>> place = RunPosition(round=7, taken=112, local_steps=16, first=2.0)
    >>> [rule.choose(place, lambda round, taken: 0.1, loss) for loss in (0.5, 2.0)]
    [8, 8]
    """

    local_steps: int
    interval: float
    cost: float = 0.0
    decay: float = 0.5
    steps: int | None = None

    def __post_init__(self) -> None:
        count("local_steps", self.local_steps)
        positive("interval", self.interval)
        non_negative("cost", self.cost)
        if not 0 < positive("decay", self.decay) < 1:
            raise InputError(f"decay must be between 0 and 1, not {self.decay!r}.")
        self._check_steps()

    def choose(self, place: RunPosition, rate: Rate, loss: float | None) -> int:
        """H of the round that begins here."""
        if place.round == 0:
            if loss is not None and not loss > 0:
                raise InputError(
                    f"adacomm divides by the first loss, so that f must be above 0 at the beginning, not {loss:.4g};"
                    " subtract a lower bound from the loss, or use another pace."
                )
            return self.local_steps
        if loss is None or self._number(place.round, place.taken) == self._number(*place.recorded):
            return place.local_steps
        assert place.first is not None
        chosen = max(math.ceil(math.sqrt(max(loss, 0.0) / place.first) * self.local_steps), 1)
        if chosen < place.local_steps:
            return chosen
        return max(min(math.ceil(self.decay * place.local_steps), place.local_steps - 1), 1)

    def _number(self, round: int, taken: int) -> int:
        """The number of the interval in which a round begins."""
        return math.floor((taken + self.cost * round) / self.interval)


@dataclass(frozen=True)
class Live(_Paced):
    """Local steps that a gauge inside the run chooses: every run gets a :class:`fedgauge.LiveGauge` of its own.

    Attributes:
        local_steps: the number to begin around, and to return to where no cost is known.
        steps: the local steps of the whole run; by default, as many as its rounds have with ``local_steps``.
        cost: what a round of communication takes, counted in local steps.
        explore: the share of the run that may be explored.

    >>> parse_rule("live,cost=100").gauge(rounds=1000).candidates
    [16, 64]
    """

    local_steps: int = 16
    steps: int | None = None
    cost: float | None = None
    explore: float = 0.3

    def __post_init__(self) -> None:
        self.gauge(1)

    def total(self, rounds: int) -> int:
        """The local steps of a run of so many rounds."""
        return self.steps or rounds * self.local_steps

    def gauge(self, rounds: int) -> LiveGauge:
        """The gauge of one run."""
        from fedgauge.algorithms.live.gauge import LiveGauge  # with scipy's optimisers, which others do without

        count("local_steps", self.local_steps)
        return LiveGauge(self.local_steps, self.total(rounds), cost=self.cost, explore=self.explore)


Rule: TypeAlias = QSR | PostLocal | AdaComm
Chosen: TypeAlias = Rule | Live
"""What chooses the local steps of a run, beside the adaptive pace."""
RULES: Mapping[str, type[Rule]] = {"qsr": QSR, "post-local": PostLocal, "adacomm": AdaComm}
"""The rules by the names that experiments and the command have for them."""
_NAMED: Mapping[str, type[Chosen]] = {**RULES, LIVE: Live}
_EXAMPLES = {
    "qsr": "qsr,alpha=0.02,base=4",
    "post-local": "post-local,local_steps=8,switch=500",
    "adacomm": "adacomm,local_steps=16,interval=200",
}


def advance(rule: Rule, rate: Rate, place: RunPosition, loss: float | None) -> RunPosition:
    """The place after one more round, whose number of local steps it has.

    Args:
        rule: what decides.
        rate: gamma in a round.
        place: where the round begins.
        loss: f there, if it was recorded.
    """
    chosen = rule.choose(place, rate, loss)
    if rule.steps is not None:
        chosen = min(chosen, rule.steps - place.taken)
    first = loss if place.round == 0 else place.first
    recorded = place.recorded if loss is None else (place.round, place.taken)
    return RunPosition(place.round + 1, place.taken + chosen, chosen, first, recorded)


def replayed(rule: Rule, rate: Rate, records: Iterable[Round], rounds: int) -> list[RunPosition]:
    """The places from the beginning up to the end of so many rounds."""
    losses = {record.round: record.loss for record in records}
    places = [RunPosition()]
    for round in range(rounds):
        places.append(advance(rule, rate, places[-1], losses.get(round)))
    return places


def rate_for(rule: Rule, name: str, parameters: Mapping[str, Any]) -> Rate:
    """gamma as an algorithm's parameters have it; a rule that depends on it is refused where there is none.

    >>> rate_for(QSR(0.1, 4), "fedavg", {"gamma": 0.1, "gamma_schedule": "cosine,over=10,warmup=5"})(0, 0)
    0.1
    """
    gamma = parameters.get("gamma")
    if not isinstance(rule, QSR):
        return lambda round, taken: math.nan
    if not isinstance(gamma, int | float):
        raise InputError(
            f"qsr needs the rate gamma, which {name} does not have; use fedavg, or another pace such as post-local."
        )
    schedule = Schedule.parse(parameters.get("gamma_schedule", "constant"))

    def rate(round: int, taken: int) -> float:
        return float(gamma) * schedule.at(max(round if schedule.by == "round" else taken, schedule.warmup))

    at_end = rule.choose(RunPosition(round=schedule.over or 0, taken=schedule.over or 0), rate, None)
    if rule.most is None and rule.steps is None and at_end > _MOST:
        raise InputError(
            f"With this alpha and this schedule, qsr would reach {at_end:,} local steps in a round; give most, the"
            " largest number, or steps, those of the whole run."
        )
    return rate


def named(rule: Rule) -> dict[str, Any]:
    """The name of a rule and what it was made with, as a run saves them.

    >>> named(PostLocal(8, 100))
    {'name': 'post-local', 'local_steps': 8, 'switch': 100, 'steps': None}
    """
    return {"name": next(name for name, kind in RULES.items() if type(rule) is kind), **vars(rule)}


def from_settings(settings: Mapping[str, Any]) -> Rule | None:
    """The rule that a run saved; None if its local steps were chosen otherwise."""
    kind = RULES.get(settings.get("name", ""))
    return None if kind is None else kind(**{key: value for key, value in settings.items() if key != "name"})


def parse_rule(text: str) -> Chosen:
    """Read a rule, as in ``qsr,alpha=0.02,base=4``.

    >>> parse_rule("post-local,local_steps=8,switch=100")
    PostLocal(local_steps=8, switch=100, steps=None)
    >>> parse_rule("qrs,alpha=0.1")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: local_steps has no pace 'qrs'; did you mean qsr?
    """
    name, *parts = (part.strip() for part in text.split(","))
    if name not in _NAMED:
        raise InputError(f"local_steps has no pace {name!r}; {nearest(name, [*_NAMED, 'auto'])}")
    allowed = {field.name: field for field in fields(_NAMED[name])}
    values: dict[str, Any] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in allowed:
            raise InputError(f"The pace {name} has no {key!r}; {nearest(key, allowed)}")
        kind = float if "float" in str(allowed[key].type) else int
        try:
            values[key] = kind(value)
        except ValueError:
            what = "a number" if kind is float else "a whole number"
            raise InputError(f"The {key} of the pace {name} must be {what}, not {value!r}.") from None
    for key, field in allowed.items():
        if field.default is MISSING and key not in values:
            raise InputError(f"The pace {name} needs {key}, as in {_EXAMPLES[name]}.")
    return _NAMED[name](**values)
