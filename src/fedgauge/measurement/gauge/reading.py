"""The gauge as a reading of ``measure``: the efficiency of a run's local steps around one model."""

from __future__ import annotations

from fedgauge.base.errors import InputError
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.measurement.gauge.gauge import gauge
from fedgauge.measurement.gauge.result import GaugeOptions
from fedgauge.measurement.values import Reading
from fedgauge.simulation.setup import Setup
from fedgauge.values import Estimate

MEANING = "What share of the local steps counts around this model, measured directly."


def gauge_reading(setup: Setup, progress: Progress = silent) -> Reading:
    """Gauge around the set-up's first model, with its own number of local steps."""
    steps = setup.fixed_steps
    if not isinstance(steps, int):
        raise InputError("The gauge needs the same number of local steps for all workers; give local_steps as one.")
    found = gauge(setup, options=GaugeOptions(local_steps=(steps,), around=True), progress=progress)
    last, details = found.efficiency[-1], found.to_json()
    if last.value is None or steps == 1:
        note = f"Of {last.local_steps} local steps, {last.share} count; a number cannot be given."
        if steps == 1:
            note = "With one local step per round, every step counts by definition."
        return Reading("gauge", MEANING, details=details, notes=(note, *found.notes))
    cost = {"gradient steps": float(found.spent.gradient_steps + found.spent.base_gradient_steps)}
    method = f"probes with {steps} local steps around the model"
    E = Estimate("E", last.value, last.low, last.high, "sample", method, cost=cost)
    return Reading("gauge", MEANING, (E,), details, found.notes)
