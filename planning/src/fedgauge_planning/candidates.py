"""What a plan chooses from: local steps, rates and participants around the user's own values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from fedgauge.algorithms import fingerprint, make_algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.algorithms.schedules import refuse_round_schedules
from fedgauge.base.errors import InputError, count, nearest, positive
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.setup import Setup
from fedgauge.values import Value

CAP = 128
"""The largest number of local steps that is tried by default."""
_STEPS = 2  # ratio of successive numbers of local steps: the best number is at most a factor sqrt(2) from one of them
_RATES = 3.0  # ratio of successive rates, as in the grids that people usually try
_FEWER = 4  # ratio of successive numbers of participants
_WORTH = 0.1  # fewer participants are tried if their messages take more than this fraction of a round
KEYS = ("local_steps", "gamma", "eta", "participants")


@dataclass(frozen=True, order=True)
class Candidate(Value):
    """One choice: local steps I, local rate gamma, global rate eta, and M participants in a round.

    >>> Candidate(8, 0.1, 1.0, 10).name
    'I=8,gamma=0.1,eta=1,M=10'
    """

    I: int  # noqa: E741
    gamma: float
    eta: float
    M: int

    @property
    def name(self) -> str:
        """The candidate in one word, used in directory names; it has all digits of the rates that are proposed."""
        return f"I={self.I},gamma={self.gamma:g},eta={self.eta:g},M={self.M}"

    def seconds(self, cost: Cost) -> float:
        """Seconds that a round takes."""
        return cost.round(self.I, self.M)

    def changes(self, experiment: Experiment, num_workers: int) -> dict[str, Any]:
        """The changes that turn an experiment into this candidate.

        The number of participants is among them if it is below N or the experiment already names it.
        """
        chosen: dict[str, Any] = {"local_steps": self.I, "gamma": self.gamma, "eta": self.eta}
        drawn = num_workers > self.M or experiment.run.participants is not None
        return {**chosen, "participants": self.M} if drawn else chosen

    def applied(self, setup: Setup) -> Setup:
        """A set-up with this candidate's local steps, rates and participants."""
        rates = {name: value for name, value in self._rates.items() if name in setup.algorithm.parameters}
        algorithm = make_algorithm(setup.algorithm.name, **{**setup.algorithm.parameters, **rates})
        who = setup.participation
        if who.sampling != "full":
            who = replace(who, participants=self.M)
        elif setup.num_workers > self.M:
            who = replace(who, sampling="with-replacement", participants=self.M)
        return replace(setup, algorithm=algorithm, local_steps=self.I, participation=who)

    @property
    def _rates(self) -> dict[str, float]:
        return {"gamma": self.gamma, "eta": self.eta}


class Trial(NamedTuple):
    """One run of a candidate: the candidate and a seed."""

    candidate: Candidate
    seed: int

    @property
    def name(self) -> str:
        """The name of the trial's directory."""
        return f"{self.candidate.name},seed={self.seed}"


@dataclass(frozen=True)
class Space(Value):
    """The values that each part of a candidate may take, in growing order, and the user's own candidate.

    Attributes:
        local_steps: values of I.
        gammas: values of gamma.
        etas: values of eta.
        participants: values of M.
        own: the user's own candidate; its eta and M are used until good values of I and gamma are known.
        open: the keys for which the user has not named values.
    """

    local_steps: tuple[int, ...]
    gammas: tuple[float, ...]
    etas: tuple[float, ...]
    participants: tuple[int, ...]
    own: Candidate
    open: tuple[str, ...] = KEYS

    def grid(self) -> tuple[Candidate, ...]:
        """All combinations of I and gamma, with the user's eta and M."""
        eta = self.own.eta if self.own.eta in self.etas else self.etas[0]
        M = self.own.M if self.own.M in self.participants else self.participants[-1]
        return tuple(Candidate(steps, gamma, eta, M) for steps, gamma in product(self.local_steps, self.gammas))

    def beside(self, leader: Candidate) -> tuple[Candidate, ...]:
        """The neighbours of the leading candidate.

        They are one step away in I, in gamma, or in both in opposite directions; or they have another eta or another M.
        Each other eta is tried twice: with the same gamma, and with the same product of gamma and eta.
        """
        gammas = {leader.gamma, *self._gammas_beside(leader.gamma)}
        steps = {leader.I, *_neighbours(self.local_steps, leader.I)}
        # Doubling the steps moves the model about as far as doubling the rate, so changing both in the same direction
        # goes too far.
        neighbours = [
            replace(leader, I=number, gamma=gamma)
            for number, gamma in product(sorted(steps), sorted(gammas))
            if (number - leader.I) * (gamma - leader.gamma) <= 0
        ]
        for eta in _neighbours(self.etas, leader.eta):
            neighbours.append(replace(leader, eta=eta))
            if "gamma" in self.open:
                neighbours.append(replace(leader, eta=eta, gamma=self.rate(leader.gamma * leader.eta / eta)))
        neighbours += [replace(leader, M=M) for M in _neighbours(self.participants, leader.M)]
        return tuple(candidate for candidate in neighbours if candidate != leader)

    def _gammas_beside(self, gamma: float) -> Iterator[float]:
        """The rates next to one; they may lie outside the grid unless the user has named the rates."""
        if "gamma" not in self.open:
            yield from _neighbours(self.gammas, gamma)
            return
        yield from (self.rate(gamma / _RATES), self.rate(gamma * _RATES))

    def rate(self, wanted: float) -> float:
        """The grid's own rate if one is near, so that no rate is run twice because of a difference in rounding."""
        return next((rate for rate in self.gammas if math.isclose(rate, wanted, rel_tol=1e-3)), _tidy(wanted))


