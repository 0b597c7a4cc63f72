"""Runs in the real trackers, which keep them in a directory here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedgauge as fg
from fedgauge.cli import main
from fedgauge.simulation.runs.observers import make_observer
from fedgauge.simulation.runs.reader import FoundRun, read_run

# Packages of others warn of their own accord, each release of something else.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FoundRun:
    """A saved run of three rounds, in the directory in which the test runs."""
    monkeypatch.chdir(tmp_path)
    fg.random_quadratics(3, 2).write("fed.json")
    assert main(["simulate", "fed.json", "--gamma", "0.1", "--rounds", "3", "--out", "run"]) == 0
    return read_run("run")


def entries(path: Path) -> Iterator[bytes]:
    """The entries of a file of Weights & Biases: a header of 7 bytes, and then a log in the format of LevelDB.

    In each block of 32 KiB are pieces, each with a checksum, its length and its kind: a whole entry (1), or its first,
    middle or last part (2, 3, 4).
    """
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    place, parts = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def logged_by_wandb(place: Path) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """The history, the configuration and the exit code in the file of an offline run."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its own process writes the file
    (path,) = place.glob("wandb/offline-run-*/run-*.wandb")
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    ended = -1
    for entry in entries(path):
        record = Record()
        record.ParseFromString(entry)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = record.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
        elif kind == "run":
            config |= {update.key: json.loads(update.value_json) for update in record.run.config.update}
        elif kind == "exit":
            ended = record.exit.exit_code
    return rows, {name: value for name, value in config.items() if name != "_wandb"}, ended


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.mark.usefixtures("offline")
def test_wandb_has_every_record_and_the_settings(run: FoundRun, tmp_path: Path) -> None:
    assert main(["runs", "export", "run", "--observer", "wandb"]) == 0
    rows, config, ended = logged_by_wandb(tmp_path)
    assert [row["_step"] for row in rows] == [0, 1, 2, 3]
    assert [row["loss"] for row in rows] == pytest.approx([record.loss for record in run.rounds], rel=1e-12)
    assert config["algorithm"]["gamma"] == 0.1
    assert ended == 0


@pytest.mark.usefixtures("offline")
def test_wandb_knows_that_a_run_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fg.WandbObserver({"gamma": 0.1}, dir=str(tmp_path), name="first"):
        raise ZeroDivisionError
    rows, config, ended = logged_by_wandb(tmp_path)
    assert (rows, config, ended) == ([], {"gamma": 0.1}, 1)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store of files, which newer versions have to be allowed."""
    uri = (tmp_path / "tracked").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def test_mlflow_has_every_record_and_the_settings(run: FoundRun, files: str) -> None:
    from mlflow.tracking import MlflowClient

    again = ["simulate", "fed.json", "--gamma", "0.1", "--rounds", "3"]
    assert main([*again, "--observer", "mlflow", "--out", "again"]) == 0
    client = MlflowClient()
    experiment = client.get_experiment_by_name("fedgauge")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    losses = client.get_metric_history(found.info.run_id, "loss")
    assert [each.step for each in losses] == [0, 1, 2, 3]
    assert [each.value for each in losses] == [record.loss for record in run.rounds]
    assert float(found.data.params["algorithm.gamma"]) == 0.1
    assert found.info.status == "FINISHED"


def test_mlflow_takes_many_parameters_and_knows_that_a_run_failed(files: str) -> None:
    from mlflow.tracking import MlflowClient

    about = {"many": {str(number): number for number in range(250)}}
    observer = fg.MlflowObserver(about, experiment="mine", name="first", uri=files)
    with pytest.raises(ZeroDivisionError), observer:
        raise ZeroDivisionError
    client = MlflowClient()
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status, len(found.data.params)) == ("first", "FAILED", 250)


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("wandb", "wandb", "wandb"), ("mlflow", "mlflow-skinny", "mlflow")]
)
def test_a_tracker_that_is_not_installed_is_a_sentence(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(fg.InputError, match=rf"needs the package {package}.*pip install 'fedgauge\[{extra}\]'"):
        make_observer(name, {})


def test_an_unknown_observer_is_refused_with_what_there_is() -> None:
    with pytest.raises(fg.InputError, match="wandb, mlflow or module:factory"):
        make_observer("tensorboard", {})
