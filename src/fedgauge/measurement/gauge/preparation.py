"""What is gauged: the set-up with its rate, the length of the run, its goal and the cost of a round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedgauge.algorithms import described, fedavg
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.cost import Cost
from fedgauge.algorithms.live.blocks import least_steps
from fedgauge.algorithms.paces import Chosen
from fedgauge.base.errors import InputError, non_negative
from fedgauge.base.types import Progress
from fedgauge.federation.protocols import Federation
from fedgauge.measurement.gauge.rate import fastest_rate
from fedgauge.measurement.gauge.result import AROUND, GaugeOptions, RateSearch
from fedgauge.measurement.gauge.runner import sample_of
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare, prepare_again, setup_of
from fedgauge.simulation.setup import Setup
from fedgauge.values.display import short


def read_goal(goal: float | str | None) -> float | None:
    """The value of f that a goal such as ``loss=0.3`` names.

    >>> read_goal("loss=0.3"), read_goal(0.3)
    (0.3, 0.3)
    """
    name, _, value = ("loss", "", goal) if not isinstance(goal, str) else (part.strip() for part in goal.partition("="))
    try:
        if name == "loss":
            number = None if value is None else float(cast(Any, value))
            if number is None or math.isfinite(number):
                return number
    except (TypeError, ValueError):
        pass
    raise InputError(f"The goal of the gauge must be a loss, as in loss=0.3, not {goal!r}.")


def read_cost(cost: Cost | str | float | None) -> Cost | None:
    """The cost of a round; a number counts local steps."""
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        return Cost.parse(f"{non_negative('cost', cost)!r}")
    return None if cost is None else Cost.of(cast(Cost | str, cost))


def priced(cost: Cost, setup: Setup) -> tuple[Cost, float, list[str]]:
    """The cost with nothing left open; a round without its local steps, counted in local steps; and how it was counted.

    Nothing is timed where the cost counts local steps already.
    """
    M = setup.participation.num_participants(setup.num_workers)
    if cost.counts_steps:
        return cost, cost.in_local_steps(setup.federation, M), []
    known = cost.completed(setup.federation)
    price, timed = known.in_local_steps(setup.federation, M), " on this machine" if cost.step is None else ""
    notes = [
        f"A round costs as much as {price:,.4g} local steps: {short(known.communication(M))} seconds besides its local"
        f" steps, one of which takes {short(known.step or 0.0)} seconds{timed}."
    ]
    if cost.overlap:
        notes.append(
            f"Communication runs beside {cost.overlap:.0%} of a round's local steps; what the delay does to training"
            " was not measured."
        )
    return known, price, notes


def steps_of(setup: Setup, options: GaugeOptions) -> int:
    """The steps of the run that is gauged."""
    if options.steps:
        return options.steps
    if options.around:
        return max(AROUND, int(least_steps((1, *(options.local_steps or (1,))), 1.0)))
    each = 1 if isinstance(setup.local_steps, Pace | Chosen) else round(float(np.mean(setup.local_steps)))
    return setup.rounds * each


def with_rate(
    source: Federation | Experiment | Setup,
    algorithm: Algorithm | None,
    setup: Mapping[str, Any],
    options: GaugeOptions,
    directory: str | Path | None,
    progress: Progress,
) -> tuple[Setup, RateSearch | None]:
    """The set-up, with the fastest rate where none was given, and how that was found."""
    if isinstance(source, Experiment) and source.lacks_rate:
        # Nobody has said how to scale the inputs, and a rate means little before that.
        user = source.data.name.endswith(".npz") or source.data.is_user_code
        source = source.changed({"scale": "auto"}) if user and source.data.scale is None else source
        first = prepare(source.changed({"gamma": 1.0}))
        experiment = source

        def setup_at(gamma: float) -> Setup:
            return prepare_again(experiment.changed({"gamma": gamma}), first)

    elif algorithm is None and not isinstance(source, Experiment | Setup):
        federation = source

        def setup_at(gamma: float) -> Setup:
            return setup_of(federation, fedavg(gamma), **setup)

    else:
        return setup_of(source, algorithm, **setup), None
    shared = setup_at(1.0)
    steps = steps_of(shared, options)
    sample = sample_of(shared, options.sample, steps)
    settings: dict[str, Any] = {
        "experiment": None,
        "federation": shared.federation.digest,
        "seed": shared.seed,
        "steps": steps,
    }
    settings |= {"algorithm": {**described(shared.algorithm), "gamma": None}, "sample": sample}
    store = PartStore(None if directory is None else Path(directory) / "rates", settings)
    done = 0

    def advanced(taken: int) -> None:
        nonlocal done
        done += taken
        progress("rates", done, None)

    try:
        found = fastest_rate(setup_at, steps, sample=sample, store=store, advanced=advanced)
    finally:
        store.close()
    return setup_at(found.gamma), found
