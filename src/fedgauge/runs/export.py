"""Exchange files with other tools: records as JSON and Parquet, models as safetensors and PyTorch files."""

from __future__ import annotations

import dataclasses
import io
import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgauge.errors import InputError
from fedgauge.federation.protocols import HasModule, Rows
from fedgauge.runs.manifest import verified
from fedgauge.runs.reader import FoundRun
from fedgauge.system.files import read_file, write_atomically, write_json
from fedgauge.values import Round

if TYPE_CHECKING:
    import torch

_ABOUT = b"fedgauge.runs.directory"
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
    """Read the runs that :func:`~fedgauge.runs.export.write_records` wrote."""
    path = Path(path)
    if path.suffix not in (".json", ".parquet"):
        raise InputError(f"Records are read from a file that ends in .json or .parquet, not from {str(path)!r}.")
    arrow = _pyarrow() if path.suffix == ".parquet" else None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a file of records.") from None
    try:
        if arrow is None:
            return [FoundRun.from_json(run) for run in json.loads(content)["runs"]]
        table = arrow.parquet.read_table(io.BytesIO(content))
        found = {
            about["path"]: {**about, "rounds": [], "seconds": []} for about in json.loads(table.schema.metadata[_ABOUT])
        }
        for row in table.to_pylist():
            run, seconds = found[row.pop("run")], row.pop("seconds")
            run["rounds"].append({name: value for name, value in row.items() if value is not None})
            run["seconds"] += [seconds] * (seconds is not None)
        return [FoundRun.from_json(run) for run in found.values()]
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
    found = next(
        (run / name for name in ("state_dict.safetensors", "model.safetensors") if (run / name).is_file()), None
    )
    if found is None:
        raise InputError(
            f"The run in {run} has no final model: model.safetensors is missing; resume the run to fix it."
        )
    content = verified(found, read_file(found))
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


def read_model(path: str | Path, federation: Rows) -> torch.Tensor:
    """Read a model for a federation, from a ``.safetensors`` file or from one that ``torch.save`` wrote.

    The file holds a flat vector named ``model``, or a ``state_dict`` of the federation's module. Only tensors are
    unpickled.
    """
    import torch

    from fedgauge.federation.first_model import check_model
    from fedgauge.federation.flat import fixed, trainable
    from fedgauge.federation.statistics import counters

    path = Path(path)
    tensors = _tensors(path)
    if set(tensors) == {"model"} and tensors["model"].ndim == 1:
        return check_model(federation, tensors["model"])
    if not isinstance(federation, HasModule):
        raise InputError(f"{path} must hold one flat model, named model, for a federation without a module.")
    module, not_trained = federation.module, dict(fixed(federation.module))
    statistics: Sequence[str] = getattr(federation, "statistics", ())
    model: dict[str, torch.Tensor] = {**trainable(module), **{name: not_trained.pop(name) for name in statistics}}
    for name, parameter in model.items():
        if name not in tensors:
            raise InputError(f"{path} has no parameter {name}, which the model has; give a state_dict of that model.")
        if tensors[name].shape != parameter.shape:
            raise InputError(
                f"{path}: {name} has the shape {tuple(tensors[name].shape)}, but the model's has"
                f" {tuple(parameter.shape)}; give a state_dict of that model."
            )
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)} | set(module.state_dict())
    if extra := [name for name in tensors if name not in known]:
        raise InputError(f"{path} has {extra[0]}, which the model does not have; give a state_dict of that model.")
    if statistics:
        not_trained = {name: tensor for name, tensor in not_trained.items() if name not in counters(module)}
    for name, tensor in not_trained.items():
        # A file of the trained parameters alone, such as adapters, leaves the others as they are.
        if name in tensors and not torch.equal(tensors[name].to(tensor), tensor):
            raise InputError(
                f"{path}: {name} is not trained, and is not the same there as in the model; load it into the module"
                " before you make the federation."
            )
    return check_model(federation, torch.cat([tensors[name].reshape(-1) for name in model]))


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    import torch
    from safetensors.torch import load

    try:
        content = verified(path, path.read_bytes())
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name the file of a model.") from None
    try:
        if path.suffix == ".safetensors":
            return load(content)
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # a damaged pickle can raise anything
        raise InputError(f"{path} holds no tensors that can be read; name a .safetensors or .pt file.") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InputError(f"{path} holds no state_dict; save module.state_dict().")
    return found
