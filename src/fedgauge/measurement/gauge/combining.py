"""Put probes together: the error of one, and the efficiency of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import isotonic_regression

from fedgauge.measurement.gauge.result import Efficiency, How, interpolated

STALLED = 0.1
"""An efficiency that is below this with certainty is not given as a number."""
SIGMAS = 1.645
"""An interval of 90%."""
_SCATTER, _DRIFTING = 0.10, 0.12
"""The relative error of one probe, and how much of log(1/E) is added: found on digits, and checked on other data."""
_ALIKE = 0.3
"""Errors of parts up to this hardly change how much each of them counts."""


def measured(local_steps: int, value: float, noise: float = 0.0, how: How = "probes") -> Efficiency:
    """An efficiency with its interval; ``noise`` is what the base run's own noise adds to its error."""
    error = SIGMAS * math.hypot(error_of(value), noise)
    return Efficiency(local_steps, value, value - error, value + error, how)


def error_of(value: float) -> float:
    """The error of one probe: it grows as the efficiency falls."""
    value = max(value, STALLED)
    return value * (_SCATTER + _DRIFTING * math.log(1 / min(value, 1.0)))


def part(places: Sequence[Efficiency]) -> Efficiency:
    """The efficiency in one part of the base run, as it is reported."""
    if all(each.high < STALLED for each in places):
        return Efficiency(places[0].local_steps, None, 0.0, STALLED)
    value = float(np.mean([each.value for each in places]))
    error = math.sqrt(sum(((each.high - each.low) / 2) ** 2 for each in places)) / len(places)
    if value <= 0:
        return Efficiency(places[0].local_steps, None, 0.0, max(value + error, STALLED))
    return Efficiency(places[0].local_steps, value, max(value - error, 0.0), value + error)


def combined(parts: Sequence[Efficiency]) -> Efficiency:
    """The efficiency of the whole way: what all parts achieved, over the steps that they took.

    The mean of the parts' slowdowns would be the slowdown of the whole if the parts were known exactly; but one part
    whose progress drowns in noise would make it infinite.
    """
    values = np.array([each.value for each in parts], dtype=float)
    errors = np.array([(each.high - each.low) / 2 / SIGMAS for each in parts])
    stalled = np.array([each.high < STALLED for each in parts])
    # Parts count alike, unless the progress of one drowns in noise.
    weights = 1 / (_ALIKE**2 + errors**2)
    weights /= weights.sum()
    value, steps = float(weights @ values), parts[0].local_steps
    # The errors of the parts, and what they share: the seed of the base run.
    error = math.hypot(float(np.sqrt(weights**2 @ errors**2)), 0.5 * error_of(value))
    if stalled.any() or value - SIGMAS * error <= 0:
        most = float(weights @ np.where(stalled, STALLED, np.maximum(values, 0.0))) + SIGMAS * error
        return Efficiency(steps, None, 0.0, min(most, 1.0))
    return Efficiency(steps, value, value - SIGMAS * error, value + SIGMAS * error)


def between(found: Sequence[Efficiency]) -> list[Efficiency]:
    """The efficiencies with those that noise hid put between fewer and more local steps, as efficiency only falls.

    >>> hidden = Efficiency(4, None, 0.0, 1.0)
    >>> between([Efficiency(1, 1.0, 1.0, 1.0), hidden, Efficiency(16, 0.6, 0.5, 0.7)])[1]
    Efficiency(local_steps=4, value=0.8, low=0.5, high=1.0, how='between')
    """
    known = [each for each in found if each.value is not None]
    result = []
    for each in found:
        more = next((other for other in known if other.local_steps > each.local_steps), None)
        fewer = next((other for other in reversed(known) if other.local_steps < each.local_steps), None)
        # A number that is clearly lower than with more local steps is no noise: drift stalled there.
        if each.value is None and more is not None and fewer is not None and each.high >= (more.value or 0.0):
            most = min(each.high, fewer.high)
            value = min(float(interpolated([fewer, more], each.local_steps)), most)
            each = Efficiency(each.local_steps, round(value, 12), more.low, max(most, more.low), "between")
        result.append(each)
    return result


def falling(found: Sequence[Efficiency]) -> list[Efficiency]:
    """The efficiencies with their noise smoothed: more local steps are never more efficient."""
    known = [index for index, each in enumerate(found) if each.value is not None]
    if not known:
        return list(found)
    smooth = isotonic_regression([found[index].value or 0.0 for index in known], increasing=False).x
    result = list(found)
    for index, value in zip(known, smooth, strict=True):
        each = found[index]
        assert each.value is not None
        shift = float(value) - each.value
        # What was pooled may be noise or not, so that the interval holds both the value as measured and as pooled.
        low, high = min(each.low, each.low + shift), max(each.high, each.high + shift)
        result[index] = replace(each, value=float(value), low=max(low, 0.0), high=high)
    return result
