"""The curve of the base run: how many of its steps lie between two values of f."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

Floats = npt.NDArray[np.float64]

_NEAR = 9
"""The number of records that tell the noise of f near a step."""


def crossing(steps: Sequence[float], losses: Sequence[float], goal: float) -> float:
    """The steps after which f reaches the goal, on a line between two records; infinite if it does not.

    >>> crossing([0, 10, 20], [3.0, 2.0, 1.0], 1.5), crossing([0, 10], [3.0, 2.0], 1.5)
    (15.0, inf)
    """
    for index, loss in enumerate(losses):
        if loss <= goal:
            if index == 0:
                return float(steps[0])
            before, width = losses[index - 1], steps[index] - steps[index - 1]
            return steps[index] - width * (goal - loss) / (before - loss)
    return math.inf


class BaseCurve:
    """f along the base run, as the decreasing curve that fits its records best.

    >>> curve = BaseCurve([0, 10, 20, 30], [4.0, 3.0, 2.5, 2.25])
    >>> float(curve.steps_at(2.75)), float(curve.loss_at(5))
    (15.0, 3.5)
    """

    def __init__(self, steps: Sequence[float], losses: Sequence[float]) -> None:
        self.steps, self.losses = np.asarray(steps, dtype=float), np.asarray(losses, dtype=float)
        fitted = isotonic_regression(self.losses, increasing=False)
        # Records between which f does not fall become one point in their middle, so that the curve has an inverse.
        first, last = fitted.blocks[:-1], fitted.blocks[1:] - 1
        self._places = (self.steps[first] + self.steps[last]) / 2
        self._levels = fitted.x[first]

    def loss_at(self, steps: float) -> float:
        """f after so many steps of the base run."""
        return float(np.interp(steps, self._places, self._levels))

    def steps_at(self, loss: float) -> float:
        """The steps after which the base run has this f; beyond its ends, as if its first or last slope went on."""
        if len(self._places) < 2:
            return float(self._places[0])
        if loss > self._levels[0]:
            return float(self._places[0] - (loss - self._levels[0]) / self._slope(0))
        if loss < self._levels[-1]:
            return float(self._places[-1] + (self._levels[-1] - loss) / self._slope(-1))
        return float(np.interp(-loss, -self._levels, self._places))

    def noise_at(self, steps: float) -> float:
        """By how many steps a value of f may mislead here: its scatter around a straight line, over that line's slope.

        >>> BaseCurve(range(20), [20.0 - step for step in range(20)]).noise_at(10) < 1e-9
        True
        """
        scatter, slope = self._near(steps)
        if not scatter:
            return 0.0
        return scatter / -slope if slope < 0 else math.inf

    def scatter_at(self, steps: float) -> float:
        """The scatter of f around a straight line here."""
        return self._near(steps)[0]

    def error_at(self, steps: float, records: int = _NEAR) -> float:
        """By how many steps the mean of some values of f may mislead here, where the curve falls as around here.

        Unlike the line of a few records, a quarter of the curve on either side falls however noisy f is.
        """
        width = (self.steps[-1] - self.steps[0]) / 4
        begin, end = max(steps - width, self.steps[0]), min(steps + width, self.steps[-1])
        slope = (self.loss_at(begin) - self.loss_at(end)) / max(end - begin, 1e-12)
        scatter = self.scatter_at(steps)
        if not scatter:
            return 0.0
        return scatter / slope / math.sqrt(records) if slope > 0 else math.inf

    def _near(self, steps: float) -> tuple[float, float]:
        """The scatter of the records near a step around a straight line, and the slope of that line."""
        near = np.sort(np.argsort(np.abs(self.steps - steps), kind="stable")[:_NEAR])
        if len(near) < 4:
            return 0.0, 0.0
        places, losses = self.steps[near], self.losses[near]
        slope, height = np.polyfit(places, losses, 1)
        scatter = math.sqrt(float(((losses - slope * places - height) ** 2).sum()) / (len(near) - 2))
        return scatter, float(slope)

    def _slope(self, end: int) -> float:
        """How fast f falls at one end, over a tenth of the curve there."""
        width = max(len(self._places) // 10, 1)
        one, other = (0, width) if end == 0 else (-1 - width, -1)
        return float((self._levels[one] - self._levels[other]) / (self._places[other] - self._places[one]))
