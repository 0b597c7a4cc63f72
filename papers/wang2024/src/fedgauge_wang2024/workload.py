"""What the paper's experiments on networks cost, before they are run: gradient steps, images in records, and hours.

Steps and images follow from the settings. Hours are these numbers times what a step and an image take on this machine,
timed for a few seconds with random images on the path that a run takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.config import Experiment
from fedgauge_wang2024 import table1
from fedgauge_wang2024.studies import PERCENTS, Scale, Study

_SIZES: Mapping[str, tuple[tuple[int, ...], int, int]] = {
    "mnist": ((28, 28), 60_000, 10_000),
    "cifar10": ((3, 32, 32), 50_000, 10_000),
    "cifar100": ((3, 32, 32), 50_000, 10_000),
    "cinic10": ((3, 32, 32), 90_000, 90_000),
}
"""Shape of an image, number of training and of test images, as published."""
_GRADIENT = 3.0
"""Forward passes that a gradient takes the time of."""


@dataclass(frozen=True)
class Workload:
    """The work of one part of the paper's experiments.

    Attributes:
        study: which network.
        part: ``50%`` for the curves at that percentage, or ``Table 1, 50%``.
        runs: how many runs or cells.
        steps: gradient steps of single workers.
        images: images whose gradient is taken in records and measurements; one that is only tested counts as a third.
    """

    study: str
    part: str
    runs: int
    steps: int
    images: int


@dataclass(frozen=True)
class StepTime:
    """What a network takes on this machine, on one thread.

    Attributes:
        step: seconds of one gradient step.
        image: seconds of the exact gradient of one image.
    """

    step: float
    image: float

    def hours(self, work: Workload) -> float:
        """Hours on one core.

        >>> round(StepTime(step=0.036, image=0.0).hours(Workload("cnn", "50%", 8, 100_000, 0)), 6)
        1.0
        """
        return (work.steps * self.step + work.images * self.image) / 3600


def steps_of(run: Experiment) -> int:
    """The gradient steps of all workers in a run.

    >>> from fedgauge_wang2024.studies import STUDIES
    >>> steps_of(STUDIES["cnn"].experiment("workstation", local_steps=5))
    10000
    """
    each = run.run.local_steps
    if not isinstance(each, int):
        raise InputError("Only a run in which all workers take the same number of local steps has a known number.")
    return each * run.run.rounds * _taking(run)


def _taking(run: Experiment) -> int:
    """The number of workers that take part in a round."""
    return run.run.participants or run.data.workers or 10


def workloads(study: Study, scale: Scale, seeds: int | None = None) -> Iterator[Workload]:
    """The work of a network's curves, percentage by percentage, and of its rows of Table 1, where it has any.

    For Table 1 this is the most: where it may settle, training ends earlier near convergence.

    >>> from fedgauge_wang2024.studies import STUDIES
    >>> [work.steps for work in workloads(STUDIES["vgg11"], "workstation", seeds=1)][:2]
    [65000, 65000]
    """
    size = study.sizes[scale]
    seeds = seeds or size.seeds
    for percent in PERCENTS:
        curves = [study.experiment(scale, percent=float(percent), local_steps=steps) for steps in size.local_steps]
        run, runs = curves[0], seeds * len(curves)
        records = math.ceil(run.run.rounds / (run.run.record_every or 1)) + 1
        steps = seeds * sum(map(steps_of, curves))
        yield Workload(study.name, f"{percent}%", runs, steps, round(runs * records * _record(run)))
    if study.name not in table1.PAPER:
        return
    for percent in table1.PERCENTS:
        run = table1.experiment(study, scale, percent, 0)
        everyone, examples = run.data.workers or 10, _examples(run) // (size.part or 1)
        steps = table1.LOCAL_STEPS * (size.near * _taking(run) + size.measured * everyone)
        records = math.ceil(size.near / table1.WINDOW) + 1
        # Every measured round takes three passes over the measured examples, and the model itself one before them.
        images = records * _record(run, tested=False) + (3 * size.measured + 1) * examples
        yield Workload(study.name, f"Table 1, {percent}%", seeds, seeds * steps, round(seeds * images))


def _examples(run: Experiment) -> int:
    """The number of all workers' examples."""
    _, number, _ = _SIZES[run.data.name]
    each = run.data.per_worker
    return number if each is None else each * (run.data.workers or 10)


def _record(run: Experiment, tested: bool = True) -> float:
    """The images of one record; that of a sample takes one more forward pass, for its standard error."""
    sample, tests = run.run.record_sample, run.data.test_examples or _SIZES[run.data.name][2]
    trained = (run.data.workers or 10) * sample * (1 + 1 / _GRADIENT) if sample else _examples(run)
    return trained + (tests / _GRADIENT if tested else 0)


def measure_pace(study: Study, scale: Scale, seconds: float = 5.0) -> StepTime:
    """Time a network's steps and exact gradients on random images for about so many seconds, on one thread.

    The processor's time counts, so that other programs on the same core do not.
    """
    import numpy as np
    import torch

    from fedgauge.algorithms import fedavg
    from fedgauge.base.threads import one_thread
    from fedgauge.federation.models import make_model
    from fedgauge.federation.supervised import SupervisedFederation
    from fedgauge.simulation.loop import simulate
    from fedgauge.simulation.options import Compute, Recording

    run = study.experiment(scale)
    shape, _, _ = _SIZES[run.data.name]
    model = make_model(run.model.name or "mlp", shape, study.classes, **run.model.options)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(100, *shape, generator=generator), torch.arange(100) % study.classes
    federation = SupervisedFederation(
        model.make, model.loss, images, labels, [range(100)], batch_size=run.run.batch_size or 20
    )

    def spent(rounds: int) -> float:
        began = time.process_time()
        simulate(
            federation,
            fedavg(1e-6),  # so small that nothing diverges
            local_steps=table1.LOCAL_STEPS,
            rounds=rounds,
            record=Recording(every=rounds, watch=False, sample=2),
            compute=Compute(processes=1),
        )
        return time.process_time() - began

    with one_thread():
        spent(1)  # the first time takes longer
        one = spent(1)
        more = max(int(seconds / one), 1)
        step = max(spent(1 + more) - one, 0.0) / (more * table1.LOCAL_STEPS)
        first, passes, began = federation.start(0)[None], 0, time.process_time()
        while passes == 0 or time.process_time() - began < seconds / 2:
            federation.gradients(first, np.arange(1))
            passes += 1
        return StepTime(step, (time.process_time() - began) / (100 * passes))
