r"""Local steps that adapt themselves: a pace decides after every record how many the next rounds take.

**What is measured.** A round takes c + s I seconds: c for communicating, s for a local step. In a round that is
recorded the participants send, beside their last model, the ones they had on the way at I/2 and I/4 (in the first
round at every power of two), and the server sees what f would be had the round ended there. With a the fall of f over
the first half of the steps and b over the second, e = b / a is what a step without communication is still worth: 1
where workers agree, less the further they drift. As f falls ever more slowly anyhow, a is the mean of this round's
first half and the next one's, between which b lies in time.

**Up.** Doubling I multiplies the fall of a round by 1 + e and its seconds by (c + 2 s I) / (c + s I): it pays where
e > s I / (c + s I), the share of computing in a round. (The marginal value theorem of foraging, Charnov 1976.) I begins
at the power of two nearest to c / s, where a round is half computing, and is doubled where e is above the share by
more than its standard error.

**Down** is another matter, as e does not tell what passes from what stays. Drift adds something to f that fewer steps
would shed within a few rounds, once: (a - b) / 2 of it in the first. But f falls more slowly with fewer steps ever
after. Three rules lower I:

- *balance*: what half the steps would shed at once is more than what I steps have gained on half of them for as long
  as they are taken (read off the losses at the steps that half would have made by now), or than what they will gain
  in as long again at the rate of late. Up to then no half would have been better, and afterwards f is no higher than
  with half from the beginning. Where f rises from a quarter of the steps on, it comes down to that quarter;
- *trial*: where e is below the share, half the steps are tried for a quarter as many rounds as I was taken, and kept
  if f falls faster, the first half of the trial, which sheds drift, left out. Trials that fail come half as often;
- *undoing*: where a round would take back half of all that the run has gained, or the first one half of what it gained
  on the way, the server takes the best of the models on the way, or none of them and a quarter of the steps. In rounds
  between records nothing is known.

A network may begin on a plateau, where f goes up and down by little whatever I is: while no loss that was seen, also on
the way, is a twentieth of the first one away from it, no rule lowers I.

What it does not do well is in docs/results/auto.md. A pace is a pure fold over the records: a resumed run replays it
and needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedgauge.errors import InputError, count
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.pace.cost import Cost
from fedgauge.pace.doublings import Descent, Tally, gap, in_words, pairs, points_of, with_last
from fedgauge.values import Round

CAP = 128
"""Local steps beyond which nothing is tried unless told: the paper's experiments and ours end there."""
_LOOKING = 0.02
"""Part of the time that may go into sending models of the way: little beside the tenth that is to be kept within."""
_PATIENCE = 4
"""Records until a number of steps that was given up is tried again; each time it is given up, twice as many."""
_TRIAL = 24
"""Rounds before fewer steps are first tried: in a quarter of them a slope can be told from scatter."""
_AGAIN = 8
"""Rounds before they are tried once more where that was good, or where f has stalled; fewer have no slope."""
_SLIGHT = 0.1
"""A share of computing below which fewer steps could not save a tenth of the time, and are not tried."""
_LOST = 0.5
"""Part of all that the run has gained that a round may take back; more is no fluctuation."""
FLAT = 0.05
"""Part of a network's first loss below which a change of f tells nothing of drift: it may begin on a plateau."""


