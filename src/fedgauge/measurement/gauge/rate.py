"""The rate at which synchronous training is fastest, for those who name none.

Training with one local step per round is tried for a part of the run at powers of two, up and down from a first guess,
until f falls less far. The first guess is the inverse of the curvature of f at the first model, where steps are plain
gradient steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.reference import reference_for
from fedgauge.measurement.gauge.result import RateSearch
from fedgauge.measurement.gauge.runner import Runner, Track
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.simulation.setup import Setup

PART, LEAST = 16, 64
"""A rate is tried for one in so many steps of the run, and for at least so many steps."""
_GUESS = 2.0**-8
"""The first rate where steps are those of an adaptive optimiser, which curvature does not scale."""
_ALIKE = 0.02
"""Of two rates with which f falls equally far but for this part, the smaller is taken: it leaves more room to drift."""
_MOST = 8
"""Rates that are tried at most."""
_RECORDS, _LAST = 16, 4
"""Records of a trial, and those at its end whose mean counts."""
_ITERATIONS = 4


def fastest_rate(
    setup_at: Callable[[float], Setup],
    steps: int,
    *,
    sample: int | None = None,
    store: PartStore | None = None,
    advanced: Callable[[int], None] = lambda steps: None,
) -> RateSearch:
    """Search for the rate at which synchronous training is fastest.

    Args:
        setup_at: the set-up with a rate.
        steps: of the whole run; a rate is tried for a sixteenth of them, or 64.
        sample: how many examples of each worker f is evaluated on.
        store: where finished trials are saved, so that an interrupted search is resumed.
        advanced: called with the steps that were taken.

    >>> from fedgauge import fedavg, random_quadratics
    >>> same = random_quadratics(4, 3, hessian_spread=0.0)
    >>> fastest = fastest_rate(lambda gamma: Setup(same, fedavg(gamma)), steps=512)
    >>> fastest.gamma in [gamma for gamma, _ in fastest.tried], fastest.steps
    (True, 64)
    """
    length = min(max(steps // PART, LEAST), steps)
    store = store or PartStore(None, {})
    tracks: dict[float, Track] = {}

    def end(gamma: float) -> float:
        """How far f is above its least value at the end of a trial; infinite where it rose."""
        if gamma not in tracks:
            setup = setup_at(gamma)
            reference, _ = reference_for(setup.algorithm, None)
            with Runner(replace(setup, algorithm=reference), advanced, sample) as runner:
                tracks[gamma] = runner.follow(f"rate-{gamma!r}", [1] * length, max(length // _RECORDS, 1), kept=store)
            if not tracks[gamma].complete:
                raise KeyboardInterrupt
        losses = tracks[gamma].losses
        last = float(np.mean(losses[-_LAST:]))
        return last - floor if math.isfinite(last) and last < losses[0] else math.inf

    first = setup_at(1.0)
    floor, best = first.floor, first_guess(first, sample)
    while not math.isfinite(end(best)):
        if len(tracks) >= _MOST:
            raise InputError(
                f"f falls at no rate from {min(tracks):.3g} to {max(tracks):.3g} within {length} steps; give a gamma,"
                " or more rounds."
            )
        best /= 2
    for factor in (2.0, 0.5):
        before = best
        while len(tracks) < _MOST and _is_faster(end, best * factor, best):
            best *= factor
        if best != before:
            break
    numbers = [(each.gradient_steps, each.rounds, each.passes) for each in tracks.values()]
    spent = (sum(column) for column in zip(*numbers, strict=True))
    return RateSearch(best, tuple((gamma, end(gamma)) for gamma in sorted(tracks)), length, *spent)


def _is_faster(end: Callable[[float], float], gamma: float, than: float) -> bool:
    """Whether f falls further with a rate; a smaller one needs to be hardly slower."""
    margin = 1 - _ALIKE if gamma > than else 1 + _ALIKE / 2
    return end(gamma) < end(than) * margin if end(than) > 0 else end(gamma) < end(than)


def first_guess(setup: Setup, sample: int | None = None) -> float:
    """A power of two near the inverse of L_g at the first model, as a few power iterations show it.

    >>> from fedgauge import QuadraticFederation, fedavg
    >>> first_guess(Setup(QuadraticFederation([[[3.0]]], [[1.0]]), fedavg(1.0)))
    0.25
    """
    if setup.algorithm.parameters.get("optimiser") == "adamw":
        return _GUESS
    with Runner(setup, sample=sample) as runner:
        model = setup.first_model
        gradient = runner.gradient(model)
        direction, steepest = gradient.double(), 0.0
        length = torch.finfo(model.dtype).eps ** 0.5 * max(float(model.double().norm()), 1.0)
        for _ in range(_ITERATIONS):
            norm = float(direction.norm())
            if not norm or not math.isfinite(norm):
                break
            moved = (model.double() + length / norm * direction).to(model.dtype)
            direction = (runner.gradient(moved) - gradient).double() / length
            steepest = float(direction.norm())
    return 2.0 ** math.floor(-math.log2(steepest)) if math.isfinite(steepest) and steepest > 0 else _GUESS
