"""The time of a round over Flower, compared with the local engine, for growing models and numbers of workers.

Every message starts a process on its node. ``released`` uses Flower's commands as released: the process imports torch
and Flower, and an idle SuperNode checks for messages every three seconds. ``forked`` forks the same processes from one
that has already imported everything (integrations/flower/tests/zygote.py), and checks every 0.1 s; the rest is HTTP,
files and tensors. This needs ``pip install 'fedgauge[dev]'``.

    python benchmarks/flower.py --parameters 10000,1000000 --workers 2,4 --json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fedgauge import fedavg
from fedgauge.federation.models import mlp
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute

ROOT = Path(__file__).resolve().parent.parent
SAMPLES, FEATURES, CLASSES, STEPS, BATCH = 200, 64, 10, 10, 20
CLIENT = """
from fedgauge_flower import client_app
from measured.task import read

app = client_app(lambda context: read(context.node_config["shard"], width=context.run_config["model-option.width"]))
"""
SERVER = """
from fedgauge_flower import server_app
from measured.task import read

app = server_app(lambda context: read(context.run_config["own.test"], width=context.run_config["model-option.width"]))
"""


def width_of(parameters: int) -> int:
    """The hidden width with which the MLP has about this number of parameters."""
    return max(round((parameters - CLASSES) / (FEATURES + CLASSES + 1)), 1)


def local(place: Path, workers: int, width: int, rounds: int) -> float:
    """The seconds that a recorded round takes with the local engine, in one process."""
    parts = [np.load(place / f"{worker}.npz") for worker in range(workers)]
    inputs = torch.from_numpy(np.concatenate([part["x"] for part in parts]))
    labels = torch.from_numpy(np.concatenate([part["y"] for part in parts]))
    shards = [np.arange(SAMPLES) + SAMPLES * worker for worker in range(workers)]
    model = mlp((FEATURES,), CLASSES, width=width)
    federation = SupervisedFederation(model.make, functional.cross_entropy, inputs, labels, shards, batch_size=BATCH)
    began = time.perf_counter()
    simulate(federation, fedavg(0.05), local_steps=STEPS, rounds=rounds, compute=Compute(processes=1, chunk=1))
    return (time.perf_counter() - began) / rounds


def over_flower(starter: Any, place: Path, workers: int, width: int, rounds: int) -> float:
    """The seconds that a recorded round takes over Flower, averaged from the second round to the last."""
    from integrations.flower.tests.fleet import Fleet, write_app

    config: dict[str, Any] = {"source": "digits", "workers": workers, "gamma": 0.05, "local-steps": STEPS}
    config |= {"rounds": rounds, "out": str(place / "run"), "model-option.width": width, "noise": False}
    config |= {"own.test": str(place / "0.npz"), "timeout": 600.0, "wait": 300.0}
    app = write_app(place / "app", CLIENT, SERVER, config)
    (app / "measured" / "task.py").write_text((ROOT / "integrations" / "flower" / "tests" / "task.py").read_text())
    with Fleet(starter, place) as fleet:
        for worker in range(workers):
            fleet.node(worker, shard=str(place / f"{worker}.npz"))
        fleet.run(app, {"rounds": rounds})
        fleet.finished(place / "run", 1800)
    seconds = [json.loads(line)["seconds"] for line in (place / "run" / "timing.jsonl").read_text().splitlines()]
    # The last two records come from the same exchange.
    return float((seconds[-1] - seconds[0]) / (len(seconds) - 2))


def write_shards(place: Path, workers: int) -> None:
    """Write examples of random noise: only their number and shape matter here."""
    generator = np.random.default_rng(0)
    for worker in range(workers):
        x = generator.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
        np.savez(place / f"{worker}.npz", x=x, y=generator.integers(CLASSES, size=SAMPLES))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", default="1000,100000,1000000", help="sizes of the model, separated by commas")
    parser.add_argument("--workers", default="2,4", help="numbers of SuperNodes, separated by commas")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--how", default="forked,released", help="forked, released or both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from integrations.flower.tests.fleet import Commands, Zygote

    rows = []
    for how in options.how.split(","):
        starter: Any = Zygote() if how == "forked" else Commands()
        for workers in map(int, options.workers.split(",")):
            for parameters in map(int, options.parameters.split(",")):
                width = width_of(parameters)
                with tempfile.TemporaryDirectory() as place:
                    write_shards(Path(place), workers)
                    here = local(Path(place), workers, width, 20)
                    there = over_flower(starter, Path(place), workers, width, options.rounds)
                size = width * (FEATURES + CLASSES + 1) + CLASSES
                row = {"how": how, "workers": workers, "parameters": size, "local": here, "flower": there}
                rows.append({**row, "overhead": there - here, "load": os.getloadavg()[0]})
                if not options.json:
                    print(
                        f"{how:9} {workers:2} workers {size:9} parameters: local {here:8.4f} s, Flower {there:7.2f} s"
                        f" per round (load {rows[-1]['load']:.1f})",
                        flush=True,
                    )
        starter.close()
    if options.json:
        print(json.dumps({"rounds": options.rounds, "local_steps": STEPS, "batch_size": BATCH, "rows": rows}))


if __name__ == "__main__":
    main()
