"""A gauge inside a run that trains anyway: it chooses the local steps of every round, and learns from the losses.

It needs neither the model nor torch. The number of local steps changes in balanced blocks until it is clear which is
the fastest for the cost of a round; the run then stays with that one, and tries again later. Every step trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fedgauge.algorithms.live.blocks import balanced, block_steps, least_block, least_steps
from fedgauge.algorithms.live.fit import Fit, fit
from fedgauge.algorithms.live.reading import FEW, PHASES, changed, entries_of, noise_notes, phases_of
from fedgauge.algorithms.live.records import Records
from fedgauge.algorithms.paces import LIVE
from fedgauge.base.errors import InputError, count, non_negative
from fedgauge.base.terminal import notify
from fedgauge.values.answer import Answer, StepEfficiency

FACTOR = 4
"""Every candidate is this many times as large as the one before, beginning one below the user's own number."""
_ENOUGH = 64
"""A candidate far above the user's own number needs room for so many rounds: fewer show too late what drift does."""
_DEAR = 8
"""Candidates begin where a round costs at most this many times its local steps."""
GROWTH = 0.17
"""A block has at least this part of the steps so far: late in a run, when the loss falls slowly, short blocks say
little."""
_CLEAR = 0.9
"""How likely the best number must be within a tenth of the best of all for the run to stay with it."""
WORTH = 1.1
"""A larger candidate is tried if rounds of it would make the run so many times as fast without any drift."""
_LEVEL = 0.8
"""A larger candidate is not tried where the largest is less efficient than this part of the one before."""
_AGAIN = 0.1
"""The part of the run after which the gauge tries again."""
_LISTS = ("taken", "alive", "queue", "notes")
_NUMBERS = ("exploring", "stopped", "explored", "since", "bad", "turn", "left", "length", "current", "total")
"""What is saved, beside the records."""
_BAD = 5
"""Losses in a row that are not finite, after which the gauge gives up trying."""