def _neighbours(ladder: Sequence[Any], value: Any) -> Iterator[Any]:
    if value in ladder:
        at = ladder.index(value)
        yield from (ladder[place] for place in (at - 1, at + 1) if 0 <= place < len(ladder))


def space_of(setup: Setup, cost: Cost, over: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """Make the space of candidates: values around the set-up's own, or the values that the user names.

    Args:
        setup: the user's federation, algorithm, local steps and participation.
        cost: the cost of a round, with nothing left open.
        over: values to choose from, for some of ``local_steps``, ``gamma``, ``eta`` and ``participants``; a single
            value fixes the key.

    >>> from fedgauge import fedavg, random_quadratics
    >>> setup = Setup(random_quadratics(10, 3), fedavg(gamma=0.1), local_steps=10)
    >>> space = space_of(setup, Cost("mine", fixed=1.0, step=0.1), {"gamma": [0.1]})
    >>> space.local_steps, space.participants
    ((1, 2, 4, 8, 10, 16, 32, 64, 128), (10,))
    """
    chosen = {key: _values(key, values) for key, values in (over or {}).items()}
    N, who, parameters = setup.num_workers, setup.participation, setup.algorithm.parameters
    if not isinstance(setup.local_steps, int):
        raise InputError("A plan chooses one number of local steps for all workers; give local_steps as one number.")
    if fingerprint(setup.algorithm) is not None or "gamma" not in parameters:
        raise InputError(
            f"A plan has to make {setup.algorithm.name} again with other rates, so the algorithm must have a name that"
            " fedgauge knows, or be module:factory, and have a parameter gamma; name one, or choose local steps by"
            " hand."
        )
    refuse_round_schedules(setup.experiment.get("algorithm") or parameters, "A plan")
    eta = parameters.get("eta")
    given = Candidate(
        setup.local_steps, _tidy(parameters["gamma"]), 1.0 if eta is None else float(eta), who.num_participants(N)
    )
    steps = chosen.get("local_steps") or sorted({*_ladder(1, _STEPS, CAP), given.I})
    gammas = chosen.get("gamma") or [_tidy(given.gamma * _RATES**power) for power in range(-2, 3)]
    etas = chosen.get("eta") or ([given.eta] if eta is None else sorted({given.eta / 2, given.eta, given.eta * 2}))
    people = chosen.get("participants") or _participants(setup, cost, given)
    must_be_all = setup.experiment.get("run", {}).get("sampling") == "full"
    for number in people:
        if number > N:
            raise InputError(f"participants must be at most the {N} workers, not {number}; name fewer.")
        if must_be_all and number < N:
            raise InputError(
                f"sampling = full lets all {N} workers take part, which contradicts participants = {number};"
                " leave out one of the two."
            )
    free = tuple(key for key in KEYS if key not in chosen)
    return Space(tuple(steps), tuple(gammas), tuple(etas), tuple(people), given, free)


def _participants(setup: Setup, cost: Cost, given: Candidate) -> list[int]:
    """The user's own M, and smaller ones if they are allowed and could save enough of a round to matter."""
    messages = cost.messages(given.M) / cost.round(given.I, given.M)
    if setup.experiment.get("run", {}).get("sampling") == "full" or messages < _WORTH:
        return [given.M]
    return sorted({max(1, round(given.M / _FEWER**power)) for power in range(3)})


def _tidy(rate: float) -> float:
    """Round a rate to six digits, so that rates computed in different ways compare equal."""
    return float(f"{rate:g}")


def _ladder(first: int, factor: int, last: int) -> list[int]:
    return [first * factor**power for power in range(int(math.log(last / first, factor) + 1e-9) + 1)]


def _values(key: str, values: Sequence[Any]) -> list[Any]:
    if key not in KEYS:
        raise InputError(f"A plan does not choose {key!r}; {nearest(key, KEYS)}")
    if not values:
        raise InputError(f"{key} needs at least one value to choose from; give some or leave it out.")
    check: Callable[[str, Any], Any] = positive if key in ("gamma", "eta") else count
    checked = {check(key, value) for value in values}
    return sorted({_tidy(value) for value in checked} if check is positive else checked)
