r"""Local steps that adapt themselves: after every record, a pace decides how many the next rounds take.

**What is measured.** A round takes c + s I seconds: c for communication, s for each local step. In a recorded round the
participants send not only their last model but also those they had after I/2 and I/4 steps (in the first round after
every power of two), and the server sees what f would be had the round ended there. If f falls by a over the first half
of the steps and by b over the second, e = b / a is what a step without communication is still worth: 1 where workers
agree, and less the further they drift. As f falls ever more slowly in any case, a is the mean over the first half of
this round and the first half of the next, as b lies between them in time.

**Up.** Doubling I multiplies the fall of a round by 1 + e and its seconds by (c + 2 s I) / (c + s I): it pays where
e > s I / (c + s I), the share of computing in a round. (The marginal value theorem of foraging, Charnov 1976.) I begins
at the power of two nearest to c / s, where half of a round is computing, and is doubled where e exceeds the share by
more than its standard error.

**Down** is different, as e does not separate what passes from what stays. Drift adds something to f that fewer steps
would remove within a few rounds, but only once: (a - b) / 2 of it in the first. From then on, however, f falls more
slowly with fewer steps. Three rules lower I:

- *balance*: half the steps would at once remove more than I steps have gained over half of them since I was last raised
  (read off the losses at the number of steps that half would have made by now), or more than they will gain in the
  same time again at the recent rate. Until then half would not have been better, and afterwards f is no higher than
  with half from the beginning. Where f rises after a quarter of the steps, I becomes that quarter;
- *trial*: where e is below the share, half the steps are tried for a quarter of the rounds for which I was used, and
  kept if f falls faster; the first half of the trial, which removes drift, does not count. After a failed trial, the
  next one waits twice as long;
- *undoing*: where a round would lose half of all that the run has gained, or the first round half of what it had gained
  on the way, the server takes the best of the models on the way; if none is better than the start, it undoes the round
  and takes a quarter of the steps. Between records, nothing is known and nothing is undone.

A network may begin on a plateau, where f goes up and down a little whatever I is: as long as no loss that was observed,
also within rounds, differs from the first by a twentieth of it, no rule lowers I.

What it does not do well is in docs/results/auto.md. A pace is a pure fold over the records: a resumed run replays the
records and needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.algorithms.doublings import Descent, Tally, gap, in_words, pairs, points_of, with_last
from fedgauge.base.errors import InputError, count
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.values import Round

CAP = 128
"""The largest number of local steps by default: the paper's experiments and ours end there."""
_LOOKING = 0.02
"""Fraction of the time that may be spent on sending intermediate models; small beside the tenth that counts."""
_PATIENCE = 4
"""Records until a number of steps that was given up is tried again; doubled each time it is given up."""
_TRIAL = 24
"""Rounds before fewer steps are first tried: a quarter of them is enough to see a slope in the scatter."""
_AGAIN = 8
"""Rounds before fewer steps are tried again after a success, or where f has stalled; fewer rounds show no slope."""
_SLIGHT = 0.1
"""Share of computing below which fewer steps could not save a tenth of the time, so that they are not tried."""
_LOST = 0.5
"""Fraction of all that the run has gained that a round may lose; more is not a fluctuation."""
FLAT = 0.05
"""Fraction of a network's first loss; smaller changes of f say nothing about drift, as it may be on a plateau."""


@dataclass(frozen=True)
class Decision:
    """What happens in the rounds until the next record.

    Attributes:
        local_steps: I.
        look: after which numbers of steps the server evaluates the participants' models in the recorded round.
        why: the reason, if I changes.
    """

    local_steps: int
    look: tuple[int, ...] = ()
    why: str | None = None


