"""A run that has ended is read, without loading its data and without waiting for torch."""

from __future__ import annotations

from pathlib import Path

from fedgauge.errors import InputError
from fedgauge.experiment.config import Experiment
from fedgauge.values import Trace


def ended_run(experiment: Experiment, directory: Path, *, with_any_data: bool = False) -> Trace | None:
    """The run in a directory if it has ended and is a run of this experiment.

    An experiment that names no directory of data may be given the one of the run, with ``with_any_data``.

    None says that only :func:`~fedgauge.execute` can decide: data or code may have changed under the same name,
    or the run began from a model that is not part of the experiment.
    """
    name, own = experiment.data.name, f"{experiment.data.name} {experiment.model.name} {experiment.algorithm.name}"
    if name.endswith(".npz") or ":" in own or not (directory / "result.json").exists():
        return None
    from fedgauge.runs.finished import read_trace

    try:
        kept = Experiment.read(directory / "experiment.toml")
        if with_any_data and experiment.data.dir is None:
            experiment = experiment.changed({"data": kept.data.dir})
        if kept != experiment:
            return None
        trace = read_trace(directory)
        if name.endswith(".json"):
            from fedgauge.federation.quadratic import QuadraticFederation

            if QuadraticFederation.read(name).digest != trace.settings.get("federation"):
                return None
    except InputError:
        return None
    return None if "start" in trace.settings else trace
