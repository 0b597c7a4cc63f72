"""Runs in which the server sees only sums: Flower's secure aggregation (SecAgg+) masks everything that a worker sends.

In every round each worker puts its vectors (its change, its model, and its exact gradients at the global model, at its
own model and at the mean model) and its numbers (loss, squared norms, noise) into one masked vector. The server can
unmask only the sum over all workers. The constants of a record are made from such sums, with two differences: L_tilde's
ratio is the root mean square over workers instead of the largest, and sigma is the mean over workers.

Flower 1.41 offers SecAgg+ only in its older interface, so its SecAggPlusWorkflow and secaggplus_mod are used here
unchanged. A sum takes four exchanges.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import flwr.compat.common.recorddict_compat as compat
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid

import fedgauge_flower.records as records
from fedgauge.algorithms.torch_optimisers import fitted
from fedgauge.base.errors import InputError, MachineError, positive
from fedgauge.federation.participation import Participation
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import algorithm_of
from fedgauge.simulation.rounds import compare
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.settings import Settings
from fedgauge.simulation.workers import Secants, Spread, Sums
from fedgauge.values import Round, Trace
from fedgauge.values import Status as Ending
from fedgauge_flower.algorithms import described
from fedgauge_flower.client import WorkerTask, form_of
from fedgauge_flower.engine import answer_of
from fedgauge_flower.fleet import Fleet, PromptGrid
from fedgauge_flower.noise import Noise
from fedgauge_flower.result import write_measurement
from fedgauge_flower.server import num_workers, tested_with
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
    found, numbers = worker.evaluate(0)
    return [found["gradient"], torch.tensor([numbers["loss"], numbers.get("noise2", 0.0)]) * _SMALLER]


def _trained(worker: WorkerTask) -> list[torch.Tensor]:
    found, _ = worker.local_phase(0)
    return [found[name] for name in sorted(found)]


def _looked(worker: WorkerTask) -> list[torch.Tensor]:
    own = worker.kept(0)["x"]
    found, numbers = worker.secants(0)
    distance2 = float((own.double() - worker.tensors["mean"].double()).square().sum())
    change2 = numbers["steepest"] ** 2 * distance2
    return [found["gradient"], torch.tensor([numbers["squares"], change2, distance2], dtype=torch.float64) * _SMALLER]


_PARTS = {"look": _looked, "evaluate": _evaluated, "train": _trained}


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


def run_securely(
    grid: Grid,
    context: Context,
    experiment: Experiment,
    shard: Shard,
    *,
    out: str | Path | None = None,
    wait: float = 120.0,
    timeout: float = 300.0,
    noise: bool = True,
) -> Trace:
    """Run an experiment's algorithm on nodes while the server sees only sums of their answers, and measure the run.

    All workers take part, have the same weight and remember nothing. There must be at least three. The trajectory is
    that of ``simulate`` up to the quantisation of secure sums, about 1e-7. Records are written during the run, but an
    interrupted run cannot be resumed.

    Args:
        grid: Flower's connection to the nodes, whose app is ``client_app(secure=True)``.
        context: the context of the ServerApp.
        experiment: the algorithm, local steps, rounds and seed.
        shard: the model, and the test examples; any one example will do if there is no test.
        out: the directory for the run.
        wait: the number of seconds to wait for all nodes to connect.
        timeout: the number of seconds to wait in each of the four exchanges of a sum.
        noise: whether to measure sigma as well.
    """
    run, N = experiment.run, num_workers(experiment)
    _check(experiment, N)
    algorithm = algorithm_of(experiment, run.local_steps)  # type: ignore[arg-type]  # one number, as was checked
    own = shard.federation()
    server_side = fitted(algorithm, own)
    evaluator = tested_with(experiment, shard, own)
    model = own.start(run.seed)
    if server_side.worker_init(model):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, which is not possible with secure sums; use fedavg, or"
            " optimiser_state = reset for a local optimiser."
        )
    if any(name.startswith(("optimiser.", "clock.")) for name in answer_of(server_side, model, {})[0]):
        raise InputError(
            "Secure sums round to about 1e-7, which is too coarse for averaged optimiser states and for clocks of local"
            " steps; choose optimiser_state = reset, and schedules by=round."
        )
    fleet = Fleet(grid, positive("timeout", timeout))
    fleet.gather(N, positive("wait", wait), form_of(own))
    values: dict[str, Any] = {
        **described(algorithm),
        "local_steps": [run.local_steps],
        "num_workers": N,
        "seed": run.seed,
        "noise": noise,
        "watch": True,
    }
    settings = Settings(
        federation="summed securely over Flower",
        algorithm={"name": algorithm.name, **algorithm.parameters},
        local_steps=run.local_steps,  # type: ignore[arg-type]  # one number, as was checked
        rounds=run.rounds,
        participation=Participation(),
        seed=run.seed,
        record_every=1,
        target_loss=None,
        chunk=1,
        evaluator=evaluator.digest if evaluator else None,
    ).to_json()
    server: Mapping[str, torch.Tensor] = server_side.init(model)
    sent = answer_of(server_side, model, {})[0]
    names = [*sorted([f"message.{name}" for name in sent] + ["gradient", "x"])]
    # What a worker sends for each part of a request: vectors as long as the model, numbers, and two marks.
    whole = tuple(model.shape)
    shapes_of = {"look": [whole, (3,), (2,)], "evaluate": [whole, (2,), (2,)], "train": [whole] * len(names) + [(2,)]}
    rounds: list[Round] = []
    seconds: list[float] = []
    began = time.perf_counter()
    before: _Before | None = None
    status: Ending = "finished"
    stopped_at = run.rounds
    with ExitStack() as stack:
        directory = None
        if out is not None:
            directory = stack.enter_context(RunDirectory.open(out, settings, description=experiment.to_toml()))
            fleet.record_in(directory.path)
        noises = Noise(directory.path if directory else None)

        def keep(record: Round) -> None:
            rounds.append(record)
            seconds.append(time.perf_counter() - began)
            if directory:
                directory.append(record, seconds[-1])

        for number in range(run.rounds + 1):
            last = number == run.rounds
            parts = [*(["look"] if before else []), "evaluate", *([] if last else ["train"])]
            tensors = {"model": model, **records.named("server", server)}
            if before is not None:
                mean = before.sums.spread.mean
                assert mean is not None
                tensors["mean"] = mean.to(model.dtype)
            request = {**values, "parts": parts, "round": number, "seen_from": number - 1}
            try:
                shapes = [shape for part in parts for shape in shapes_of[part]]
                answer = _MeanAnswer(secure_mean(grid, context, fleet, number, tensors, request, shapes), N, number)
            except MachineError:
                if before is not None:
                    keep(before.record)  # without what this round would have seen of it
                raise
            if before is not None:
                keep(_completed(before, answer.part(2)))
            evaluated = answer.part(2)
            if evaluated is None:
                # As in every run that diverges, the last model with a finite loss is kept.
                status, stopped_at, model = "diverged", number, model if before is None else before.model
                break
            gradient, numbers = evaluated
            loss, variance = (numbers / _SMALLER).tolist()
            accuracy = evaluator.accuracy(model) if evaluator else None
            record = Round(number, loss, float(gradient @ gradient), accuracy=accuracy)
            if noise:
                noises.add(number, {"0": variance})
            trained = None if last else answer.part(len(names))
            if trained is None:
                keep(record)
                if not last:
                    status, stopped_at = "diverged", number + 1
                break
            changes = dict(zip(names, trained, strict=True))
            sums = Sums(spread=Spread(1.0, changes["x"], 0.0), gradient=changes["gradient"])
            before = _Before(record, model, gradient, sums)
            message = {name: value.to(model.dtype) for name, value in records.part(changes, "message").items()}
            model, server = server_side.update(model, server, message, 1.0)
        trace = Trace(settings, status, stopped_at, tuple(rounds), model.numpy().copy(), tuple(seconds))
        if directory:
            directory.finish(trace)
            write_measurement(directory.path, trace, noises, N)
    return trace


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


class _Before(NamedTuple):
    """A round whose workers have trained, but have not yet evaluated their mean model."""

    record: Round
    model: torch.Tensor
    gradient: torch.Tensor
    sums: Sums


class _MeanAnswer:
    """The mean answer of a round, to be read part by part in the order of the request."""

    def __init__(self, vectors: Iterable[torch.Tensor], num_workers: int, round: int) -> None:
        self._vectors, self._num_workers, self._round = iter(vectors), num_workers, round

    def part(self, length: int) -> list[torch.Tensor] | None:
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


def _completed(before: _Before, looked: list[torch.Tensor] | None) -> Round:
    """The record of a round whose workers have evaluated their mean model."""
    if looked is None:
        return before.record
    at_mean, numbers = looked
    squares, change2, distance2 = (numbers / _SMALLER).tolist()
    before.sums.spread.squares = distance2
    steepest = (change2 / distance2) ** 0.5 if distance2 > 0 else 0.0
    seen = compare(before.model, before.gradient, before.sums, Secants(at_mean, squares, steepest))
    return replace(before.record, **seen._asdict())
