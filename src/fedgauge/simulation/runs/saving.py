"""Save a trace that was not made by ``simulate`` as a run, so that everything that reads runs can read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedgauge.base.errors import InputError, nearest
from fedgauge.federation.participation import Participation
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.settings import Settings
from fedgauge.values import Trace


def complete_settings(settings: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """The settings of a run that was made elsewhere, with what is missing filled in.

    >>> complete_settings({"local_steps": 4}, rounds=10)["algorithm"]
    {'name': 'own loop'}
    """
    known = [each.name for each in fields(Settings)]
    for name in settings:
        if name not in known:
            raise InputError(f"settings cannot have {name!r}; {nearest(str(name), known)}")
    usual = Settings("unknown", {"name": "own loop"}, None, rounds, Participation(), 0, 1, None, 1).to_json()
    whole = {**usual, **settings}
    algorithm = whole["algorithm"]
    if not isinstance(algorithm, Mapping) or not isinstance(algorithm.get("name"), str):
        raise InputError(f"settings must have an object with a name as algorithm, not {algorithm!r}.")
    Settings.from_json(whole)
    return whole


def save_run(trace: Trace, directory: str | Path) -> Trace:
    """Save a trace as a run, which ``fedgauge runs show``, ``runs compare`` and ``report`` read like any other.

    Args:
        trace: the trace, of a training loop of your own, for example.
        directory: a new or empty directory.

    Returns:
        The trace as :func:`fedgauge.read_trace` reads it back: what its settings lack is filled in. A trace of
        :func:`fedgauge.simulate` lacks nothing, and is returned as it is.

    >>> import tempfile
    >>> import numpy as np
    >>> from fedgauge import Round, read_trace
    >>> records = (Round(0, loss=2.0, grad2=1.0), Round(10, loss=1.0, grad2=0.1))
    >>> trace = Trace({"algorithm": {"name": "mine"}, "local_steps": 8}, "finished", 10, records, np.zeros(3))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     saved = save_run(trace, f"{place}/run")
    ...     read_trace(f"{place}/run") == saved
    True
    """
    if not isinstance(trace, Trace):
        raise InputError(f"trace must be a Trace, not of type {type(trace).__name__}.")
    trace = replace(trace, settings=complete_settings(trace.settings, trace.stopped_at))
    with RunDirectory.open(directory, trace.settings) as run:
        for number, record in enumerate(trace.rounds):
            run.append(record, trace.seconds[number] if number < len(trace.seconds) else None)
        run.finish(trace)
    return trace
