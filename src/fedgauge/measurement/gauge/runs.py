"""The efficiency that a run from the first model shows, also where its steps end before the goal.

On a short way probes would be so short that their progress drowns in noise. A run has nothing to settle, and all of its
steps count.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedgauge.codec import Value
from fedgauge.measurement.gauge.causes import Sight
from fedgauge.measurement.gauge.combining import STALLED, measured, part
from fedgauge.measurement.gauge.curve import BaseCurve, crossing
from fedgauge.measurement.gauge.result import Efficiency

Floats = npt.NDArray[np.float64]

_SEEN = 0.1
"""The part of the way that a run must have come for the rest to be extrapolated."""
_POWERS = 0.85, 2.0
"""The least and the largest power of the way with which the steps of a run are taken to grow."""
_FURTHER = 0.15
"""The relative error that a way e times as long as the one that was run adds: found on digits."""
_FEW = 3
"""Records that tell a power; with fewer, the steps grow in proportion to the way."""


@dataclass(frozen=True)
class Run(Value):
    """A run with I local steps from the first model: f after some of its steps, and the drift seen in one round."""

    local_steps: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    sight: Sight | None = None


def efficiency_of(run: Run, curve: BaseCurve, goal: float) -> Efficiency:
    """The efficiency on the way to the goal.

    Where the run ended before the goal, its steps are taken to grow as a power of the steps that the base run needs to
    the same f. The power is that of the second half of the run; mostly it is above 1, as drift costs more later.
    """
    way, needed = curve.steps_at(goal), crossing(run.steps, run.losses, goal)
    end = min(curve.error_at(way) / way, 1.0)
    if math.isfinite(needed):
        # The run ends where f first touches the goal, and so does the base run.
        value = min(crossing(curve.steps.tolist(), curve.losses.tolist(), goal), way) / needed
        at = int(np.searchsorted(run.steps, needed))
        if at <= 1:
            # Somewhere within its first record it passed the goal: only the steps up to there are certain.
            return Efficiency(run.local_steps, None, min(way / run.steps[min(at, len(run.steps) - 1)], 1.0), 1.0, "run")
        # Where f is between two records is known to their distance only.
        between = (run.steps[at] - run.steps[at - 1]) / needed / math.sqrt(12)
        return measured(run.local_steps, value, value * math.hypot(end, between), how="run")
    taken = run.steps[-1]
    nothing = Efficiency(run.local_steps, None, 0.0, min(way / taken, 1.0), "run")
    steps, come = _late(run, curve)
    if not len(come) or come[-1] < _SEEN * way or has_stalled(run, curve):
        return nothing
    power = 1.0
    if len(come) >= _FEW:
        power = float(np.clip(np.polyfit(np.log(come), np.log(steps), 1)[0], *_POWERS))
    # The last quarter of the run tells where it is, so that the noise of the last record alone does not decide.
    last = slice(-max(len(come) // 2, 1), None)
    needed = max(math.exp(float(np.mean(np.log(steps[last]) - power * np.log(come[last])))) * way**power, taken)
    value, seen = way / needed, min(float(come[-1]), way)
    here = min(curve.error_at(seen, len(come[last])) / seen, 1.0)
    error = math.hypot(_FURTHER * math.log(way / seen), power * here, end)
    found = measured(run.local_steps, value, value * error, "part")
    # It has not got there with the steps that it took, which is certain.
    found = replace(found, high=min(found.high, max(way / taken, value)))
    return found if found.low > 0 else replace(nothing, high=min(nothing.high, found.high))


def _late(run: Run, curve: BaseCurve) -> tuple[Floats, Floats]:
    """The steps of the run's second half, and those of the base run to the same f; empty if f got nowhere."""
    if not math.isfinite(run.losses[-1]):
        return np.zeros(0), np.zeros(0)
    steps, come = np.array(run.steps, dtype=float), np.array([curve.steps_at(loss) for loss in run.losses])
    late = 2 * steps >= steps[-1]
    if not (come[late] > 0).all():
        return np.zeros(0), np.zeros(0)
    return steps[late], come[late]


def has_stalled(run: Run, curve: BaseCurve) -> bool:
    """Whether the second half of the run got on by less than a tenth of its steps, whatever the noise of f hides."""
    steps, come = _late(run, curve)
    if len(steps) < _FEW:
        return False
    return bool(come[-1] - come[0] + 2 * curve.noise_at(float(come[-1])) < STALLED * (steps[-1] - steps[0]))


def phases_of(run: Run, curve: BaseCurve, goal: float, number: int) -> list[Efficiency]:
    """The efficiency in each of several equal parts of the way, as many as the run got through."""
    way = curve.steps_at(goal)
    ends = [0.0]
    for k in range(1, number + 1):
        ends.append(crossing(run.steps, run.losses, goal if k == number else curve.loss_at(way * k / number)))
    length = way / number
    noise = math.sqrt(2) * min(curve.error_at(way) / length, 1.0)
    found = []
    for begin, end in itertools.pairwise(ends):
        if not math.isfinite(end):
            break
        value = length / max(end - begin, length * STALLED)
        found.append(part([measured(run.local_steps, value, value * noise, "run")]))
    return found
