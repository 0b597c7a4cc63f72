"""How many of each worker's examples the gauge looks at f with.

A gauge looks at f about 140 times. Each look takes a forward pass over the data, and on large data all of them would
take many times as long as the steps that are gauged. The base run and the probes are compared by the same f, so that a
fixed part of every worker's examples serves as well.
"""

from __future__ import annotations

import math

import numpy as np

from fedgauge.federation.protocols import HasEffort
from fedgauge.measurement.gauge.options import GaugeOptions
from fedgauge.measurement.gauge.probes import RECORDS
from fedgauge.simulation.records import SHARE
from fedgauge.simulation.setup import Setup

LOOKS = RECORDS + 44
"""About how often f is looked at: along the base run, and before and after every probe."""
CHEAP = 10**12
"""Products of two numbers in all looks together up to which they are exact: about a minute."""
LEAST = 5000
"""Examples of all workers together that are looked at in any case: with a tenth of that, progress drowned in chance."""


def sample_of_looks(setup: Setup, options: GaugeOptions, steps: int) -> int | None:
    """The number of examples of each worker that f is looked at with; None for all of them.

    By default, looks take about a quarter of the work, where they take long at all, or more to see enough examples.

    Args:
        setup: what is gauged.
        options: the sample that the user wants, if any, and the budget.
        steps: of the base run.
    """
    federation = setup.federation
    if not isinstance(federation, HasEffort):
        return None
    sizes = federation.sizes(np.arange(federation.num_workers))
    sample = options.sample
    if sample is None:
        if LOOKS * int(sizes.sum()) * federation.effort() <= CHEAP:
            return None
        # A forward pass takes a third of what a gradient takes.
        M = setup.participation.num_participants(federation.num_workers)
        work = (steps + options.budget_of(steps)) * M * federation.batch_size
        sample = math.ceil(max(LEAST, 3 * work * SHARE / (1 - SHARE) / LOOKS) / federation.num_workers)
    return sample if sample < sizes.max() else None
