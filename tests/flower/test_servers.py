"""A real SuperLink and real SuperNodes, each a process of its own, on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flower.fleet import Fleet, Zygote, write_app

from fedgauge import Experiment, execute, read_trace

TASK = Path(__file__).with_name("task.py")
CLIENT = """
import torch
from fedgauge.flower import client_app
from fedgauge.flower.records import ARRAYS, content, tensors_of
from measured.task import read

WRONG = {2: "not finite", 3: "shape", 4: "stale"}


def misbehave(message, context, call_next):
    reply = call_next(message, context)
    if not context.run_config["own.misbehave"] or context.node_config["partition-id"] != 1:
        return reply
    asked = message.content.config_records["fedgauge.said"]
    said = reply.content.config_records["fedgauge.said"]
    name, tensors = "local_phase.0.message.change", tensors_of(reply.content)
    wrong = WRONG.get(asked.get("round"))
    if wrong in ("not finite", "shape"):
        tensors[name] = torch.full((7 if wrong == "shape" else 1210,), torch.nan)
        reply.content[ARRAYS] = content(tensors)[ARRAYS]
    elif wrong == "stale":
        said["round"] = 1
    return reply


app = client_app(lambda context: read(context.node_config["shard"]), mods=[misbehave])
"""
SERVER = """
from fedgauge.flower import server_app
from measured.task import read

app = server_app(lambda context: read(context.run_config["own.test"], test=True))
"""
GAUGED_SERVER = """
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fedgauge.flower import Gauge
from measured.task import read

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    first = ArrayRecord(read(config["data-file"]).federation()._made(3).state_dict())
    strategy = Gauge(FedAvg(fraction_evaluate=0.0, min_available_nodes=3, min_train_nodes=3), out=config["out"])
    strategy.start(grid, first, num_rounds=config["rounds"], timeout=60)
"""
GAUGED_CLIENT = (
    (TASK.with_name("measured_app.py").read_text()).replace("tests.flower.task", "measured.task")
    + """

from pathlib import Path as _Path

app = None


def _app():
    return own_app(_Path("SHARDS"))


app = _app()
"""
)


@pytest.fixture(scope="module")
def fleet(zygote: Zygote, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(zygote, tmp_path_factory.mktemp("fleet")) as fleet:
        for worker in range(3):
            fleet.node(worker, shard=str(shards / f"{worker}.npz"))
        yield fleet


@pytest.fixture(scope="module")
def app(experiment: Experiment, shards: Path, fleet: Fleet) -> Path:
    config = {"source": "digits", "workers": 3, "gamma": 0.1, "eta": 1.0, "algorithm": "fedavg", "local-steps": 5}
    config |= {"rounds": 20, "seed": 3, "timeout": 30.0, "wait": 60.0, "out": "", "own.misbehave": False}
    config |= {"scheme": "dirichlet", "alpha": 0.5, "model-option.width": 16, "own.test": str(shards / "test.npz")}
    place = write_app(fleet.place / "app", CLIENT, SERVER, config)
    (place / "measured" / "task.py").write_text(TASK.read_text())
    return place


def test_twenty_rounds_are_those_of_the_local_engine(
    experiment: Experiment, fleet: Fleet, app: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    fleet.run(app, {"out": str(out)})
    fleet.finished(out, 300)
    here, there = execute(experiment.changed({"processes": 1})), read_trace(out)
    assert len(there.rounds) == 21
    # Chunks of several workers add up in another order; the bound is the issue's.
    assert np.allclose(there.model, here.model, rtol=1e-5, atol=1e-7)
    for ours, theirs in zip(here.rounds, there.rounds, strict=True):
        for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_h_ratio", "L_g_ratio", "L_tilde_ratio"):
            expected = getattr(ours, name)
            assert getattr(theirs, name) == (expected and pytest.approx(expected, rel=1e-5)), (ours.round, name)
    assert there.rounds == execute(experiment.changed({"processes": 1, "chunk": 1})).rounds
    assert not (out / "events.jsonl").exists()


def test_a_strategy_of_flower_is_measured(fleet: Fleet, app: Path, shards: Path, experiment: Experiment) -> None:
    client = GAUGED_CLIENT.replace("SHARDS", str(shards))
    place = write_app(fleet.place / "gauged", client, GAUGED_SERVER, {"rounds": 2, "out": "", "data-file": ""})
    (place / "measured" / "task.py").write_text(TASK.read_text())
    out = fleet.place / "gauged-run"
    fleet.run(place, {"out": str(out), "data-file": str(shards / "test.npz")})
    fleet.finished(out, 120)
    here = execute(experiment.changed({"rounds": 2, "weights": "sizes", "processes": 1}))
    for ours, theirs in zip(here.rounds, read_trace(out).rounds, strict=True):
        for name in ("loss", "spread", "zeta2", "L_h_ratio", "L_g_ratio", "L_tilde_ratio"):
            expected = getattr(ours, name)
            assert getattr(theirs, name) == (expected and pytest.approx(expected, rel=1e-5)), (ours.round, name)


def test_failures_are_named_and_the_run_ends(fleet: Fleet, app: Path, tmp_path: Path) -> None:
    """Worker 1 sends NaN, a wrong shape and a stale round; worker 2's node is killed in the middle."""
    out = tmp_path / "run"
    fleet.run(app, {"out": str(out), "rounds": 7, "timeout": 15.0, "own.misbehave": True})
    records, end = out / "rounds.jsonl", time.monotonic() + 120
    while not records.exists() or len(records.read_text().splitlines()) < 5:
        assert time.monotonic() < end, fleet.log("link-exec")[-2000:]
        time.sleep(0.05)
    fleet.kill_node(2)
    fleet.finished(out, 120)
    trace = read_trace(out)
    assert trace.status == "finished"
    assert trace.stopped_at == 7
    assert np.isfinite(trace.model).all()
    assert trace.rounds[-1].loss < trace.rounds[0].loss
    events: list[dict[str, Any]] = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    refused = [(event["round"], event["worker"]) for event in events if event["what"] == "refused"]
    assert refused == [(2, 1), (3, 1), (4, 1)]
    (lost,) = [event for event in events if event["what"] == "lost"]
    assert lost["worker"] == 2
    assert "no answer within 15 s" in lost["why"]