class LiveGauge:
    """Measures the efficiency of local steps inside one run, and chooses their number.

    Args:
        local_steps: the number of local steps that you would take.
        steps: the local steps of the whole run, on each worker.
        cost: the cost of a round of communication, in local steps; without it, the run stays with your own number.
        candidates: the numbers to try; by default a quarter of your own, your own and four times it, or larger ones
            where a round costs far more than these; where the largest is best, larger ones follow.
        explore: the share of the run that may be spent on trying.
        commit: whether to stay with the best number once it is clear, and to try again later; otherwise the candidates
            are tried until the share is used up.
        on_change: called with the old and the new number when it changes, such as to rescale an outer momentum.

    Call :meth:`record` after every round, with the loss at the averaged model, always on the same held-out examples;
    every few rounds will do, and None stands for a round without a loss. A run is never stopped by its gauge: what is
    wrong is said once, and the run goes on with your own number of local steps.

    >>> live = LiveGauge(local_steps=16, steps=4000, cost=10, candidates=(4, 16))
    >>> done = worth = 0.0
    >>> while done < 4000:
    ...     done += live.local_steps
    ...     worth += live.local_steps * (1.0 if live.local_steps == 4 else 0.8)
    ...     live.record(loss=2 / (1 + worth / 100))
    >>> [each.local_steps for each in live.answer().efficiency], live.local_steps
    ([4, 16], 16)
    """

    def __init__(
        self,
        local_steps: int,
        steps: int,
        *,
        cost: float | None = None,
        candidates: Sequence[int] | None = None,
        explore: float = 0.3,
        commit: bool = True,
        on_change: Callable[[int, int], None] | None = None,
    ) -> None:
        self._own, self.steps = count("local_steps", local_steps), count("steps", steps)
        self.cost = None if cost is None else non_negative("cost", cost)
        self.explore, self.commit, self._on_change = non_negative("explore", explore), bool(commit), on_change
        if self.explore > 1:
            raise InputError(f"explore must be a share of the run from 0 to 1, not {explore!r}.")
        self._notes: list[str] = []
        self._given, self._replays = candidates is not None, False
        self.candidates = self._affordable(self._tried(candidates))
        self._first = tuple(self.candidates)
        self._taken = [0.0] * len(self.candidates)
        self._records = Records()
        self._fit: Fit | None = None
        self._exploring, self._stopped = len(self.candidates) > 1, ""
        self._explored = self._since = self._total = 0.0
        self._bad, self._fitted_at, self._fitted = 0, 0.0, list[int]()
        self._alive = list(range(len(self.candidates)))
        self._turn = 0
        self._queue = self._cycle()
        self._length = self._block_length()
        self._left = self._block(self._queue[0]) if self._exploring else 0.0
        self._current = self.candidates[self._queue[0]] if self._exploring else self._own

    # -- what the run asks ----------------------------------------------------------------------------------------

    @property
    def local_steps(self) -> int:
        """The local steps of the next round; the same on every rank that was given the same losses."""
        return self._current

    @property
    def exploring(self) -> bool:
        """Whether the gauge is trying candidates now."""
        return self._exploring

    def record(self, loss: float | None = None, taken: int | None = None) -> None:
        """Note that a round has ended.

        Args:
            loss: at the averaged model, on the same examples every time; None if it was not evaluated.
            taken: the local steps that the round really had; by default, as many as were asked for.
        """
        done = self._current if taken is None else taken
        if isinstance(done, bool) or not isinstance(done, int | float) or not math.isfinite(done) or done < 0:
            self._say(f"A round had {done!r} local steps, which is no number of steps; it is not counted.")
            return
        if done == 0:
            self._say("record was called without a round between; call it once after every round.")
            return
        self._total += done
        place = self._place()
        if place is None:
            self._since += done
        else:
            self._taken[place] += done
            self._since += 0.0 if self._exploring else done
            if self._exploring:
                self._explored += done
                self._left -= done
            self._note_loss(loss, place, cut=done < self._current)
        self._decide()

    def _note_loss(self, loss: float | None, place: int, cut: bool) -> None:
        """Keep a loss for the fit, if it says something."""
        if loss is None or self._stopped:
            return
        try:
            value = float(loss)
        except (TypeError, ValueError):
            self._stop(f"The loss must be a number, not a {type(loss).__name__}")
            return
        if not math.isfinite(value):
            self._bad += 1
            self._say("A loss was not finite and is left out.")
            if self._bad >= _BAD:
                self._stop(f"{_BAD} losses in a row were not finite")
            return
        self._bad = 0
        if value <= 0:
            self._stop("The gauge needs losses above 0, so subtract a lower bound from yours")
        elif not cut:
            self._records.add(self._taken, place, value)

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""
        return self._total > 0

    @property
    def settings(self) -> dict[str, Any]:
        """What determines its choices, beside the losses, as a simulated run saves it."""
        return {
            "name": LIVE,
            "local_steps": self._own,
            "steps": self.steps,
            "cost": self.cost,
            "candidates": list(self._first) if self._given else None,
            "explore": self.explore,
            "commit": self.commit,
        }

    # -- decisions ------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Choose the local steps of the next round."""
        if self._stopped or len(self.candidates) < 2:
            return
        if not self._exploring:
            if self.commit and self._since >= _AGAIN * self.steps and self._may_explore():
                self._exploring, self._since, self._turn = True, 0.0, self._turn + 1
                self._alive = self._around()
                self._begin_cycle()
                self._begin_block()
            return
        if self._left > 0.5 * self._current:
            return
        self._queue.pop(0)
        if not self._queue:
            self._end_cycle()
        if self._exploring and not self._stopped:
            self._begin_block()

    def _begin_block(self) -> None:
        self._left = self._block(self._queue[0])
        self._change(self.candidates[self._queue[0]])

    def _end_cycle(self) -> None:
        """Fit what was observed, and stop trying what cannot be best, or stop trying at all."""
        self._turn += 1
        if problem := self._refit():
            # The job goes on: only the trying ends.
            self._stop(problem)
            return
        if self._fit is not None and self.commit and self.cost is not None:
            if self._so_far().best().sure >= _CLEAR:
                self._settle()
                return
            self._alive = self._possible()
        if len(self._alive) < 2 or not self._may_explore():
            self._settle()
            return
        self._begin_cycle()

    def _settle(self) -> None:
        """Stay with the best candidate, or with the user's own number where the cost of a round is not known."""
        if self._try_larger():
            return
        self._exploring, self._since = False, 0.0
        steps = self._own
        if self._fit is not None and self.cost is not None and self.commit:
            steps = min(self._so_far().efficiency, key=lambda each: self._time(each, each.value)).local_steps
        self._change(steps)

    def _around(self) -> list[int]:
        """The candidates that are tried again later: where the cost is known, the one in use and its neighbours."""
        place = self._place()
        everyone = range(len(self.candidates))
        return [k for k in everyone if self.cost is None or place is None or abs(k - place) <= 1]

    def _so_far(self) -> Answer:
        """What is known of the candidates that are left, in the part of the run that was observed."""
        assert self._fit is not None
        first = StepEfficiency(self._fitted[0], 1.0, 1.0, 1.0, measured=False)
        left = {self.candidates[k] for k in self._alive}
        entries = (first, *entries_of(self._fit, self._fitted[1:], 1.0))
        return Answer(tuple(each for each in entries if each.local_steps in left), "", self.cost)

    def _time(self, entry: StepEfficiency, efficiency: float) -> float:
        """The time of a useful step."""
        assert self.cost is not None
        return (1 + self.cost / entry.local_steps) / efficiency

    def _try_larger(self) -> bool:
        """Go on with a larger candidate, if the largest seems best and the run is long enough for one more."""
        if self._given or self._fit is None or self.cost is None or not self.commit:
            return False
        alive, largest = self._alive, self.candidates[-1]
        gain = (1 + self.cost / largest) / (1 + self.cost / (FACTOR * largest))
        known = self._so_far()
        before = known.efficiency[-2:][0]
        falls = known.efficiency[-1].value < _LEVEL * before.value
        rare = FACTOR * largest * _ENOUGH > self.steps
        if known.best().local_steps != largest or falls or rare or gain < WORTH:
            return False
        self.candidates.append(FACTOR * largest)
        self._alive = [len(self.candidates) - 2, len(self.candidates) - 1]
        if not self._may_explore():
            self.candidates.pop()
            self._alive = alive
            return False
        self._taken.append(0.0)
        self._records.widen()
        self._exploring = True
        self._begin_cycle()
        return True

    def _possible(self) -> list[int]:
        """The candidates that may still be the fastest."""
        entries = self._so_far().efficiency
        fastest = min(self._time(each, each.low) for each in entries)
        left = {each.local_steps for each in entries if self._time(each, each.high) <= fastest}
        return [k for k in self._alive if self.candidates[k] in left]

    def _may_explore(self) -> bool:
        """Whether there is room for another cycle, and in the run for what follows from it."""
        least = 2 * sum(self._blocks(self._least_block()))
        return least <= min(self._allowance(least), self.steps - self._total)

    def _allowance(self, least: float) -> float:
        """The steps that may be tried until the current third of the run ends, or in all if a third is too short."""
        share, phases = self.explore * self.steps, len(PHASES)
        part = min(1 + int(phases * self._total / self.steps), phases) if phases * least <= share else phases
        return share * part / phases - self._explored

    def _cycle(self) -> list[int]:
        """The next candidates, block by block: once through those that are left, and back."""
        return list(islice(balanced(self._alive, self._turn), 2 * len(self._alive)))

    def _begin_cycle(self) -> None:
        self._queue, self._length = self._cycle(), self._block_length()

    def _least_block(self) -> float:
        """The shortest block of the largest candidate; before the first fit, there must be enough records for one."""
        alive = [self.candidates[each] for each in self._alive]
        return least_block(alive, self.cost, 0 if self._fit else FEW)

    def _block_length(self) -> float:
        """The steps of a block of the largest candidate: more as the run goes on, as far as the share allows."""
        shortest = self._least_block()
        cycle = 2 * sum(self._blocks(shortest))
        wanted = max(GROWTH * sum(self._taken), shortest)
        return max(shortest, min(wanted, shortest * self._allowance(cycle) / cycle))

    def _blocks(self, length: float) -> list[int]:
        """The steps of a block of each candidate that is left."""
        return block_steps(length, [self.candidates[each] for each in self._alive], self.cost)

    def _block(self, place: int) -> float:
        """The steps of the next block."""
        return float(self._blocks(self._length)[self._alive.index(place)])

    def _refit(self) -> str:
        """Fit what was observed, unless that has been done; why that failed, or nothing."""
        known = self._records.columns()
        enough = (
            len(self._records.losses) >= FEW and len(known) > 1 and set(self._alive) - set(self._new()) <= set(known)
        )
        if not enough or self._fitted_at == self._total:
            return ""
        try:
            with np.errstate(all="ignore"):
                self._fit = fit(self._records.observations(), float(self.steps))
            self._fitted_at, self._fitted, problem = self._total, [self.candidates[k] for k in known], ""
        except (ArithmeticError, ValueError) as error:  # numpy's LinAlgError is a ValueError
            self._fit, problem = None, f"The losses fit no curve ({str(error).rstrip('.')})"
        return problem

    def _new(self) -> list[int]:
        """The candidates that were added later and have had no round yet."""
        return [k for k, taken in enumerate(self._taken) if k >= len(self._first) and not taken]

    def _change(self, steps: int) -> None:
        if steps != self._current:
            before, self._current = self._current, steps
            if self._on_change is not None:
                self._on_change(before, steps)

    def _place(self) -> int | None:
        return self.candidates.index(self._current) if self._current in self.candidates else None

    def _stop(self, why: str) -> None:
        """Give up trying, say why, and leave the run to the user's own number of local steps."""
        self._stopped, self._exploring = why, False
        self._say(f"{why}; the run goes on with {self._own} local steps.")
        self._change(self._own)

    def _say(self, sentence: str) -> None:
        if sentence not in self._notes:
            self._notes.append(sentence)
            if not self._replays:
                notify(sentence)

    # -- candidates -----------------------------------------------------------------------------------------------

    def _tried(self, candidates: Sequence[int] | None) -> list[int]:
        if candidates is None:
            least = max(self._own // FACTOR, 1)
            # Where a round costs so much more than they do, so few steps cannot be the fastest.
            while self.cost is not None and least * _DEAR < self.cost:
                least *= FACTOR
            most = max(self.steps / _ENOUGH, self._own * FACTOR)
            while least > 1 and (
                self.steps < least_steps((least, least * FACTOR), self.explore, self.cost) or least * FACTOR > most
            ):
                least = max(least // FACTOR, 1)
            return [each for each in (least, least * FACTOR, least * FACTOR**2) if each <= most]
        if isinstance(candidates, str | Mapping) or not isinstance(candidates, Sequence) or len(candidates) == 0:
            raise InputError(
                f"candidates must be whole numbers of local steps, as in (16, 64, 256), not {candidates!r}."
            )
        return sorted({count("candidates", each) for each in candidates})

    def _affordable(self, candidates: list[int]) -> list[int]:
        """The candidates for which the run is long enough."""
        while len(candidates) > 1:
            least = least_steps(candidates, self.explore, self.cost)
            if least <= self.steps:
                break
            more = (
                f"at least {math.ceil(least - self.steps):,} more steps" if math.isfinite(least) else "explore above 0"
            )
            self._notes.append(f"The run is too short for {candidates[-1]} local steps; trying them takes {more}.")
            candidates = candidates[:-1]
        return candidates

    # -- answers --------------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        """What the run has shown so far."""
        if len(self.candidates) > 1:
            self._refit()
        notes, smallest = list(self._notes), self._fitted[0] if self._fit else self.candidates[0]
        reference = "synchronous training" if smallest == 1 else f"{smallest} local steps per round"
        first = StepEfficiency(smallest, 1.0, 1.0, 1.0, measured=False)
        if self._fit is None:
            few = len(self._records.losses)
            notes.append(
                f"Too little was observed for an answer: {few} losses so far; {FEW} are needed, over every candidate."
            )
            return Answer((first,), reference, self.cost, self._own, self._method(), (), tuple(notes), complete=False)
        known = self._fitted[1:]
        entries = entries_of(self._fit, known, self._records.observations().times[-1] / self.steps)
        notes += noise_notes(self._fit, entries)
        phases = phases_of(self._records, known, self.steps)
        if changed(phases):
            name, entries = phases[-1]
            notes.append(
                "The efficiency has changed during the run, as it does when a rate changes: the answer is by its"
                f" {name} part alone."
            )
        efficiency = (first, *entries)
        return Answer(efficiency, reference, self.cost, self._own, self._method(), phases, tuple(notes))

    def _method(self) -> str:
        share = self._explored / self.steps
        return (
            f"Measured inside the run itself, which tried {', '.join(map(str, self.candidates))} local steps for"
            f" {self._explored:,.0f} of its {self.steps:,} steps ({share:.0%}), without a step that does not train."
        )

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what comes next, as plain numbers, for a checkpoint of the job."""
        return {
            "candidates": list(self.candidates),
            "records": {name: list(getattr(self._records, name)) for name in ("taken", "under", "losses")},
            **{name: list(getattr(self, f"_{name}")) for name in _LISTS},
            **{name: getattr(self, f"_{name}") for name in _NUMBERS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was called, with the same decisions."""
        tried = list(state.get("candidates", ()))
        if tried[: len(self._first)] != list(self._first) or (self._given and len(tried) > len(self._first)):
            raise InputError(
                f"The saved gauge tried {tried} local steps, and this one tries"
                f" {list(self.candidates)}; make it with the same arguments."
            )
        self.candidates = tried
        for name in _LISTS:
            setattr(self, f"_{name}", list(state[name]))
        for name in _NUMBERS:
            setattr(self, f"_{name}", state[name])
        self._records = Records(*(list(state["records"][name]) for name in ("taken", "under", "losses")))
        self._fit, self._fitted_at = None, 0.0


def replayed(settings: Mapping[str, Any], losses: Mapping[int, float]) -> LiveGauge:
    """The gauge of a run that was saved: made with the same settings, and given the losses before rounds.

    >>> before = LiveGauge(16, 3000, cost=10)
    >>> after = replayed(before.settings, {0: 2.0, 2: 1.2})
    >>> before.record()
    >>> before.record(1.2)
    >>> after.state_dict() == before.state_dict()
    True
    """
    arguments = {name: settings[name] for name in ("local_steps", "steps", "cost", "candidates", "explore", "commit")}
    live = LiveGauge(**arguments)
    live._replays = True
    for number in range(1, max(losses, default=0) + 1):
        live.record(losses.get(number), live.local_steps)
    return live
