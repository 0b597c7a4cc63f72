"""Exchange files with other tools: records as JSON and Parquet, models as safetensors and PyTorch files."""

from __future__ import annotations

import dataclasses
import io
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgauge.base.errors import InputError
from fedgauge.base.files import read_file, read_input, write_atomically, write_json
from fedgauge.simulation.runs.manifest import verified
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.values import Round

_ABOUT = b"fedgauge.simulation.runs.directory"
"""The entry of a Parquet file's metadata that describes the runs in its rows."""


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet files need the package pyarrow, which is not installed; run: pip install 'fedgauge[parquet]'."
        ) from None
    return pyarrow


# -- records -----------------------------------------------------------------------------------------------------


def _about(run: FoundRun) -> dict[str, Any]:
    """A run without its records."""
    about = run.to_json()
    return {key: value for key, value in about.items() if key not in ("rounds", "seconds")}


def write_records(path: str | Path, runs: Sequence[FoundRun]) -> int:
    """Write the records of runs to a ``.json`` or ``.parquet`` file and return the number of records.

    :func:`read_records` reads the same runs back from either. A Parquet file has one row per record, and a column for
    each entry of a record, for ``run`` and for ``seconds``. The settings of the runs are in its metadata.
    """
    path = Path(path)
    if path.suffix == ".json":
        write_json(path, {"runs": [run.to_json() for run in runs]})
    elif path.suffix == ".parquet":
        write_atomically(path, _as_parquet(runs))
    else:
        raise InputError(f"Records are written to a file that ends in .json or .parquet, not to {str(path)!r}.")
    return sum(len(run.rounds) for run in runs)


def _as_parquet(runs: Sequence[FoundRun]) -> bytes:
    arrow = _pyarrow()
    plain = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    fields = [("run", arrow.string())]
    for name, hint in typing.get_type_hints(Round).items():
        kind = next(kind for kind in (*typing.get_args(hint), hint) if kind is not type(None))
        items = typing.get_args(kind)
        fields.append((name, arrow.list_(plain[items[0]]) if items else plain[kind]))
    rows = []
    for run in runs:
        # A time may be missing if the run was interrupted while it was being written.
        seconds = [*run.seconds, *[None] * (len(run.rounds) - len(run.seconds))]
        for record, second in zip(run.rounds, seconds, strict=True):
            rows.append({"run": run.path, **dataclasses.asdict(record), "seconds": second})
    notes = {_ABOUT: json.dumps([_about(run) for run in runs]).encode()}
    schema = arrow.schema([*fields, ("seconds", arrow.float64())], metadata=notes)
    file = io.BytesIO()
    arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), file)
    return file.getvalue()


def read_records(path: str | Path) -> list[FoundRun]:
    """Read the runs that :func:`~fedgauge.simulation.runs.export.write_records` wrote."""
    path = Path(path)
    if path.suffix not in (".json", ".parquet"):
        raise InputError(f"Records are read from a file that ends in .json or .parquet, not from {str(path)!r}.")
    arrow = _pyarrow() if path.suffix == ".parquet" else None
    content = read_input(path, "a file of records")
    try:
        if arrow is None:
            return [FoundRun.from_json(run) for run in json.loads(content)["runs"]]
        table = arrow.parquet.read_table(io.BytesIO(content))
        readers = {
            about["path"]: {**about, "rounds": [], "seconds": []} for about in json.loads(table.schema.metadata[_ABOUT])
        }
        for row in table.to_pylist():
            run, seconds = readers[row.pop("run")], row.pop("seconds")
            run["rounds"].append({name: value for name, value in row.items() if value is not None})
            run["seconds"] += [seconds] * (seconds is not None)
        return [FoundRun.from_json(run) for run in readers.values()]
    except (ValueError, KeyError, TypeError, OSError, AttributeError):
        raise InputError(f"{path} holds no fedgauge records; name a file that 'fedgauge runs export' wrote.") from None


# -- models ------------------------------------------------------------------------------------------------------


def write_model(path: str | Path, run: str | Path) -> None:
    """Write a run's final model to a ``.safetensors`` file, or to a ``.pt`` file for ``torch.load``.

    The file holds a ``state_dict`` if the model's parameters have names, and else a flat vector named ``model``.
    """
    path, run = Path(path), Path(run)
    # A run that is being repaired may still hold the damaged model.
    if not (run / "result.json").exists():
        raise InputError(f"The run in {run} has no final model: it has not ended; resume it.")
    model = next(
        (run / name for name in ("state_dict.safetensors", "model.safetensors") if (run / name).is_file()), None
    )
    if model is None:
        raise InputError(
            f"The run in {run} has no final model: model.safetensors is missing; resume the run to fix it."
        )
    content = verified(model, read_file(model))
    if path.suffix == ".safetensors":
        write_atomically(path, content)
    elif path.suffix == ".pt":
        import torch
        from safetensors.torch import load

        file = io.BytesIO()
        torch.save(load(content), file)
        write_atomically(path, file.getvalue())
    else:
        raise InputError(f"A model is written to a file that ends in .safetensors or .pt, not to {str(path)!r}.")
