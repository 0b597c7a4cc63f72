"""A search that is guided by the efficiency of local steps, for goals that are a value to reach.

Three things make it cheap. Runs with one local step per round show which rate is best, because there a step is worth
most. The efficiency of local steps then says how many steps the goal takes with any I: it only falls with I, so a few
runs, or the gauge where the goal is far, show the whole curve. And the fastest run so far is a ruler for the others: it
says how far a challenger has come, so that slower ones are stopped long before the goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedgauge.algorithms.cost import Cost
from fedgauge.measurement.gauge.curves import BaseCurve
from fedgauge_planning.candidates import Candidate, Space, Trial
from fedgauge_planning.course import Course
from fedgauge_planning.forecast import Curve
from fedgauge_planning.race import search

_FIRST = 8  # rounds of the first run of every rate
_CHECKS = ((0.3, 1.5), (0.6, 1.2), (0.9, 1.08), (1.08, 1.0))
"""Shares of the leader's time after which a challenger is stopped if it needs more than so many times as long."""
_EARLY = ((0.06, 3.0), (0.15, 2.0))
"""The same for challengers with more local steps, whose rounds take many gradient steps in little time of the cost."""
_WORTH = 0.9  # another candidate is tried if it is expected to need less than this share of the leader's time
_UNSURE = 1.3  # the same for a smaller rate, whose drift and noise are less known: it is stopped soon if it is slower
_LUCK = 1.1  # a leader was lucky if its mean time grows by more than this factor with a second seed
_PATIENCE = 2.5  # the second seed's run is stopped after this many times the time of the first
_JUMP = 8  # the way is predicted up to this many times the largest I that is known
_FAILED = 30.0  # a run that takes more than this many times the steps counts as one that never arrives
_RATES = 3.0  # factor between rates


class Way:
    """The steps to the goal against I, as known for some I and expected between and beyond them.

    In logarithms, the steps grow at first slowly with I and then faster and faster, so between two known places they
    lie between the straight line that joins them and the one that goes on from before: the middle of both is expected.

    Attributes:
        known: the steps for some I.
        most: from this I on, the goal is out of reach.

    >>> way = Way({1: 100.0, 16: 200.0})
    >>> round(way.steps(4)), round(way.steps(64))
    (119, 283)
    """

    def __init__(self, known: dict[int, float]) -> None:
        self.known, self.most = dict(known), math.inf

    def learn(self, local_steps: int, steps: float) -> None:
        """Add what was found for some I; far too many steps only say that the goal is out of reach."""
        if steps > _FAILED * self.known[min(self.known)]:
            self.most = min(self.most, local_steps)
        else:
            self.known[local_steps] = steps

    def steps(self, local_steps: float) -> float:
        """The steps to the goal, as expected."""
        if local_steps >= self.most:
            return math.inf
        places = sorted(self.known)
        x, y = np.log(places), np.log([self.known[place] for place in places])
        at = math.log(local_steps)
        before = int(np.searchsorted(x, at, side="right")) - 1
        # More local steps are never more efficient, so no line falls.
        slope = max(float((y[before] - y[before - 1]) / (x[before] - x[before - 1])), 0.0) if before > 0 else 0.0
        onward = float(y[max(before, 0)]) + slope * (at - float(x[max(before, 0)]))
        joined = float(np.interp(at, x, y)) if at <= x[-1] else onward
        return math.exp((joined + min(onward, joined)) / 2)


def on_course(curve: Curve, ruler: Curve, target: float) -> float:
    """The seconds in which a run reaches the target if it keeps its pace along the way that another run measures.

    >>> seconds = tuple(map(float, range(11)))
    >>> ruler = Curve(seconds, tuple(0.5**t for t in seconds), 1.0, "target")
    >>> slow = Curve(seconds, tuple(0.7**t for t in seconds), 1.0, "stopped")
    >>> round(on_course(slow, ruler, 0.5**10), 1)
    19.4
    """
    reached = curve.when(target)
    if reached is not None:
        return reached
    if curve.diverged or not curve.end:
        return math.inf
    way, own = (BaseCurve(each.seconds, np.log(each.errors).tolist()) for each in (ruler, curve))
    half, now = (way.steps_at(own.loss_at(share * curve.end)) for share in (0.5, 1.0))
    left, pace = max(way.steps_at(math.log(target)) - now, 0.0), (now - half) / (0.5 * curve.end)
    return curve.end + left / pace if pace > 0 else math.inf


