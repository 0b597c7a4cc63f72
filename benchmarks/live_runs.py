"""Runs that the live gauge is judged by: whole runs with one number of local steps, and runs that alternate.

    python benchmarks/live_runs.py --data DATA --out RUNS [--only WORD] [--share 1/2]

DATA holds MNIST, CIFAR-10 and Tiny Shakespeare as they are published. Every run is a JSON file in RUNS with f at the
averaged model after some local steps, and the number of local steps of every round; a run that is there is not run
again. The federations of the set "developed" were looked at while the estimator was made, those of "fresh" were not.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fedgauge as fg
from fedgauge import Experiment
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.live.blocks import balanced
from fedgauge.algorithms.live.gauge import GROWTH
from fedgauge.base.files import write_json
from fedgauge.federation.models import transformer
from fedgauge.measurement.gauge.runner import Runner
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.setup import Setup

TRUTH_SEEDS, LIVE_SEEDS = (0, 1, 2), (3, 4, 5)
RECORDS = 64


@dataclass(frozen=True)
class Case:
    """A federation, how it is trained, and which numbers of local steps are compared.

    Attributes:
        experiment: the options of the experiment; for Tiny Shakespeare, those of :func:`shakespeare`.
        steps: local steps of a run.
        candidates: numbers of local steps, the smallest being the reference.
        block: local steps of a block of an alternating run.
        seeds: how many seeds of the truth, and how many alternating runs.
    """

    experiment: Mapping[str, Any]
    steps: int = 4096
    candidates: tuple[int, ...] = (1, 16, 64)
    block: int = 128
    seeds: int = 3


def _digits(**options: Any) -> Case:
    return Case({"source": "digits", "gamma": 0.1, **options})


def _mnist(**options: Any) -> Case:
    return Case({"source": "mnist", "gamma": 0.1, **options}, steps=2048, seeds=2)


def _language(source: str, **options: Any) -> Case:
    adamw = {"optimiser": "adamw", "optimiser_state": "kept", "gamma": 0.003}
    return Case(
        {"source": source, "model": "transformer", "scheme": "id", "workers": 4, **adamw, **options},
        steps=1024, candidates=(1, 8, 32), block=64, seeds=2,
    )  # fmt: skip


_MOMENTUM = {"optimiser": "sgd", "local_momentum": 0.9, "optimiser_state": "kept", "gamma": 0.02}
_ADAMW = {"optimiser": "adamw", "optimiser_state": "kept", "gamma": 0.002}
_COSINE = {"gamma_schedule": "cosine,over=4096,by=step", "gamma": 0.2}

DEVELOPED: Mapping[str, Case] = {
    "digits iid": _digits(scheme="iid"),
    "digits paper 60%": _digits(percent=60),
    "digits Dirichlet 0.3": _digits(scheme="dirichlet", alpha=0.3),
    "digits 8 workers Dirichlet 0.06": _digits(scheme="dirichlet", alpha=0.06, workers=8),
    "digits 2 shards": _digits(scheme="shards", shards=2),
    "digits softmax paper 75%": _digits(model="softmax", percent=75),
    "digits batch 5 Dirichlet 0.5": _digits(scheme="dirichlet", alpha=0.5, batch_size=5, gamma=0.05),
    "digits momentum Dirichlet 0.3": _digits(scheme="dirichlet", alpha=0.3, **_MOMENTUM),
    "digits AdamW paper 50%": _digits(percent=50, **_ADAMW),
    "digits cosine paper 60%": _digits(percent=60, **_COSINE),
    "digits rotated": _digits(scheme="iid", shift=["rotation=1"]),
    "MNIST paper 50%": _mnist(percent=50, per_worker=600),
    "text AdamW": _language("text"),
}
FRESH: Mapping[str, Case] = {
    "digits 15 workers Dirichlet 0.15": _digits(scheme="dirichlet", alpha=0.15, workers=15),
    "digits 3 shards": _digits(scheme="shards", shards=3),
    "digits paper 85%": _digits(percent=85, fill=True),
    "digits quantity": _digits(scheme="quantity"),
    "digits softmax Dirichlet 0.1": _digits(model="softmax", scheme="dirichlet", alpha=0.1),
    "digits batch 100 paper 75%": _digits(percent=75, batch_size=100, gamma=0.2),
    "digits momentum paper 75%": _digits(percent=75, **_MOMENTUM),
    "digits AdamW Dirichlet 0.2": _digits(scheme="dirichlet", alpha=0.2, **_ADAMW),
    "digits cosine Dirichlet 0.1": _digits(scheme="dirichlet", alpha=0.1, **_COSINE),
    "digits 20 workers swapped labels": _digits(scheme="iid", workers=20, shift=["swap=0.5"]),
    "MNIST Dirichlet 0.2": _mnist(scheme="dirichlet", alpha=0.2),
    "MNIST softmax 2 shards": _mnist(model="softmax", scheme="shards", shards=2),
    "CIFAR-10 CNN paper 75%": Case(
        {"source": "cifar10", "model": "cnn", "percent": 75, "per_worker": 500, "gamma": 0.05},
        steps=768, candidates=(1, 8, 32), block=64, seeds=1,
    ),
    "Tiny Shakespeare AdamW": _language("shakespeare"),
    "text DiLoCo": Case(
        {"source": "text", "model": "transformer", "scheme": "id", "workers": 4, "algorithm": "diloco", "gamma": 0.003},
        steps=2048, candidates=(8, 32), block=256, seeds=1,
    ),
}  # fmt: skip
CASES = {**DEVELOPED, **FRESH}


def shakespeare(path: Path, workers: int, context: int = 32, examples: int = 400) -> fg.SupervisedFederation:
    """The transformer on Tiny Shakespeare, each worker with the speeches of some of the roles that speak most."""
    roles: dict[str, list[str]] = {}
    for speech in path.read_text(encoding="utf-8").split("\n\n"):
        role, _, words = speech.partition(":\n")
        if words:
            roles.setdefault(role, []).append(words)
    longest = sorted(roles, key=lambda role: -sum(map(len, roles[role])))[: 2 * workers]
    letters = sorted({letter for role in longest for speech in roles[role] for letter in speech} | {"\n"})
    place = {letter: number for number, letter in enumerate(letters)}
    shards = []
    for worker in range(workers):
        spoken = "\n".join(speech for role in longest[worker::workers] for speech in roles[role])
        tokens = torch.tensor([place[letter] for letter in spoken[: examples * context + 1]])
        rows = (len(tokens) - 1) // context
        inputs = tokens[: rows * context].view(rows, context)
        shards.append((inputs, tokens[1 : rows * context + 1].view(rows, context)))
    made = transformer((context,), len(letters))
    return fg.federate(made.make, made.loss, shards, batch_size=20)


def setup_of(case: Case, seed: int, data: Path) -> Setup:
    """The federation and the algorithm of a case."""
    options = dict(case.experiment)
    if options["source"] != "shakespeare":
        where = {"data": str(data)} if options["source"] in ("mnist", "cifar10") else {}
        # One federation for all seeds, which decide the first model and the mini-batches.
        return prepare(Experiment.of({"processes": 1, "partition_seed": 0, **options, **where, "seed": seed}))
    algorithm: Algorithm = fg.with_optimiser(fg.fedavg(options["gamma"]), "adamw", optimiser_state="kept")
    federation = shakespeare(data / "tinyshakespeare" / "input.txt", options["workers"])
    return Setup(federation, algorithm, seed=seed, compute=fg.Compute(processes=1))


def whole(case: Case, local_steps: int) -> Iterator[int]:
    """The local steps of every round of a run that never changes them."""
    yield from [local_steps] * (case.steps // local_steps)


def alternating(case: Case, seed: int) -> Iterator[int]:
    """The local steps of every round of a run that goes through balanced blocks."""
    done = 0
    for steps in balanced(case.candidates, turn=seed):
        for _ in range(max(int(max(case.block, GROWTH * done)) // steps, 1)):
            if done >= case.steps:
                return
            yield steps
            done += steps


def run(setup: Setup, rounds: Sequence[int], every: int) -> dict[str, Any]:
    """Run the rounds and note f about every so many local steps, and whenever the local steps are about to change."""
    with Runner(setup) as runner:
        state, done = runner.first_state(), 0
        steps, losses = [0], [runner.loss(state)]
        for number, each in enumerate(rounds):
            state = runner.advance(state, each, 1)
            done += each
            changes = number + 1 == len(rounds) or rounds[number + 1] != each
            if done - steps[-1] >= every or changes:
                steps.append(done)
                losses.append(runner.loss(state))
                if not math.isfinite(losses[-1]):
                    break
    return {"rounds": _packed(rounds), "steps": steps, "losses": losses}


def _packed(rounds: Sequence[int]) -> list[list[int]]:
    """Rounds as pairs: local steps, and how many rounds in a row have them."""
    packed: list[list[int]] = []
    for each in rounds:
        if packed and packed[-1][0] == each:
            packed[-1][1] += 1
        else:
            packed.append([each, 1])
    return packed


def place_of(name: str) -> str:
    """The directory of a case."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def missing(out: Path, only: str) -> Iterator[tuple[Path, Case, int, list[int]]]:
    """The runs that are not there yet: their files, cases, seeds and rounds."""
    for name, case in CASES.items():
        if only not in name:
            continue
        place = out / place_of(name)
        for seed in TRUTH_SEEDS[: case.seeds]:
            for local_steps in case.candidates:
                yield place / f"whole-{local_steps}-{seed}.json", case, seed, list(whole(case, local_steps))
        for seed in LIVE_SEEDS[: case.seeds]:
            yield place / f"live-{seed}.json", case, seed, list(alternating(case, seed))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="directory for the runs")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--share", default="1/1", help="which part of the runs, as in 1/2, for several processes")
    options = parser.parse_args()
    part, parts = map(int, options.share.split("/"))
    for number, (path, case, seed, rounds) in enumerate(missing(options.out, options.only)):
        if number % parts != part - 1 or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, run(setup_of(case, seed, options.data), rounds, case.steps // RECORDS))
        print(path, flush=True)


if __name__ == "__main__":
    main()
