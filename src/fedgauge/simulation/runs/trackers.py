"""Observers for trackers: TensorBoard, Weights & Biases, MLflow.

Each begins a run of the tracker when it is made, logs the values of every record by its round, and ends the run when it
is closed; all are context managers. Where the run is kept is set as the tracker's own users do it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Self

from fedgauge.base.errors import InputError
from fedgauge.values import Observer, Round

QUANTITIES = {"loss": "loss", "accuracy": "test accuracy", "grad2": "squared gradient norm", "spread": "spread"}
"""The entries of a record that are shown, and their names for readers."""
_AT_ONCE = 100
"""So many parameters MLflow takes in one call."""


def values_of(record: Round) -> dict[str, float]:
    """What of a record is logged, by name."""
    values = {name: getattr(record, key) for key, name in QUANTITIES.items()}
    return {name: value for name, value in {**values, "L_h measured": record.L_h_ratio}.items() if value is not None}


def _missing(title: str, package: str, extra: str) -> InputError:
    return InputError(
        f"{title} needs the package {package}, which is not installed; run: pip install 'fedgauge[{extra}]'."
    )


class TensorBoard:
    """An observer that writes TensorBoard event files."""

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise _missing("TensorBoard", "tensorboard", "tensorboard") from None
        self._writer: Any = SummaryWriter(str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, done: int, record: Round | None) -> None:
        """Write the values of a record."""
        if record is not None:
            for name, value in values_of(record).items():
                self._writer.add_scalar(name, value, record.round)


class WandbObserver:
    """An observer that logs a run with Weights & Biases.

    Without a connection, set ``WANDB_MODE=offline``; ``wandb sync`` uploads the run later.

    Args:
        about: what was run, for the run's configuration: the sections of an experiment, or any mapping.
        options: arguments of ``wandb.init``, such as ``name`` or ``dir``; the project is "fedgauge" if neither they nor
            ``WANDB_PROJECT`` name one.
    """

    def __init__(self, about: Mapping[str, Any] | None = None, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("Weights & Biases", "wandb", "wandb") from None
        project = os.environ.get("WANDB_PROJECT", "fedgauge")
        self._run: Any = wandb.init(**{"project": project, "config": dict(about or {}), **options})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._run.finish(exit_code=0 if failure is None else 1)

    def __call__(self, done: int, record: Round | None) -> None:
        """Log the values of a record."""
        if record is not None:
            self._run.log(values_of(record), step=record.round)


class MlflowObserver:
    """An observer that logs a run with MLflow.

    Args:
        about: what was run, for the run's parameters, such as ``algorithm.gamma``: the sections of an experiment, or
            any mapping.
        experiment: the MLflow experiment, which is made if it is not there. If it is left out, it is that of
            ``MLFLOW_EXPERIMENT_NAME``, or "fedgauge".
        name: the name of the run; MLflow's own choice if it is left out.
        uri: where runs are tracked, if not where ``MLFLOW_TRACKING_URI`` says.
    """

    def __init__(
        self,
        about: Mapping[str, Any] | None = None,
        *,
        experiment: str | None = None,
        name: str | None = None,
        uri: str | None = None,
    ) -> None:
        try:
            from mlflow.entities import Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise _missing("MLflow", "mlflow-skinny", "mlflow") from None
        self._client: Any = MlflowClient(tracking_uri=uri)
        experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedgauge")
        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known else self._client.create_experiment(experiment)
        self._run: str = self._client.create_run(place, run_name=name).info.run_id
        parameters = _flat(about or {})
        while some := dict(islice(parameters, _AT_ONCE)):
            self._client.log_batch(self._run, params=[Param(*each) for each in some.items()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if failure is None else "FAILED")

    def __call__(self, done: int, record: Round | None) -> None:
        """Log the values of a record."""
        if record is None:
            return
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(*each, now, record.round) for each in values_of(record).items()]
        self._client.log_batch(self._run, metrics=metrics)


def _flat(about: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
    """Entries of nested mappings, with their names joined by dots."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", str(value)


TRACKERS: Mapping[str, Callable[[Mapping[str, Any]], Observer]] = {"wandb": WandbObserver, "mlflow": MlflowObserver}
"""Those that ``--observer`` knows by name."""
