"""Runs in which the server sees only sums: Flower's secure aggregation (SecAgg+) masks everything that a worker sends.

For every part of a round, each worker puts its vectors (its change, its model, and its exact gradients at the global
model, at its own model and at the mean model) and its numbers (loss, squared norms, noise) into one masked vector. The
server can unmask only the sum over all workers. The constants of a record are made from such sums, with two
differences: L_tilde's ratio is the root mean square over workers instead of the largest, and sigma is the mean over
workers. The round loop is that of ``simulate``, with an engine whose only lane is the sum of all workers.

Flower 1.41 offers SecAgg+ only in its older interface (``flwr.server`` and ``flwr.client``), whose names are used here
and nowhere else: its SecAggPlusWorkflow and secaggplus_mod, unchanged. A sum takes four exchanges.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, Self

import flwr.compat.common.recorddict_compat as compat
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid

import fedgauge_flower.records as records
from fedgauge.algorithms.base import Algorithm
from fedgauge.algorithms.torch_optimisers import fitted
from fedgauge.base.errors import InputError, MachineError
from fedgauge.simulation.engines.local import Method
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import algorithm_of
from fedgauge.simulation.runs.checkpoints import State
from fedgauge.simulation.workers import Lane, Secants, Spread, Sums, Work
from fedgauge.values import Trace
from fedgauge_flower.client import WorkerTask
from fedgauge_flower.engine import RunSchedule, answer_of, plain_values
from fedgauge_flower.fleet import Fleet, PromptGrid
from fedgauge_flower.noise import Noise
from fedgauge_flower.server import num_workers, run_on
from fedgauge_flower.shard import Shard

logger = logging.getLogger(__name__)

CLIPPING = 8.0
"""The largest absolute value of an entry that can be summed."""
_SMALLER = 2.0**-6
"""The factor by which losses, squared norms and other plain numbers are scaled before they are sent."""


# -- a worker ----------------------------------------------------------------------------------------------------------


def summand(message: Message, make: Any) -> Message:
    """Compute a worker's part of a sum, which Flower's mod masks before it leaves the node.

    Args:
        message: the request, in the form of Flower's older interface.
        make: makes a :class:`WorkerTask` from the message's plain values and tensors.
    """
    request = compat.recorddict_to_fitins(message.content, keep_input=True)
    values = json.loads(str(request.config["fedgauge"]))
    arrays = parameters_to_ndarrays(request.parameters)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in zip(values["names"], arrays, strict=True)}
    worker: WorkerTask = make(values, tensors)
    vectors: list[torch.Tensor] = []
    for part in values["parts"]:
        vectors += _marked(_PARTS[part](worker))
    sent = ndarrays_to_parameters([vector.double().numpy() for vector in vectors])
    # All workers have the same weight, so that this number, which is not masked, reveals nothing.
    answer = FitRes(Status(Code.OK, ""), sent, num_examples=1, metrics={})
    return Message(compat.fitres_to_recorddict(answer, keep_input=False), reply_to=message)


def _marked(vectors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The vectors, or zeros if they cannot be summed, and two marks that say why: not finite, or beyond the limit.

    The marks are summed and masked like the rest, so that the server learns how many workers failed, but not which.
    """
    finite = all(bool(vector.isfinite().all()) for vector in vectors)
    within = finite and all(bool((vector.abs() <= CLIPPING).all()) for vector in vectors)
    marks = torch.tensor([not finite, finite and not within], dtype=torch.float64)
    return [*(vectors if within else map(torch.zeros_like, vectors)), marks]


def _evaluated(worker: WorkerTask) -> list[torch.Tensor]:
    vectors, numbers = worker.evaluate(0)
    return [vectors["gradient"], _small(numbers["loss"], numbers.get("noise2", 0.0))]


def _trained(worker: WorkerTask) -> list[torch.Tensor]:
    vectors, _ = worker.local_phase(0)
    moved2 = _distance2(vectors["x"], worker.tensors["model"])
    return [*(vectors[name] for name in sorted(vectors)), _small(moved2)]


def _compared(worker: WorkerTask) -> list[torch.Tensor]:
    distance2 = _distance2(worker.kept(0)["x"], worker.tensors["mean"])
    vectors, numbers = worker.secants(0)
    return [vectors["gradient"], _small(numbers["squares"], numbers["steepest"] ** 2 * distance2, distance2)]