@dataclass(frozen=True)
class Decision:
    """What the rounds until the next record do.

    Attributes:
        local_steps: I.
        look: after how many of them the participants' models are looked at in the round that is recorded, growing.
        why: the reason, where I has changed.
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
        looking: those of them that went into models of the way.
        tallies: for each number of steps, the one on the doubling that leads to it.
        before: the record before, whose second half waits for the next first half.
        rest: for each number of steps that was given up, how many records it is not tried again.
        given_up: how often each was.
        lowest: the least loss that was recorded.
        farthest: how far any loss that was seen, also on the way, is from the first one.
        history: local steps taken and the loss, record by record.
        taken: local steps up to the end of the last record's round.
        losses: how f has fallen since I last changed, the last round's end included.
        gap: what half the steps would have shed in the last round.
        since: for each number of steps, the seconds and steps when it was gone up to.
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
        flat: part of the first loss; while none that was seen is as far from it, I is not lowered.

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
            raise InputError("A round must cost something for auto to weigh; give the cost a fixed or a step above 0.")

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
        """Before the first round: as much computing as communicating, and a look at every power of two."""
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
        """Whether no loss that was seen is far from the first."""
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
        """Take in a record with what its round looked at; the state and the decision for the rounds that follow."""
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
        drift = ""
        if record.deviation2 is not None and record.grad2 > 0:
            drift = f"; drift is {math.sqrt(record.deviation2 / record.grad2):.0%} of the gradient"
        if record.taken == 0 and I > 1:
            why = f"f would have risen to {min(record.path):.4g} at best; the round is undone{drift}"
            return max(I // 4, 1), why, self._leave(state, I)
        tally = state.tallies.get(I, Tally())
        now = with_last(tally, record)
        if state.trial and state.trial[0] > I:
            return self._judge(state, I)
        if I > 1 and not self._on_plateau(state, record):
            lost, gained = self._balance(state, end)
            if lost > max(gained, 0.0):
                why = f"{I // 2} steps would shed {lost:.3g} of f at once, and {I} gain only {gained:.3g} on them"
                if not _rises_from_a_quarter(state, I):
                    return I // 2, why + drift, self._leave(state, I)
                why += f"; f rises from {I // 4} steps on"
                return I // 4, why + drift, self._leave(state, I, I // 2)
            share, taken = self.share(I // 2), state.losses.rounds
            mean, error = tally.excess(share)
            stalled = taken >= _AGAIN and state.losses.late(taken // 2).slope < _SLIGHT * state.losses.slope
            if mean + error < 0 and (
                (share > _SLIGHT and taken >= state.due.get(I, _TRIAL))
                or (stalled and taken >= state.due.get(I, _AGAIN))
            ):
                length = max(taken // 4, 4)
                rate = self._fall(state, I, length)
                why = f"to try for {length} rounds: {in_words(tally, I)}, which pays from {share:.2f} on{drift}"
                return I // 2, why, {"trial": (I, rate, length)}
        if self.cap >= 2 * I and 2 * I not in state.rest:
            share = self.share(I)
            mean, error = now.excess(share)
            if I == 1:
                return 2, f"to try, as one step does not tell what a second is worth{drift}", {}
            if mean - error > 0:
                return 2 * I, f"{in_words(now, I)}, and more steps pay from {share:.2f} on{drift}", {}
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
        found = self._fall(state, I, length - length // 2)
        if found > rate:
            return I, None, {**self._leave(state, before), "due": {**state.due, I: _AGAIN}}
        why = f"f fell by {found:.3g} for each e-fold of the time at {I} local steps and by {rate:.3g} at {before}"
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
    cost: Cost, federation: Federation, participation: Participation | None = None, cap: int = CAP
) -> Pace:
    """The pace for a federation whose rounds cost so much.

    Args:
        cost: of a round; the time of a step must be given, as one that is measured anew would make it another run.
        federation: whose model is sent.
        participation: who takes part, everyone if not given.
        cap: the largest I.

    >>> from fedgauge import Cost, fedavg, random_quadratics, simulate
    >>> federation = random_quadratics(4, 3)
    >>> pace = adaptive_pace(Cost.parse("cross-silo"), federation)
    >>> trace = simulate(federation, fedavg(gamma=0.1), local_steps=pace, rounds=20)
    >>> trace.rounds[0].looked, trace.rounds[0].taken, trace.rounds[1].elapsed > 1
    ((1, 2, 4, 8, 16, 32, 64), 64, True)
    """
    if cost.step is None:
        raise InputError(
            f"auto needs to know how long a local step takes, which the cost {cost.name} leaves open: measured anew it"
            " would make another run each time; give it, as in local,step=0.001."
        )
    full = cost.completed(federation)
    participants = (participation or Participation()).num_participants(federation.num_workers)
    # Half of what a participant sends and receives is the model that it sends.
    message = full.per_participant * participants / 2
    # A quadratic has no plateau, and its least value may be anything.
    flat = 0.0 if isinstance(federation, QuadraticFederation) else FLAT
    return Pace(full.communication(participants), cost.step, message, cap, flat)
