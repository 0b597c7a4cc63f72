"""What local steps cost a language model, against their number: the runs of the study in docs/results/language.md.

    python benchmarks/language.py --data DATA --out RUNS [--only WORD] [--share 1/2] [--most 20]    # runs; resumes
    python benchmarks/language.py --out RUNS --list                                               # what is there

DATA holds Tiny Shakespeare as it is published. A transformer of a million parameters is trained by 2, 4 or 8 workers
with AdamW, whose state stays with each worker, and whose models are averaged, or moved by DiLoCo's outer step, after
every H local steps. A cell is one run: a JSON file in RUNS; one that is there is not run again. Cells are run in the
order in which they are needed most.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedgauge as fg
from fedgauge.algorithms.base import Algorithm, Tensors
from fedgauge.algorithms.live.blocks import balanced
from fedgauge.base.files import write_json
from fedgauge.federation.models import make_model
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.setup import Setup

STEPS, LONGER = 1024, 1.25
"""The local steps of a run, and how many times as many those have that others are compared with."""
WORKERS, SPLITS, SEEDS = (4, 2, 8), ("role", "iid"), (0, 1)
LOCAL_STEPS, OUTER_STEPS, CANDIDATES = (1, 4, 16, 64, 256), (16, 64, 256), (1, 16, 64)
ETAS = (0.7, 0.35, 1.0)
CHECKED = (8, 32, 1024)
"""Local steps on which laws are judged that were fitted to the others."""
GAMMA, DECAY, CONTEXT, BATCH = 1e-3, 0.1, 64, 8
MODEL = {"width": 128, "layers": 5, "heads": 4}
EVALUATED = 512
"""Examples of all workers together, and as many of the test set, on which losses are evaluated."""
RECORDS, WATCHED = 16, (512, 1024)
"""How many records a run has, and the steps at which a round is observed."""


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        split: ``role``, where workers have the speeches of similar roles, or ``iid``.
        workers: M.
        outer: ``gradients`` are averaged before one AdamW step for all; or models are: ``mean``, or ``diloco`` and its
            rate.
        local_steps: H; 0 for a run that alternates.
        seed: of the model and the mini-batches; the division into workers is the same for all.
    """

    split: str
    workers: int
    outer: str
    local_steps: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its file."""
        steps = f"h{self.local_steps}" if self.local_steps else "live"
        return f"{self.split}-m{self.workers}-{self.outer}-{steps}-s{self.seed}"

    @property
    def is_reference(self) -> bool:
        """Whether others are compared with it."""
        return self.local_steps == 1

    @property
    def rounds(self) -> list[int]:
        """The local steps of each round."""
        if self.local_steps:
            steps = int(STEPS * LONGER) if self.is_reference else STEPS
            return [self.local_steps] * (steps // self.local_steps)
        rounds: list[int] = []
        for each in balanced(CANDIDATES, turn=self.seed):
            rounds += [each] * (2 * max(CANDIDATES) // each)
            if sum(rounds) >= STEPS:
                return rounds
        raise AssertionError


def cells() -> Iterator[Cell]:
    """The planned cells, the most needed ones first; some come twice.

    Each question gets its first cells before any gets its last: the shape in H, inside one run and with an outer step;
    the number of workers; another seed; the outer rate; and then the other division of all that.
    """
    rest = ETAS[1:]
    for each in ("role", "iid"):
        yield from _averaging(each, 4, 0)
    for each in ("role", "iid"):
        yield Cell(each, 4, "mean", 0, 10)
        yield from _outer(each, 4, ETAS[:1], 0)
    for workers in (2, 8):
        yield from _averaging("role", workers, 0)
    for each in ("role", "iid"):
        yield from _averaging(each, 4, 1)
    yield from _outer("role", 4, rest, 0)
    yield from (Cell(each, 4, "gradients", 1, 0) for each in SPLITS)
    yield from _averaging("iid", 2, 0)
    yield from _outer("role", 4, ETAS[:1], 1)
    yield from _outer("role", 2, ETAS, 0)
    yield from _averaging("role", 2, 1)
    yield from _averaging("iid", 8, 0)
    yield from _outer("iid", 4, rest, 0)
    for seed in SEEDS:
        for workers in WORKERS:
            for each in SPLITS:
                yield from _averaging(each, workers, seed)
                yield Cell(each, workers, "gradients", 1, seed)
                yield Cell(each, workers, "mean", 0, seed + 10)
                yield from _outer(each, workers, ETAS, seed)


def checks() -> Iterator[Cell]:
    """Cells beyond the plan, on which laws in H are judged; all but the last were named before any of them was run."""
    yield from (Cell("role", 4, "mean", steps, 0) for steps in reversed(CHECKED))
    yield from (Cell("role", workers, "mean", CHECKED[-1], 0) for workers in (2, 8))
    yield from (Cell("role", 4, "mean", steps, 1) for steps in reversed(CHECKED))
    # After it had been seen how little counts with 1,024: where does that begin?
    yield Cell("role", 4, "mean", 512, 0)


def every() -> list[Cell]:
    """All cells, each once."""
    return list(dict.fromkeys([*cells(), *checks()]))


def _averaging(split: str, workers: int, seed: int) -> Iterator[Cell]:
    return (Cell(split, workers, "mean", steps, seed) for steps in LOCAL_STEPS)


def _outer(split: str, workers: int, etas: Sequence[float], seed: int) -> Iterator[Cell]:
    return (Cell(split, workers, f"diloco{eta:g}", steps, seed) for eta in etas for steps in OUTER_STEPS)


def gradient_adamw(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Algorithm:
    """AdamW without local steps: the workers' gradients are averaged, and one optimiser takes the step for all."""

    def init(model: torch.Tensor) -> Tensors:
        return {"m": torch.zeros_like(model), "v": torch.zeros_like(model), "t": model.new_zeros(1)}

    def update(model: torch.Tensor, server: Tensors, mean: Tensors, fraction: float) -> tuple[torch.Tensor, Tensors]:
        gradient, t = mean["change"].to(model.dtype), server["t"] + 1
        m = beta1 * server["m"] + (1 - beta1) * gradient
        v = beta2 * server["v"] + (1 - beta2) * gradient.square()
        root = (v / (1 - beta2**t)).sqrt() + epsilon
        return model * (1 - GAMMA * DECAY) - GAMMA * (m / (1 - beta1**t)) / root, {"m": m, "v": v, "t": t}

    return replace(fg.minibatch(1.0), name="gradient_adamw", init=init, update=update)