def _distance2(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).square().sum())


def _small(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64) * _SMALLER


_PARTS = {"secants": _compared, "evaluate": _evaluated, "local_phase": _trained}
"""What a worker sends for each part of a request, in the order in which they are asked for."""


# -- the server --------------------------------------------------------------------------------------------------------


class _MeanStrategy:
    """A strategy for Flower's older interface that sends all nodes the same request and keeps their mean answer."""

    def __init__(self, nodes: Mapping[int, int], request: FitIns) -> None:
        self._nodes, self._request = nodes, request
        self.mean: list[torch.Tensor] | None = None
        self.missing: list[int] = []

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[tuple[Any, FitIns]]:
        """One message per node."""
        return [(SimpleNamespace(node_id=node), self._request) for node in self._nodes.values()]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        """Keep the mean, which the workflow has put into every result, and note whose answers are not in it."""
        answered = {client.node_id for client, _ in results}
        self.missing = [worker for worker, node in self._nodes.items() if node not in answered]
        arrays = parameters_to_ndarrays(results[0][1].parameters)
        self.mean = [torch.from_numpy(np.asarray(array, dtype=np.float64)) for array in arrays]
        return None, {}


def secure_mean(
    grid: Grid,
    context: Context,
    fleet: Fleet,
    round: int,
    tensors: Mapping[str, torch.Tensor],
    values: dict[str, Any],
    shapes: Sequence[tuple[int, ...]],
) -> list[torch.Tensor]:
    """The mean of the workers' answers, vectors of these shapes; the server sees nothing else of them."""
    number = len(fleet.nodes)
    request = {**values, "names": list(tensors)}
    sent = ndarrays_to_parameters([tensor.numpy() for tensor in tensors.values()])
    strategy: Any = _MeanStrategy(fleet.nodes, FitIns(sent, {"fedgauge": json.dumps(request)}))
    state = RecordDict(
        {MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: round}), MAIN_PARAMS_RECORD: ArrayRecord()}
    )
    plain = Context(context.run_id, context.node_id, context.node_config, state, context.run_config)
    legacy = LegacyContext(plain, strategy=strategy, client_manager=SimpleNamespace(num_available=lambda: number))  # type: ignore[arg-type]
    # With this quantisation, the sum over all workers stays below the modulus, 2^32.
    entries = 2 ** (31 - math.ceil(math.log2(number)))
    workflow = SecAggPlusWorkflow(
        1.0, 0.6, max_weight=1.0, clipping_range=CLIPPING, quantization_range=entries, timeout=fleet.timeout
    )
    try:
        workflow(PromptGrid(grid), legacy)
    except Exception:
        # Flower's workflow trusts what the nodes send, and one that sends something else can make it raise anything.
        logger.exception("The secure sum of round %d failed.", round)
        strategy.mean = None
    if strategy.mean is None or [tuple(vector.shape) for vector in strategy.mean] != list(shapes):
        raise MachineError(
            f"The secure sum of round {round} could not be computed: too few of {number} workers answered within"
            f" {fleet.timeout:g} s, or one sent something that cannot be summed; the rounds before it are kept; see"
            " this log and the SuperNodes' logs."
        )
    if strategy.missing:
        # SecAgg+ can do without a few of the answers, but the mean of the others is not that of all workers.
        for worker in strategy.missing:
            fleet.report("lost", worker, round, f"no masked answer within {fleet.timeout:g} s")
        raise MachineError(
            f"The secure sum of round {round} lacks the answer of worker {', '.join(map(str, strategy.missing))}, and a"
            " mean of the others would be wrong; the rounds before it are kept; start again when all workers are there."
        )
    mean: list[torch.Tensor] = strategy.mean
    return mean