@dataclass(frozen=True)
class PaceState:
    """What a pace knows after some records.

    Attributes:
        decision: for the rounds that follow.
        elapsed: seconds of the cost model up to the end of the last record's round.
        looking: those of them that went into models from within rounds.
        tallies: for each number of steps, the one on the doubling that leads to it.
        before: the record before, whose second half waits for the next first half.
        rest: for each number of steps that was given up, how many records it is not tried again.
        given_up: how often each was.
        lowest: the least loss that was recorded.
        farthest: how far any loss that was observed, also within rounds, is from the first one.
        history: local steps taken and the loss, record by record.
        taken: local steps up to the end of the last record's round.
        losses: how f has fallen since I last changed, the last round's end included.
        gap: what half the steps would have shed in the last round.
        since: for each number of steps, the seconds and steps when I was raised to it.
        trial: the number of steps before a trial, the fall of f with it, and how many rounds the trial lasts.
        due: for each number of steps, after how many rounds fewer are tried.
    """

    decision: Decision
    elapsed: float = 0.0
    looking: float = 0.0
    tallies: Mapping[int, Tally] = field(default_factory=dict)
    before: Round | None = None
    rest: Mapping[int, int] = field(default_factory=dict)
    given_up: Mapping[int, int] = field(default_factory=dict)
    lowest: float = math.inf
    farthest: float = 0.0
    history: tuple[tuple[float, float], ...] = ()
    taken: float = 0.0
    losses: Descent = field(default_factory=Descent)
    gap: float = 0.0
    since: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    trial: tuple[int, float, int] | None = None
    due: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pace:
    """The rule of this module for one cost of a round.

    Attributes:
        communication: c, seconds of a round that are no local steps.
        step_seconds: s, those of a local step.
        message: seconds that the participants' models take once more to the server.
        cap: the largest I.
        flat: part of the first loss; while none that was observed is as far from it, I is not lowered.

    >>> pace = Pace(communication=1.0, step_seconds=0.1)
    >>> pace.init().decision
    Decision(local_steps=8, look=(1, 2, 4), why=None)
    """

    communication: float
    step_seconds: float
    message: float = 0.0
    cap: int = CAP
    flat: float = 0.0

    def __post_init__(self) -> None:
        count("cap", self.cap)
        if not self.communication + self.step_seconds > 0:
            raise InputError("A round must cost something for auto to choose; give the cost a fixed or a step above 0.")

    @property
    def settings(self) -> dict[str, Any]:
        """Its name and numbers, as the run keeps them."""
        return {"name": "auto", **vars(self)}

    def seconds(self, local_steps: int, looks: int = 0) -> float:
        """Of a round."""
        return self.communication + self.step_seconds * local_steps + self.message * looks

    def share(self, local_steps: int) -> float:
        """Of computing in a round."""
        return self.step_seconds * local_steps / self.seconds(local_steps)

    def init(self) -> PaceState:
        """Before the first round: as much computing as communicating, and an evaluation at every power of two."""
        highest = self.cap.bit_length() - 1
        even = (
            math.log2(self.communication / self.step_seconds) if self.communication and self.step_seconds else math.inf
        )
        level = round(min(max(even if self.communication else 0.0, 0.0), highest))
        return PaceState(Decision(2**level, tuple(2**k for k in range(level))))

    def elapsed(self, state: PaceState, round: int) -> float:
        """Seconds before a round, which is the next to be recorded."""
        between = round - state.before.round - 1 if state.before else 0
        return state.elapsed + between * self.seconds(state.decision.local_steps)

    def _farthest(self, state: PaceState, record: Round) -> float:
        first = state.history[0][1] if state.history else record.loss
        return max(state.farthest, *(abs(loss - first) for loss in points_of(record).values()))

    def _on_plateau(self, state: PaceState, record: Round) -> bool:
        """Whether no loss that was observed is far from the first."""
        first = state.history[0][1] if state.history else record.loss
        return self._farthest(state, record) < self.flat * abs(first)

    def take(self, state: PaceState, record: Round) -> int:
        """After how many of its steps a recorded round is taken to have ended; 0 where it is undone."""
        assert record.looked is not None
        assert record.path is not None
        if self._on_plateau(state, record):
            return record.looked[-1]
        if state.history:
            first, best = state.history[0][1], min(state.lowest, record.loss)
            limit = max(best + _LOST * (first - best), record.loss)
        else:
            # Of the first round all is known: too large a rate can gain something and then end where nothing learns.
            best = min(record.loss, *record.path)
            limit = best + _LOST * (record.loss - best)
        if record.path[-1] <= limit or record.looked == (1,):
            return record.looked[-1]
        lowest = min(record.path)
        return record.looked[record.path.index(lowest)] if lowest <= limit else 0

    def step(self, state: PaceState, record: Round) -> tuple[PaceState, Decision]:
        """Take in a record with what its round evaluated; the state and the decision for the rounds that follow."""
        if record.looked is None or record.path is None:  # the record that ends a run
            return state, state.decision
        I = record.looked[-1]  # noqa: E741
        looks = len(record.looked) - 1
        tallies = dict(state.tallies)
        for steps, b, a, scale in pairs(state.before, record) if state.before else ():
            tallies[steps] = tallies.get(steps, Tally()).with_pair(b, a, scale)
        end = points_of(record)[record.taken or 0]
        between = record.round - state.before.round - 1 if state.before else 0
        history = (*state.history, (state.taken + between * state.decision.local_steps, record.loss))
        elapsed = self.elapsed(state, record.round) + self.seconds(I, looks)
        looking = state.looking + self.message * looks * bool(state.before)
        state = replace(
            state,
            elapsed=elapsed,
            looking=looking,
            tallies=tallies,
            before=record,
            rest={steps: left - 1 for steps, left in state.rest.items() if left > 1},
            history=history,
            taken=history[-1][0] + (record.taken or 0),
            losses=Descent((*(state.losses.points or ((record.round, record.loss),)), (record.round + 1, end))),
            gap=gap(record),
            lowest=min(state.lowest, record.loss),
            farthest=self._farthest(state, record),
            since=state.since or {I: (0.0, 0)},
        )
        following, why, changes = self._next(state, record, end)
        if following != I:
            changes |= {"losses": Descent()}
            if following > I:
                changes["tallies"] = {steps: each for steps, each in tallies.items() if steps != following}
                changes.setdefault("since", {**state.since, following: (elapsed, state.taken)})
        decision = Decision(following, self._look(following, elapsed, looking), why)
        return replace(state, decision=decision, **changes), decision

    def _look(self, local_steps: int, elapsed: float, looking: float) -> tuple[int, ...]:
        """A half and a quarter of the steps, as far as there is time for it."""
        free = _LOOKING * elapsed - looking
        wanted = [part for part in (local_steps // 2, local_steps // 4) if part]
        afforded = len(wanted) if not self.message else int(min(max(free, 0.0) // self.message, len(wanted)))
        return tuple(sorted(wanted[:afforded]))

    def _next(self, state: PaceState, record: Round, end: float) -> tuple[int, str | None, dict[str, Any]]:
        """How many steps follow on a record, why where it is another number, and what else of the state changes."""
        assert record.looked is not None
        assert record.path is not None
        I = record.looked[-1]  # noqa: E741
        if record.taken == 0 and I > 1:
            lowest = min(record.path)
            rise = f"raised f from {record.loss:.4g} to at least {lowest:.4g}" if math.isfinite(lowest) else "diverged"
            return (
                max(I // 4, 1),
                f"the round {rise}, so it is undone and the next one takes fewer steps",
                self._leave(state, I),
            )
        tally = state.tallies.get(I, Tally())
        now = with_last(tally, record)
        if state.trial and state.trial[0] > I:
            return self._judge(state, I)
        if I > 1 and not self._on_plateau(state, record):
            lost, gained = self._balance(state, end)
            if lost > max(gained, 0.0):
                if _rises_from_a_quarter(state, I):
                    why = f"f rises after the first {I // 4} of {I} local steps, so the rest do harm"
                    return I // 4, why, self._leave(state, I, I // 2)
                gain = (
                    f"more than the {gained:.3g} that {I} steps gain" if gained > 0 else f"and {I} steps gain nothing"
                )
                why = f"{I // 2} local steps would lower f by {lost:.3g} at once, {gain} over them"
                return I // 2, why, self._leave(state, I)
            share, taken = self.share(I // 2), state.losses.rounds
            mean, error = tally.excess(share)
            stalled = taken >= _AGAIN and state.losses.late(taken // 2).slope < _SLIGHT * state.losses.slope
            if mean + error < 0 and (
                (share > _SLIGHT and taken >= state.due.get(I, _TRIAL))
                or (stalled and taken >= state.due.get(I, _AGAIN))
            ):
                length = max(taken // 4, 4)
                rate = self._fall(state, I, length)
                why = f"{in_words(tally, I)}; {I // 2} steps are tried for {length} rounds"
                return I // 2, why, {"trial": (I, rate, length)}
        if self.cap >= 2 * I and 2 * I not in state.rest:
            share = self.share(I)
            mean, error = now.excess(share)
            if I == 1:
                return 2, "two steps are tried, as one step does not show what a second is worth", {}
            if mean - error > 0:
                return 2 * I, f"{in_words(now, I)}; twice as many steps are taken", {}
        return I, None, {}

    def _leave(self, state: PaceState, *local_steps: int) -> dict[str, Any]:
        """Numbers of steps are given up, each for twice as long as the last time."""
        times = {steps: state.given_up.get(steps, 0) for steps in local_steps}
        return {
            "given_up": {**state.given_up, **{steps: number + 1 for steps, number in times.items()}},
            "rest": {**state.rest, **{steps: _PATIENCE * 2**number for steps, number in times.items()}},
            "trial": None,
        }

    def _judge(self, state: PaceState, I: int) -> tuple[int, str | None, dict[str, Any]]:  # noqa: E741
        """Whether fewer steps that were tried are kept; half of the trial, in which drift is shed, is left out."""
        assert state.trial is not None
        before, rate, length = state.trial
        if state.losses.rounds < length:
            return I, None, {}
        fall = self._fall(state, I, length - length // 2)
        if fall > rate:
            return I, None, {**self._leave(state, before), "due": {**state.due, I: _AGAIN}}
        why = f"the trial of {I} local steps is over: f fell no faster than with {before}"
        due = {**state.due, before: 2 * state.due.get(before, _TRIAL)}
        return before, why, {"trial": None, "due": due, "since": state.since}

    def _fall(self, state: PaceState, I: int, rounds: int) -> float:  # noqa: E741
        """The fall of f in the last rounds, all at I, for each e-fold of the time since the beginning.

        Not for each second: f falls ever more slowly, like a power or the logarithm of time, whatever I is.
        """
        centre = state.elapsed - rounds * self.seconds(I) / 2
        return state.losses.late(rounds).slope / self.seconds(I) * centre

    def _balance(self, state: PaceState, end: float) -> tuple[float, float]:
        """What half the steps would give at once, and what the whole gain on them in as long as they are taken."""
        I = state.decision.local_steps  # noqa: E741
        half = I // 2
        begun, taken = max((place for steps, place in state.since.items() if steps <= I), default=(0.0, 0))
        slower = taken + (state.elapsed - begun) * half / self.seconds(half)
        places = [*state.history, (state.taken, end)]
        gained = float(np.interp(slower, [n for n, _ in places], [f for _, f in places])) - end
        if state.losses.rounds < _AGAIN:
            return state.gap, gained
        late = state.losses.late((state.losses.rounds - 1) // 2)
        ahead = 1 - self.seconds(I) / self.seconds(half) / 2
        coming = ahead * (late.slope + 2 * late.error) / self.seconds(I) * (state.elapsed - begun)
        return state.gap, min(gained, coming)


def _rises_from_a_quarter(state: PaceState, I: int) -> bool:  # noqa: E741
    """Whether f rises from a quarter of the steps to half and again to all, by more than the standard errors."""
    rises = [state.tallies.get(steps, Tally()).excess(0.0) for steps in (I // 2, I)]
    return I >= 4 and all(mean + error < 0 for mean, error in rises)


def adaptive_pace(
    cost: Cost | str, federation: Federation, participation: Participation | int | None = None, cap: int = CAP
) -> Pace:
    """The pace for a federation whose rounds have this cost.

    Args:
        cost: the cost of a round, or its name, with the time of a step: measured afresh, it would make a different run
            each time.
        federation: the federation whose model is sent.
        participation: who takes part; by default all workers.
        cap: the largest I.

    >>> from fedgauge import Cost, fedavg, random_quadratics, simulate
    >>> federation = random_quadratics(4, 3)
    >>> pace = adaptive_pace(Cost.parse("cross-silo"), federation)
    >>> trace = simulate(federation, fedavg(gamma=0.1), local_steps=pace, rounds=20)
    >>> trace.rounds[0].looked, trace.rounds[0].taken, trace.rounds[1].elapsed > 1
    ((1, 2, 4, 8, 16, 32, 64), 64, True)
    """
    cost = Cost.of(cost)
    if cost.step is None:
        raise InputError(
            f"auto needs to know how long a local step takes, which the cost {cost.name} does not say; give it, as in"
            " cost='local,step=0.001'."
        )
    cost.refuse_overlap("auto")
    full = cost.completed(federation)
    who = Participation.of(participation, federation.num_workers)
    participants = who.num_participants(federation.num_workers)
    # Half of what a participant sends and receives is the model that it sends.
    message = full.messages(participants) / 2
    # A quadratic has no plateau, and its least value may be anything.
    flat = 0.0 if isinstance(federation, QuadraticFederation) else FLAT
    return Pace(full.communication(participants), cost.step, message, cap, flat)
