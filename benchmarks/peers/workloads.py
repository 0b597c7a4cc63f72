"""The data that every contestant gets, and how it is told to run rounds; this needs only numpy.

The workloads are mlp and many of ``benchmarks/rounds.py``. The samples are random numbers, labelled by a random linear
teacher so that there is something to learn: a contestant that does the whole job lowers the loss as far as the others.

A contestant is a program in its own environment. It prepares itself, runs ``check_rounds`` rounds from the common first
model, reports how the loss over all samples changed (one line of JSON), and then waits. When it reads a line with a
number, it runs that many rounds and answers with the seconds that a round took.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

GAMMA, BATCH = 0.01, 20
INPUTS, WIDTH, CLASSES = 784, 100, 10

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Network = tuple[Floats, Floats, Floats, Floats]
"""Weights and biases of both layers; a weight has a row for each output, as in torch."""


@dataclass(frozen=True)
class Workload:
    """One setting."""

    name: str
    num_workers: int
    samples: int
    participants: int
    local_steps: int
    rounds: int  # in a turn
    check_rounds: int
    tolerance: float  # by what fraction the loss may fall more or less than in fedgauge during the check

    def rows(self, worker: int) -> slice:
        """Where a worker's samples are."""
        return slice(worker * self.samples, (worker + 1) * self.samples)


# Over eight seeds of fedgauge the fall in the check has a standard deviation of 0.12% in mlp and 0.7% in many, where
# participants are drawn too; one local step fewer reduces it by 2.4% and 8.6%. The tolerances lie between the two.
WORKLOADS = {
    work.name: work
    for work in (
        Workload("mlp", 10, 6000, 10, 40, rounds=5, check_rounds=10, tolerance=0.01),
        Workload("many", 1000, 60, 100, 10, rounds=3, check_rounds=10, tolerance=0.04),
    )
}
TINY = Workload("tiny", 4, 40, 4, 2, rounds=1, check_rounds=1, tolerance=0.5)
"""Shows that a contestant works, and nothing about its speed."""


def make_data(work: Workload) -> tuple[Floats, Integers]:
    """Samples and labels, the same in every process."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((work.num_workers * work.samples, INPUTS), dtype=np.float32)
    teacher = generator.standard_normal((INPUTS, CLASSES), dtype=np.float32)
    return x, np.argmax(x @ teacher, axis=1)


def first_network() -> Network:
    """The first model of all contestants: uniform up to 1 / sqrt(inputs), as in torch."""
    generator = np.random.default_rng(1)

    def uniform(inputs: int, *shape: int) -> Floats:
        return generator.uniform(-(inputs**-0.5), inputs**-0.5, size=shape).astype(np.float32)

    return (
        uniform(INPUTS, WIDTH, INPUTS),
        uniform(INPUTS, WIDTH),
        uniform(WIDTH, CLASSES, WIDTH),
        uniform(WIDTH, CLASSES),
    )


def loss(network: Network, data: tuple[Floats, Integers]) -> float:
    """Mean cross entropy over all samples."""
    (x, y), (first, first_bias, second, second_bias) = data, network
    outputs = np.maximum(x @ first.T + first_bias, 0) @ second.T + second_bias
    outputs -= outputs.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(y)), y]))


class NoMoreTurns(Exception):  # noqa: N818 (it is the ordinary end)
    """All turns are over."""


class Contestant:
    """What a contestant has to do, and its connection to the program that measures it."""

    def __init__(self, *packages: str) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("workload", choices=[*sorted(WORKLOADS), TINY.name])
        parser.add_argument("--threads", type=int, default=1)
        parser.add_argument("--processes", type=int, default=1)
        options = parser.parse_args()
        self.work = {**WORKLOADS, TINY.name: TINY}[options.workload]
        self.threads: int = options.threads
        self.processes: int = options.processes
        self.data = make_data(self.work)
        self._packages = packages
        # Whatever a library prints goes to standard error, so that only answers are on standard output.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def answer(self, **values: Any) -> None:
        """Send an answer, in one line."""
        print(json.dumps(values), file=self._out, flush=True)

    def ready(self, network: Network) -> None:
        """Report that the rounds of the check are done, with their result."""
        self.answer(
            before=loss(first_network(), self.data),
            after=loss(network, self.data),
            versions={name: metadata.version(name) for name in self._packages},
        )

    def next_turn(self) -> int:
        """Wait for the next turn, and return the number of its rounds."""
        line = sys.stdin.readline()
        if not line:
            raise NoMoreTurns
        return int(line)

    def serve(self, run: Callable[[int], float | None], network: Callable[[], Network]) -> None:
        """Do the check, then every turn.

        Args:
            run: runs the given number of rounds; if it does more than that, it returns the seconds of the rounds.
            network: returns the current model.
        """
        run(self.work.check_rounds)
        self.ready(network())
        try:
            while True:
                rounds = self.next_turn()
                began = time.perf_counter()
                seconds = run(rounds)
                self.answer(seconds=(time.perf_counter() - began if seconds is None else seconds) / rounds)
        except NoMoreTurns:
            return


class Pauses:
    """For simulations that cannot be stopped and resumed: it is called after every round, and waits there for turns."""

    def __init__(self, contestant: Contestant, warm_up: int) -> None:
        self._contestant, self._left, self._rounds, self._began = contestant, warm_up, 0, 0.0

    def round_is_over(self) -> None:
        """Count a round; at the end of a turn, answer and wait for the next."""
        self._left -= 1
        if self._left:
            return
        if self._rounds:
            self._contestant.answer(seconds=(time.perf_counter() - self._began) / self._rounds)
        self._left = self._rounds = self._contestant.next_turn()
        self._began = time.perf_counter()