class SecureEngine:
    """Computes the parts of a round as secure sums over all workers, who are the only lane of the run.

    As with :class:`FlowerEngine`, one request asks for everything that is already known to be needed: the comparison
    with a round's mean model, and the next round's exact pass and local steps.

    Args:
        grid: Flower's connection to the nodes, whose app is ``client_app(secure=True)``.
        context: the context of the ServerApp.
        work: the algorithm, with a federation that knows only the model's shapes.
        fleet: the nodes.
        schedule: the plan of the run.
        noise: keeps the mean variance of stochastic gradients at the model of each recorded round.
    """

    def __init__(
        self, grid: Grid, context: Context, work: Work, fleet: Fleet, schedule: RunSchedule, noise: Noise
    ) -> None:
        self._grid, self._context, self._work, self._fleet = grid, context, work, fleet
        self._schedule, self._noise, self._round = schedule, noise, schedule.first
        self._coming: State | None = None
        self._asked: torch.Tensor | None = None
        self._sums: _SummedParts | None = None
        self._unread: list[str] = []
        self._error: MachineError | None = None
        model = work.federation.start(0)
        sent = answer_of(work.algorithm, model, {})[0]
        self._names = sorted([*records.named("message", sent), "gradient", "x"])
        whole, marks = tuple(model.shape), (2,)
        self._shapes: dict[str, list[tuple[int, ...]]] = {
            "secants": [whole, (3,), marks],
            "evaluate": [whole, (2,), marks],
            "local_phase": [whole for _ in self._names] + [(1,), marks],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def width(self) -> int:
        """How many lanes are computed at once: the only one."""
        return 1

    def map(self, method: Method, lanes: Sequence[Lane], *arguments: Any) -> list[Any]:
        """The sum over all workers, who are the only lane."""
        tasks: Mapping[Method, Method] = {
            Work.evaluate: self._evaluate,
            Work.local_phase: self._local_phase,
            Work.secants: self._secants,
        }
        return [tasks[method](*arguments) for _ in lanes]

    def foresee(self, state: State) -> None:
        """Remember the state that the next round will begin with."""
        self._coming = state

    def _evaluate(self, model: torch.Tensor) -> tuple[float, torch.Tensor]:
        if self._error is not None:
            raise self._error
        summed = self._part("evaluate", model, {"model": model})
        if summed is None:
            return math.nan, torch.full(model.shape, math.nan, dtype=torch.float64)
        gradient, numbers = summed
        loss, variance = (numbers / _SMALLER).tolist()
        if self._schedule.noise:
            self._noise.add(self._round, {"0": variance})
        return loss, gradient

    def _local_phase(
        self, round: int, model: torch.Tensor, server: Mapping[str, torch.Tensor], watch: int, ends: object = None
    ) -> Sums:
        self._round = round
        summed = self._part("local_phase", model, {"model": model, **records.named("server", server)})
        # What follows belongs to the next round.
        self._round = round + 1
        if summed is None:
            # As in every run that diverges, the server's update shows it.
            nothing = torch.full(model.shape, math.nan, dtype=model.dtype)
            return Sums(dict.fromkeys(records.part(dict.fromkeys(self._names), "message"), nothing))
        changes = dict(zip(self._names, summed[:-1], strict=True))
        message = {name: value.to(model.dtype) for name, value in records.part(changes, "message").items()}
        moved2, mean = float(summed[-1]) / _SMALLER, changes["x"]
        # The mean squared distance from the mean; the workers know only how far they are from the global model.
        spread = Spread(1.0, mean, max(moved2 - _distance2(mean, model), 0.0))
        return Sums(message, spread=spread, gradient=changes["gradient"])

    def _secants(self, mean: torch.Tensor) -> Secants | None:
        assert self._coming is not None
        coming, parts = self._coming, ["secants", "evaluate", "local_phase"]
        tensors = {"mean": mean, "model": coming.model, **records.named("server", coming.server)}
        try:
            self._request(parts if coming.round < self._schedule.rounds else parts[:2], coming.model, tensors)
            summed = self._next("secants")
        except MachineError as error:
            # The loop keeps this round's record, without the comparison, and learns of the error with the next.
            self._error = error
            return None
        if summed is None:
            return None
        gradient, numbers = summed
        squares, change2, distance2 = (numbers / _SMALLER).tolist()
        return Secants(gradient, squares, (change2 / distance2) ** 0.5 if distance2 > 0 else 0.0)

    def _part(self, part: str, model: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor] | None:
        """The means of a part at a model; they are asked for unless an earlier request did so."""
        if part not in self._unread or self._asked is not model:
            self._request([part], model, tensors)
        return self._next(part)

    def _request(self, parts: list[str], model: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> None:
        shapes = [shape for part in parts for shape in self._shapes[part]]
        values = {
            **plain_values(self._work, self._schedule),
            "parts": parts,
            "round": self._round,
            "seen_from": self._round - 1,
            "watch": True,
        }
        means = secure_mean(self._grid, self._context, self._fleet, self._round, tensors, values, shapes)
        self._sums = _SummedParts(means, self._work.federation.num_workers, self._round)
        self._asked, self._unread = model, parts

    def _next(self, part: str) -> list[torch.Tensor] | None:
        assert self._sums is not None
        self._unread = [each for each in self._unread if each != part]
        return self._sums.next(len(self._shapes[part]) - 1)


def run_securely(grid: Grid, context: Context, experiment: Experiment, shard: Shard, **options: Any) -> Trace:
    """Run an experiment's algorithm on nodes while the server sees only sums of their answers, and measure the run.

    All workers take part, have the same weight and remember nothing. There must be at least three. The trajectory is
    that of ``simulate`` up to the quantisation of secure sums, about 1e-7.

    Args:
        grid: Flower's connection to the nodes, whose app is ``client_app(secure=True)``.
        context: the context of the ServerApp.
        experiment: the algorithm, local steps, rounds and seed.
        shard: the model, and the test examples; any one example will do if there is no test.
        **options: the options of :func:`run_on`; ``timeout`` is for each of the four exchanges of a sum.
    """
    number, own = num_workers(experiment), shard.federation()
    _check(experiment, number)
    algorithm = algorithm_of(experiment, experiment.run.local_steps)  # type: ignore[arg-type]  # one number, as checked
    _check_algorithm(fitted(algorithm, own), own.start(experiment.run.seed))
    return run_on(grid, experiment, shard, engine=partial(SecureEngine, grid, context), chunk=number, **options)


def _check(experiment: Experiment, num_workers: int) -> None:
    """Raise an error if secure sums cannot run the experiment."""
    run = experiment.run
    refused = {
        "local_steps": not isinstance(run.local_steps, int),
        "local_epochs": run.local_epochs is not None,
        "participants": run.participants is not None,
        "sampling": run.sampling not in (None, "full"),
        "weights": run.weights is not None,
        "record_every": run.record_every not in (None, 1),
        "record_sample": run.record_sample is not None,
        "watch": run.watch is False,
        "goal": run.goal is not None,
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise InputError(
                f"{name} = {getattr(run, name)} cannot be used with secure sums, which need all workers in all rounds,"
                " with equal weights, the same number of local steps and a record of every round; leave it out."
            )
    if num_workers < 3:
        raise InputError(
            f"Secure sums need at least three workers, not {num_workers}: with two, each could work out the other's"
            " part; start more."
        )


def _check_algorithm(algorithm: Algorithm, model: torch.Tensor) -> None:
    """Raise an error if what the algorithm's workers remember or send cannot be summed securely."""
    if algorithm.worker_init(model):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, which is not possible with secure sums; use fedavg, or"
            " optimiser_state = reset for a local optimiser."
        )
    if any(name.startswith(("optimiser.", "clock.")) for name in answer_of(algorithm, model, {})[0]):
        raise InputError(
            "Secure sums round to about 1e-7, which is too coarse for averaged optimiser states and for clocks of local"
            " steps; choose optimiser_state = reset, and schedules by=round."
        )


class _SummedParts:
    """The means of a request's parts, to be read part by part in the order of the request."""

    def __init__(self, vectors: Iterable[torch.Tensor], num_workers: int, round: int) -> None:
        self._vectors, self._num_workers, self._round = iter(vectors), num_workers, round

    def next(self, length: int) -> list[torch.Tensor] | None:
        """The next ``length`` vectors; ``None`` if a worker's numbers were not finite."""
        vectors, marks = list(islice(self._vectors, length)), next(self._vectors)
        # A mark from one worker adds 1 / N to the mean.
        not_finite, beyond = (marks * self._num_workers > 0.5).tolist()
        if not_finite:
            return None
        if beyond:
            raise MachineError(
                f"In round {self._round} a worker had a number beyond {CLIPPING:g}, which cannot be summed securely;"
                " the rounds before it are kept; use a smaller gamma or fewer local steps."
            )
        return vectors
