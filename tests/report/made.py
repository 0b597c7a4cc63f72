"""Runs and measurements that are written, not run: as large, as broken and as hostile as a test needs them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.measurement.parts import Decomposition, Parts
from fedgauge.measurement.values import Measurement, Reading
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.runs.manifest import digest, write_manifest
from fedgauge.values import Estimate

FEDERATION = "0123"


def experiment(workers: int = 10, **changes: Any) -> Experiment:
    given = {"source": "digits", "scheme": "dirichlet", "alpha": 0.3, "gamma": 0.001, "local_steps": 5}
    return Experiment.of({**given, "workers": workers, **changes})


def write_run(path: Path, rounds: int = 20, workers: int = 10, made: Experiment | None = None) -> Path:
    """A finished run of FedAvg; its losses fall, and everything in it has some noise."""
    made = made or experiment(workers, rounds=rounds)
    path.mkdir(parents=True)
    rng = np.random.default_rng(0)
    settings = {
        "federation": FEDERATION,
        "algorithm": {"name": "fedavg", "gamma": 0.001, "eta": 1.0},
        "local_steps": 5,
        "rounds": rounds,
        "participation": {"sampling": "full", "participants": None, "weights": None},
        "seed": 0,
        "record_every": 1,
        "target_loss": None,
        "chunk": 5,
    }
    records, timing = [], []
    for number in range(rounds + 1):
        noise = np.exp(rng.normal(0, 0.2, 6)).tolist()
        records.append(
            {
                "round": number,
                "loss": 2.3 * math.exp(-3 * number / rounds) * noise[0],
                "grad2": 0.3 * math.exp(-5 * number / rounds) * noise[1],
                "spread": 0.01 * noise[2],
                "deviation2": 1e-5 * noise[3],
                "accuracy": 1 - 0.9 * math.exp(-5 * number / rounds),
                "zeta2": 0.3 * noise[4],
                "L_tilde_ratio": 4 * noise[4],
                "L_g_ratio": 1.4 * noise[5],
            }
        )
        timing.append({"seconds": 0.1 * number})
    environment = {"command": "fedgauge simulate digits", "versions": {"fedgauge": "0.1.0"}}
    (path / "settings.json").write_text(json.dumps(settings))
    (path / "experiment.toml").write_text(made.to_toml())
    (path / "environment.json").write_text(json.dumps(environment))
    (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (path / "timing.jsonl").write_text("".join(json.dumps(record) + "\n" for record in timing))
    (path / "result.json").write_text(json.dumps({"status": "finished", "stopped_at": rounds}))
    names = ("settings.json", "experiment.toml", "environment.json", "rounds.jsonl", "timing.jsonl", "result.json")
    write_manifest(path, {name: digest((path / name).read_bytes()) for name in names})
    return path


def measurement(
    workers: int = 10, blocks: tuple[str, ...] = ("1.weight", "1.bias"), said: str = "At it."
) -> Measurement:
    """Constants of two kinds, and where they come from; worker 1 stands out."""
    rng = np.random.default_rng(1)
    squares = rng.gamma(2.0, 1.0, (workers, len(blocks)))
    squares[1] *= 200
    parts = tuple(Parts(name, blocks, np.full(workers, 1 / workers), squares) for name in ("zeta_rms", "L_h"))
    values = {"L_h": 0.31, "L_g": 1.57, "L_tilde": 4.2, "zeta": 1.1, "sigma": 0.53}
    seen = tuple(Estimate(name, v, 0.9 * v, 1.1 * v, "lower", f"{said} {name}") for name, v in values.items())
    proved = (Estimate("L_g", 3.25, 3.25, 3.25, "upper", "proved"),)
    readings = (
        Reading("trajectory", said, seen),
        Reading("certified", "Proved.", proved),
        Reading("parts", said, details=Decomposition(parts, "Lanczos").to_json()),
    )
    settings = {"experiment": experiment(workers).to_json(), "asked": {"readings": ["parts"]}, "federation": FEDERATION}
    return Measurement(settings, {"origin": said, "loss": 0.1, "grad2": 0.01}, readings, True, {"seconds": 2.5})


def write_measurement(path: Path, found: Measurement) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.to_json()))
    return path