def setup_of(cell: Cell, data: Path) -> Setup:
    """The federation and the algorithm of a cell."""
    by = {"scheme": "iid"} if cell.split == "iid" else {"scheme": "id", "divide_by": "role", "grouping": "similar"}
    setup = prepare(
        Experiment.of(
            {
                "source": "shakespeare", "data": str(data), "context": CONTEXT, "workers": cell.workers, **by,
                "model": "transformer", "model_option": MODEL, "batch_size": BATCH, "gamma": GAMMA,
                "partition_seed": 0, "seed": cell.seed, "processes": 1,
            }
        )
    )  # fmt: skip
    adamw: dict[str, Any] = {"weight_decay": DECAY, "optimiser_state": "kept"}
    if cell.outer == "gradients":
        algorithm = gradient_adamw()
    elif cell.outer == "mean":
        algorithm = fg.with_optimiser(fg.fedavg(GAMMA), "adamw", **adamw)
    else:
        algorithm = fg.diloco(GAMMA, eta=float(cell.outer.removeprefix("diloco")), weight_decay=DECAY)
    return replace(setup, algorithm=algorithm)


class HeldOut:
    """The loss on the same examples of the test set."""

    def __init__(self, setup: Setup) -> None:
        dataset = setup.dataset
        assert dataset is not None
        chosen = np.random.default_rng(0).choice(len(dataset.test_inputs), EVALUATED, replace=False)
        x, y = torch.from_numpy(dataset.test_inputs[chosen]), torch.from_numpy(dataset.test_labels[chosen])
        model = make_model("transformer", (CONTEXT,), len(dataset.classes), **MODEL)
        self._federation = fg.federate(model.make, model.loss, [(x, y)], batch_size=BATCH)

    def loss(self, model: torch.Tensor) -> float:
        """The mean loss."""
        return float(self._federation.losses(model.unsqueeze(0), np.array([0])))


def run(cell: Cell, data: Path) -> dict[str, Any]:
    """Train, and note the losses, and how far the local models are apart in a few rounds."""
    setup = setup_of(cell, data)
    held_out, rounds, seconds = HeldOut(setup), cell.rounds, 0.0
    looks = [] if cell.is_reference or not cell.local_steps else list(WATCHED)
    records: list[dict[str, float]] = []
    sights: list[dict[str, float]] = []
    with Runner(setup, sample=EVALUATED // cell.workers) as runner:
        state, done = runner.first_state(), 0

        def record() -> None:
            loss = runner.loss(state)
            records.append({"step": done, "loss": loss, "held_out": held_out.loss(state.model)})

        record()
        for number, steps in enumerate(rounds):
            before, began = state.model, time.process_time()
            if looks and done + steps >= looks[0]:
                looks.pop(0)
                state, sight = runner.watch(state, steps)
                if sight is not None:
                    sights.append({"step": done + steps, "change2": _squared(state.model - before), **sight.to_json()})
            else:
                state = runner.advance(state, steps, 1)
                seconds += time.process_time() - began
            done += steps
            changes = number + 1 == len(rounds) or rounds[number + 1] != steps
            if done - records[-1]["step"] >= STEPS // RECORDS or changes:
                record()
                if not math.isfinite(records[-1]["loss"]):
                    break
    numbers = {"parameters": setup.first_model.numel(), "seconds": seconds}
    return {"cell": vars(cell), "rounds": rounds_of(rounds), "records": records, "sights": sights, **numbers}


def _squared(vector: torch.Tensor) -> float:
    return float(vector.double() @ vector.double())


def rounds_of(rounds: Sequence[int]) -> list[list[int]]:
    """Rounds as pairs: local steps, and how many rounds in a row have them."""
    starts = [0, *(i for i in range(1, len(rounds)) if rounds[i] != rounds[i - 1]), len(rounds)]
    return [[rounds[a], b - a] for a, b in pairwise(starts)]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="directory for the runs")
    parser.add_argument("--only", default="", help="only cells whose name contains this")
    parser.add_argument("--share", default="1/1", help="which part of the cells, as in 1/2, for several processes")
    parser.add_argument("--most", type=int, default=10**9, help="end after so many cells")
    parser.add_argument("--list", action="store_true", help="say which cells are there and which are missing")
    options = parser.parse_args()
    wanted = [cell for cell in every() if options.only in cell.name]
    if options.list:
        there = [(options.out / f"{cell.name}.json").exists() for cell in wanted]
        print("\n".join(f"{'there  ' if is_there else 'missing'} {cell.name}"
                        for is_there, cell in zip(there, wanted, strict=True)))  # fmt: skip
        return
    if options.data is None:
        parser.error("Name the directory of the data sets: --data DIR.")
    part, parts = map(int, options.share.split("/"))
    left = options.most
    for cell in wanted[part - 1 :: parts]:
        path = options.out / f"{cell.name}.json"
        if path.exists() or not left:
            continue
        left -= 1
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, run(cell, options.data))
        print(path, flush=True)


if __name__ == "__main__":
    main()
