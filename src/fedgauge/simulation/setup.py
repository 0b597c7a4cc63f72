"""A federation and the way it is run, as one value: what measuring and planning start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.paces import Chosen, parse_rule
from fedgauge.base.errors import InputError, count
from fedgauge.base.randomness import check_seed
from fedgauge.data.dataset import Dataset
from fedgauge.data.partition import Partition
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Federation, HasSamples
from fedgauge.simulation.options import Compute, Evaluator
from fedgauge.values import Subject

if TYPE_CHECKING:
    import torch

Steps = int | tuple[int, ...] | Pace | Chosen


@dataclass(frozen=True)
class Setup:
    """A federation, an algorithm, local steps and everything else that determines a run.

    Attributes:
        federation: the workers' losses and gradients.
        algorithm: the algorithm that workers and server run.
        local_steps: the number I of local steps per round, one number per worker, or a pace that changes I.
        rounds: the number R of rounds.
        participation: who takes part in each round; a number M means M draws with replacement.
        seed: seed of all randomness.
        compute: where the run is computed.
        evaluator: the test set, if there is one.
        dataset: the scaled data set that the federation was made from, if it is known.
        partition: which examples each worker has, if it is known.
        experiment: the sections of the experiment that the set-up was made from; empty if there is none.
        start: the first model, if it is not the federation's own for the seed.
    """

    federation: Federation
    algorithm: Algorithm
    local_steps: Steps = 10
    rounds: int = 100
    participation: Participation = field(default_factory=Participation)
    seed: int = 0
    compute: Compute = field(default_factory=Compute)
    evaluator: Evaluator | None = None
    dataset: Dataset | None = None
    partition: Partition | None = None
    experiment: Mapping[str, Any] = field(default_factory=dict)
    start: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "rounds", count("rounds", self.rounds))
        check_kinds(self.federation, self.algorithm)
        object.__setattr__(self, "participation", Participation.of(self.participation, self.federation.num_workers))
        object.__setattr__(self, "local_steps", check_steps(self.local_steps, self.federation.num_workers))

    @property
    def num_workers(self) -> int:
        """The number N of workers."""
        return self.federation.num_workers

    @property
    def first_model(self) -> torch.Tensor:
        """The first model of a run."""
        from fedgauge.simulation.runs.checkpoints import given_model  # with torch, which plans are read without

        return self.federation.start(self.seed) if self.start is None else given_model(self.federation, self.start)

    @property
    def floor(self) -> float:
        """A lower limit of f: its minimum for quadratics, whatever the weights, and 0 for the loss of a network."""
        from fedgauge.federation.quadratic import QuadraticFederation  # with torch, which plans are read without

        federation = self.federation
        if not isinstance(federation, QuadraticFederation):
            return 0.0
        if self.participation.weights is not None:
            w = self.participation.objective(federation.num_workers)
            hessian, linear = np.tensordot(w, federation.hessians, 1), w @ federation.linear
            federation = QuadraticFederation([hessian], [linear], [w @ federation.constant])
        return float(federation.minimiser()[1])

    @property
    def subject(self) -> Subject:
        """What a bound on a run speaks about."""
        from fedgauge.federation.identity import digest_of

        own, federation = self.start is None, self.federation.digest
        if self.participation.shares is not None:  # f is another function then
            federation = f"{federation} with the weights {self.participation.shares}"
        return Subject(federation, digest_of(self.first_model), self.seed if own else None)

    @property
    def fixed_steps(self) -> int | tuple[int, ...]:
        """The local steps, which must not be adaptive while something is measured."""
        if isinstance(self.local_steps, Pace | Chosen):
            raise InputError(
                "Measuring needs a fixed number of local steps, because with a pace such as auto the measured values"
                " would change along with it; give local_steps, as in local_steps=10."
            )
        return self.local_steps


def check_kinds(federation: Any, algorithm: Any) -> None:
    """Refuse what is no federation or no algorithm."""
    if not (hasattr(federation, "num_workers") and hasattr(federation, "start")):
        raise InputError(
            "The federation must be one that federate(model, loss, shards) or random_quadratics makes, or have the"
            f" members of fedgauge.Federation, not {_called(federation)}."
        )
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"The algorithm must be one that fedavg(gamma=0.1) or its like makes, not {_called(algorithm)}."
        )


def _called(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value!r}"
    return f"the function {value.__name__} itself" if isinstance(value, FunctionType) else f"a {type(value).__name__}"


def steps_of_epochs(federation: Federation, epochs: int) -> int | tuple[int, ...]:
    """The local steps of each worker that make up a number of epochs: one number if they are all the same.

    An epoch is a worker's number of examples divided by the batch size, rounded up. Mini-batches are drawn at random,
    so a worker sees its examples that often on average, not each exactly once.

    >>> import torch
    >>> from fedgauge import federate
    >>> shards = [(torch.randn(size, 3), torch.arange(size) % 2) for size in (40, 50)]
    >>> federation = federate(lambda: torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, shards, batch_size=20)
    >>> steps_of_epochs(federation, 2)
    (4, 6)
    """
    if not isinstance(federation, HasSamples):
        raise InputError(
            f"Local epochs need workers that have examples, which a {type(federation).__name__} does not offer; give"
            " local_steps instead."
        )
    sizes = federation.sizes(np.arange(federation.num_workers))
    return epochs_as_steps(sizes, federation.batch_size, epochs)


def epochs_as_steps(sizes: Any, batch_size: int, epochs: int) -> int | tuple[int, ...]:
    """As :func:`steps_of_epochs`, from the workers' numbers of examples.

    >>> epochs_as_steps([40, 50], 20, 2)
    (4, 6)
    """
    steps = [count("local_epochs", epochs) * -(-int(size) // batch_size) for size in sizes]
    return steps[0] if len(set(steps)) == 1 else tuple(steps)


def check_steps(local_steps: int | Sequence[int] | str | Pace | Chosen, num_workers: int) -> Steps:
    """Return local steps as plain numbers: one, or one per worker. A pace is returned unchanged, or read from text."""
    if isinstance(local_steps, Pace | Chosen):
        return local_steps
    if isinstance(local_steps, str):
        return parse_rule(local_steps)
    values: Any = local_steps.tolist() if hasattr(local_steps, "tolist") else local_steps
    if not isinstance(values, list | tuple):
        return count("local_steps", values)
    if len(values) != num_workers:
        raise InputError(
            f"local_steps must be one number, or {num_workers} numbers, one per worker; {len(values)} were given."
        )
    return tuple(count("local_steps", steps) for steps in values)
