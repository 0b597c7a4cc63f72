"""What a live gauge reads from its records: efficiencies with intervals, in the whole run and in parts of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from fedgauge.algorithms.live.fit import MODEL_ERROR, Fit, fit, model_error
from fedgauge.algorithms.live.records import Records
from fedgauge.base.types import Floats
from fedgauge.values.answer import StepEfficiency

FEW = 12
"""Records that a fit needs at least."""
PHASES = ("early", "middle", "late")
"""The parts of a run that are compared."""
_SIGMAS = 1.645
_WIDEST = 20.0
"""The logarithm of an efficiency is not shown beyond this, in either direction."""

Entries = tuple[StepEfficiency, ...]


def entries_of(found: Fit, candidates: Sequence[int], observed: float) -> Entries:
    """The efficiencies over a whole run, of which a part was observed, with intervals of 90%."""
    return _with_intervals(-found.log_slowdowns, candidates, model_error(observed))


def _with_intervals(logs: Floats, candidates: Sequence[int], model: float) -> Entries:
    """Efficiencies from their logarithms, the best in the first row and draws in the others."""
    entries = []
    for steps, best, draws in zip(candidates, logs[0], logs[1:].T, strict=False):
        error = _SIGMAS * math.hypot(float(draws.std()), model)
        value, low, high = (math.exp(min(max(each, -_WIDEST), _WIDEST)) for each in (best, best - error, best + error))
        entries.append(StepEfficiency(steps, value, low, high))
    return tuple(entries)


def phases_of(records: Records, candidates: Sequence[int], steps: int) -> tuple[tuple[str, Entries], ...]:
    """The efficiency in each third of a run in which every candidate was tried, if there are two such thirds."""
    rows, length = [], steps / len(PHASES)
    for number, name in enumerate(PHASES):
        part = records.part(number * length, (number + 1) * length)
        if len(part.losses) < FEW or len(set(part.under.tolist())) <= len(candidates):
            continue
        with suppress(ArithmeticError, ValueError), np.errstate(all="ignore"):
            rows.append((name, _with_intervals(fit(part).log_efficiencies, candidates, MODEL_ERROR)))
    return tuple(rows) if len(rows) > 1 else ()


def changed(phases: Sequence[tuple[str, Entries]]) -> bool:
    """Whether the efficiency of the newest part is certainly another one than that of an earlier part."""
    return any(
        new.low > old.high or new.high < old.low
        for _, entries in phases[:-1]
        for old, new in zip(entries, phases[-1][1], strict=True)
    )


def noise_notes(found: Fit, entries: Sequence[StepEfficiency]) -> list[str]:
    """What would help where the losses are too noisy for a clear answer."""
    widest = max(math.log(each.high / each.low) for each in entries)
    statistical = float(found.log_slowdowns[1:].std(axis=0).max())
    if widest <= 1.0 or statistical <= 2 * MODEL_ERROR:
        return []
    times = math.ceil((statistical / MODEL_ERROR) ** 2 / 4) * 4
    return [
        f"The losses are too noisy for a clear answer: evaluate on {times} times as many examples, or, if those are"
        " all, give the gauge a longer run."
    ]
