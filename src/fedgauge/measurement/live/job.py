"""The run directory of a job that trains elsewhere: records as they come, and at the end its model and constants."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from torch import nn

from fedgauge.base.files import write_json
from fedgauge.federation.flat import flatten
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.runs.manifest import add_to_manifest
from fedgauge.simulation.runs.saving import complete_settings
from fedgauge.values import Round, Trace


class JobRun:
    """The run of a job, while it goes on."""

    def __init__(self, directory: str | Path, about: Mapping[str, Any], name: str) -> None:
        usual = {"federation": f"a job, measured by the {name}"}
        self._about = {**usual, **about}
        self._stack = ExitStack()
        settings = complete_settings(self._about, rounds=0)
        self._directory = self._stack.enter_context(RunDirectory.open(directory, settings))
        self._rounds: list[Round] = []
        self._seconds: list[float] = []

    @classmethod
    def open(cls, directory: str | Path | None, about: Mapping[str, Any], name: str) -> Self | None:
        """Begin the run, if a directory is named and this is rank 0 of torch.distributed, or its only process.

        Args:
            directory: a new or empty directory.
            about: what the settings of the run are to say.
            name: what measures.
        """
        complete_settings(about, rounds=0)  # so that every rank refuses what rank 0 would refuse
        if directory is None:
            return None
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0:
            return None
        return cls(directory, about, name)

    def append(self, record: Round, seconds: float) -> None:
        """Add the record of a round."""
        self._directory.append(record, seconds)
        self._rounds.append(record)
        self._seconds.append(seconds)

    def finish(self, model: nn.Module, rounds: int, reading: Reading, seconds: float) -> None:
        """Write the final model, how the run ended, and the constants.

        Args:
            model: the final model.
            rounds: the number of rounds of the job.
            reading: the constants.
            seconds: the time that measuring took.
        """
        settings = complete_settings(self._about, rounds)
        flat = flatten(model).detach().double().cpu().numpy()
        named = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
        trace = Trace(settings, "finished", rounds, tuple(self._rounds), flat, tuple(self._seconds))
        self._directory.restate(settings)
        self._directory.finish(trace, named)
        path = self._directory.path
        point = {"run": "this run", "round": rounds}
        found = Measurement(settings, point, (reading,), True, {"seconds": seconds})
        write_json(path / "measure.json", found.to_json())
        add_to_manifest(path, "measure.json")
        self.close()

    def close(self) -> None:
        """Let go of the directory; a run that has not been finished stays as far as it is."""
        self._stack.close()