class Guided:
    """The search while it runs.

    Args:
        course: the state of the search.
        space: the values that may be chosen.
        cost: the cost of a round.
        gauged: returns the steps to the goal for several I, if a candidate takes so many that the gauge is cheaper
            than runs; otherwise nothing.
    """

    def __init__(
        self,
        course: Course,
        space: Space,
        cost: Cost,
        *,
        gauged: Callable[[Candidate, int], dict[int, float]] = lambda candidate, steps: {},
    ) -> None:
        assert course.target is not None
        self._course, self._space, self._cost, self._gauged = course, space, cost, gauged
        self._target: float = course.target
        self._fewest = min(space.local_steps)

    def run(self) -> str:
        """Search; returns why it ended."""
        ended = self._rates()
        if not self._course.ready:
            return ended
        self._way = self._local_steps(self._leader)
        while self._smaller_rate(_UNSURE):
            self._more_steps()
        self._server()
        # A goal near the level at which noise takes over may be reached by luck; smaller rates are then safer.
        while self._was_lucky():
            second = self._second_chance()
            if not self._smaller_rate(_UNSURE) and not second:
                break
            self._server()
        return ended

    # -- stages ------------------------------------------------------------------------------------------------------

    def _rates(self) -> str:
        """The fewest local steps at every rate, until one has reached the goal."""
        course, space = self._course, self._space
        single = [candidate for candidate in space.grid() if self._fewest == candidate.I]
        each, limit = single[0].seconds(self._cost), course.limit
        # The limit is one of time. Here it becomes one of steps: those that the user's own I takes in that time.
        course.limit = limit / self._each(space.own.I) * space.own.I / self._fewest * each
        ended = search(course, single, first=_FIRST * each)
        # Forecasts may have misjudged the rates beside the best, which the ruler does not.
        while course.ready and self._contest(self._beside(self._leader), new=False):
            pass
        course.limit = limit
        return ended

    def _beside(self, leader: Candidate) -> list[Candidate]:
        """The leader with the next larger and the next smaller rate, unless they have run to their end."""
        space, course = self._space, self._course
        near = [candidate for candidate in space.beside(leader) if candidate == replace(leader, gamma=candidate.gamma)]
        return [candidate for candidate in near if candidate not in course.field or not course.done(candidate)]

    def _local_steps(self, base: Candidate) -> Way:
        """More local steps, wherever they are expected to be faster; returns the steps needed at the leader's rate."""
        ways = {base: Way({base.I: self._steps(base), **self._gauged(base, round(self._steps(base)))})}
        choices = self._space.local_steps
        middle = min(choices, key=lambda steps: abs(math.log(steps / math.sqrt(base.I * max(choices)))))
        if len(ways[base].known) == 1 and middle != base.I:
            self._learn(ways[base], replace(base, I=middle))
            ways |= self._smaller_rates(middle, base, ways[base])
        # The smallest rate first: if it was tried, it was the best for a middle number of local steps.
        for each, way in reversed(ways.items()):
            while (following := self._promising(way, each)) and not self._course.time_is_up():
                self._learn(way, replace(each, I=following))
        return ways.get(replace(self._leader, I=base.I), ways[base])

    def _learn(self, way: Way, candidate: Candidate) -> None:
        self._contest([candidate])
        way.learn(candidate.I, self._steps(candidate))

    def _smaller_rates(self, middle: int, base: Candidate, way: Way) -> dict[Candidate, Way]:
        """The steps needed at smaller rates, while local steps lose more than a smaller rate costs without any loss."""
        ways: dict[Candidate, Way] = {}
        while gamma := self._next_smaller(base.gamma):
            length, before = self._longer(gamma, base) * way.known[base.I], way.steps(middle)
            if before <= length or self._course.time_is_up():
                break
            base, way = replace(base, gamma=gamma), Way({base.I: length})
            self._learn(way, replace(base, I=middle))
            if way.steps(middle) >= before:
                break
            ways[base] = way
        return ways

    def _promising(self, way: Way, base: Candidate) -> int:
        """The number of local steps with the shortest expected time that is worth a run; 0 if there is none."""
        # Not far beyond what is known, and halfway to where the goal is out of reach.
        reach = min(_JUMP * max(way.known), math.sqrt(max(way.known) * way.most))
        times = {
            steps: self._expected(way, steps)
            for steps in self._space.local_steps
            if replace(base, I=steps) not in self._course.field and steps <= reach
        }
        best = min(times, key=lambda steps: times[steps], default=0)
        return best if best and times[best] < _WORTH * self._best else 0

    def _smaller_rate(self, worth: float) -> bool:
        """A smaller rate with more local steps, if its drift could be that much smaller; whether it leads now.

        Drift depends on I, or on gamma I, or on something between the two; here the more hopeful is assumed.
        """
        space, leader = self._space, self._leader
        gamma = self._next_smaller(leader.gamma)
        if not gamma:
            return False
        ratio, longer = gamma / leader.gamma, self._longer(gamma, leader)
        # The first seed's time, as in the way: if another seed was slower, that is noise, of which there is less here.
        scale = longer * self._course.scores(leader)[0] / self._expected(self._way, leader.I)
        times = {
            steps: scale * self._expected(self._way, steps, max(steps * ratio, self._fewest))
            for steps in space.local_steps
            if steps > self._fewest and replace(leader, I=steps, gamma=gamma) not in self._course.field
        }
        best = min(times, key=lambda steps: times[steps], default=0)
        return bool(best) and times[best] < worth * self._best and self._contest([replace(leader, I=best, gamma=gamma)])

    def _more_steps(self) -> None:
        """The next larger I at the leader's rate, as long as it leads: nothing is known at a new rate."""
        choices = self._space.local_steps
        while larger := next((steps for steps in choices if steps > self._leader.I), 0):
            if self._course.time_is_up() or not self._contest([replace(self._leader, I=larger)]):
                return

    def _server(self) -> None:
        """Other global rates, with the same gamma or the same product, and other numbers of participants.

        Smaller global rates are tried only if no larger one has led: a rate that was just raised is not lowered again.
        """
        risen = False
        while not self._course.time_is_up():
            leader = self._leader
            beside = [
                candidate
                for candidate in self._space.beside(leader)
                if (candidate.eta, candidate.M) != (leader.eta, leader.M) and candidate.gamma <= leader.gamma
            ]
            smaller = [candidate for candidate in beside if candidate.eta < leader.eta]
            if self._contest([candidate for candidate in beside if candidate not in smaller]):
                risen = True
            elif risen or not self._contest(smaller):
                return
            self._neighbours()

    def _neighbours(self) -> None:
        """The next smaller and larger I with the leader's new rates, where they are expected to be faster."""
        leader, choices = self._leader, self._space.local_steps
        at = choices.index(leader.I)
        limit = self._expected(self._way, leader.I)
        near = [steps for steps in choices[max(at - 1, 0) : at + 2] if self._expected(self._way, steps) < limit]
        self._contest([replace(leader, I=steps) for steps in near])

    def _was_lucky(self) -> bool:
        """Run the leader with one more seed; whether it is clearly slower with it."""
        again, before = Trial(self._leader, 1), self._best
        if again in self._course.curves or self._course.time_is_up():
            return False
        self._course.run([again], [_PATIENCE * before])
        return self._best > _LUCK * before

    def _second_chance(self) -> bool:
        """Let those run on whose forecast is better than the leader's mean; whether one of them leads now."""
        course = self._course
        better = [c for c in course.field if not course.done(c) and course.score(c) < self._best]
        return self._contest(better, new=False)

    # -- what is expected, and the ruler -----------------------------------------------------------------------------

    @property
    def _leader(self) -> Candidate:
        return min(self._course.ready, key=self._course.score)

    @property
    def _best(self) -> float:
        return self._course.score(self._leader)

    def _each(self, local_steps: int) -> float:
        """The seconds of a round of I local steps."""
        return replace(self._space.own, I=local_steps).seconds(self._cost)

    def _steps(self, candidate: Candidate) -> float:
        """The steps to the goal: as run, or as forecast."""
        return self._course.score(candidate) / candidate.seconds(self._cost) * candidate.I

    def _expected(self, way: Way, local_steps: int, drift: float | None = None) -> float:
        """The expected time with I local steps, if they are as efficient as ``drift`` of them at the known rate."""
        return way.steps(local_steps if drift is None else drift) / local_steps * self._each(local_steps)

    def _next_smaller(self, gamma: float) -> float:
        """The next smaller rate; 0 if there is none."""
        if "gamma" in self._space.open:
            return self._space.rate(gamma / _RATES)
        return next((rate for rate in reversed(self._space.gammas) if rate < gamma), 0.0)

    def _longer(self, gamma: float, than: Candidate) -> float:
        """How many times as many steps a smaller rate takes: the ratio of the rates, or less if runs have shown it."""
        most, alone = than.gamma / gamma, [self._alone(rate) for rate in (gamma, than.gamma)]
        return min(max(alone[0] / alone[1], 1.0), most) if all(map(math.isfinite, alone)) else most

    def _alone(self, gamma: float) -> float:
        """The time with the fewest local steps at a rate; infinite if there was no such run."""
        runs = [c for c in self._course.field if self._fewest == c.I and c.gamma == gamma]
        return min(map(self._course.score, runs), default=math.inf)

    def _contest(self, challengers: Sequence[Candidate], new: bool = True) -> bool:
        """Run challengers against the leader, and stop those that fall behind; whether one of them leads now.

        Args:
            challengers: the candidates to run.
            new: whether to leave out those that have run before.
        """
        course, leader, best = self._course, self._leader, self._best
        ruler = course.curve(leader)
        field = set(course.field) if new else set()
        challengers = [candidate for candidate in challengers if candidate not in field]
        left = challengers
        for share, most in (*_EARLY, *_CHECKS):
            checked = [c for c in left if leader.I < c.I or (share, most) in _CHECKS]
            if not left or self._course.time_is_up():
                break
            course.progress(leader.name)
            # Two rounds, so that there is a pace.
            course.run([Trial(c, 0) for c in checked], [max(share * best, 2 * c.seconds(self._cost)) for c in checked])
            course.forecasts |= {c: on_course(course.curve(c), ruler, self._target) for c in checked}
            out = {c for c in checked if course.done(c) or course.forecasts[c] > most * best}
            left = [c for c in left if c not in out]
        for candidate in challengers:
            if candidate in course.forecasts and not course.arrived(candidate):
                late = course.forecasts[candidate] / best
                pace = f"on course for {late:.1f} times its time" if late < _FAILED else "hardly any progress"
                course.fates[candidate] = f"behind I = {leader.I}, gamma = {leader.gamma:.3g}: {pace}"
        return self._leader != leader
