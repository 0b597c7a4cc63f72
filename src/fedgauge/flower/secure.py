"""Runs of which the server sees sums alone: Flower's secure aggregation (SecAgg+) around all that a worker sends.

In every round each worker's vectors (its change, its model, its exact gradients at the global model, at its own and at
the mean model) and numbers (loss, squared norms, noise) go into one masked vector. The server unmasks the sum of all
and nothing else. The constants of a record are made of such sums, but for two: L_tilde's ratio is the root mean square
over workers where it is the largest otherwise, and sigma is the mean over workers.

Flower 1.41 offers SecAgg+ in its older interface only, with which its SecAggPlusWorkflow and secaggplus_mod are used
here as they are. A sum takes four exchanges.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flwr.compat.common.recorddict_compat as compat
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid

import fedgauge.flower.records as records
from fedgauge.algorithms import make_algorithm
from fedgauge.engines.work import Secants, Spread, Sums
from fedgauge.errors import InputError, MachineError, positive
from fedgauge.experiment import Experiment
from fedgauge.flower.client import Asked
from fedgauge.flower.fleet import Fleet, PromptGrid
from fedgauge.flower.result import write_measurement
from fedgauge.flower.shard import Shard
from fedgauge.runs import RunDirectory
from fedgauge.simulation import compare
from fedgauge.values import Round, Trace

CLIPPING = 8.0
"""Entries beyond this cannot be summed."""
_SMALLER = 2.0**-6
"""Numbers such as losses and squared norms are sent as this part of them."""


# -- a worker ----------------------------------------------------------------------------------------------------------


def summand(message: Message, make: Any) -> Message:
    """A worker's part of a sum, to be masked by Flower's mod before it leaves the node.

    Args:
        message: what is asked, in the form of Flower's older interface.
        make: gives :class:`Asked` from the message's plain values and tensors.
    """
    asked = compat.recorddict_to_fitins(message.content, keep_input=True)
    said = json.loads(str(asked.config["fedgauge"]))
    arrays = parameters_to_ndarrays(asked.parameters)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in zip(said["names"], arrays, strict=True)}
    worker: Asked = make(said, tensors)
    vectors: list[torch.Tensor] = []
    for part in said["parts"]:
        vectors += _PARTS[part](worker)
    for vector in vectors:
        if not bool((vector.abs() <= CLIPPING).all()):
            raise InputError(
                f"A number that is to be summed securely is beyond {CLIPPING:g} or not finite; take a smaller gamma or"
                " fewer local steps."
            )
    sent = ndarrays_to_parameters([vector.double().numpy() for vector in vectors])
    # Everyone weighs the same, so that this number, which is not masked, says nothing.
    answer = FitRes(Status(Code.OK, ""), sent, num_examples=1, metrics={})
    return Message(compat.fitres_to_recorddict(answer, keep_input=False), reply_to=message)


def _evaluated(worker: Asked) -> list[torch.Tensor]:
    found, numbers = worker.evaluate(0)
    return [found["gradient"], torch.tensor([numbers["loss"], numbers.get("noise2", 0.0)]) * _SMALLER]


def _trained(worker: Asked) -> list[torch.Tensor]:
    found, _ = worker.local_phase(0)
    return [found[name] for name in sorted(found)]


def _looked(worker: Asked) -> list[torch.Tensor]:
    own = worker.kept(0)["x"]
    found, numbers = worker.secants(0)
    distance2 = float((own.double() - worker.tensors["mean"].double()).square().sum())
    change2 = numbers["steepest"] ** 2 * distance2
    return [found["gradient"], torch.tensor([numbers["squares"], change2, distance2], dtype=torch.float64) * _SMALLER]


_PARTS = {"look": _looked, "evaluate": _evaluated, "train": _trained}


# -- the server --------------------------------------------------------------------------------------------------------


class _Asking:
    """A strategy of Flower's older interface that asks all nodes the same and keeps the mean of their answers."""

    def __init__(self, nodes: Mapping[int, int], asked: FitIns) -> None:
        self._nodes, self._asked = nodes, asked
        self.mean: list[torch.Tensor] | None = None

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[tuple[Any, FitIns]]:
        """One message a node."""
        return [(SimpleNamespace(node_id=node), self._asked) for node in self._nodes.values()]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        """Keep the mean; the workflow has put it into every result."""
        arrays = parameters_to_ndarrays(results[0][1].parameters)
        self.mean = [torch.from_numpy(np.asarray(array, dtype=np.float64)) for array in arrays]
        return None, {}


def secure_mean(
    grid: Grid, context: Context, fleet: Fleet, round: int, tensors: Mapping[str, torch.Tensor], said: dict[str, Any]
) -> list[torch.Tensor]:
    """The mean of what the workers answer, of which nothing else is seen here."""
    number = len(fleet.nodes)
    asked = {**said, "names": list(tensors)}
    sent = ndarrays_to_parameters([tensor.numpy() for tensor in tensors.values()])
    strategy: Any = _Asking(fleet.nodes, FitIns(sent, {"fedgauge": json.dumps(asked)}))
    state = RecordDict(
        {MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: round}), MAIN_PARAMS_RECORD: ArrayRecord()}
    )
    plain = Context(context.run_id, context.node_id, context.node_config, state, context.run_config)
    legacy = LegacyContext(plain, strategy=strategy, client_manager=SimpleNamespace(num_available=lambda: number))  # type: ignore[arg-type]
    # Sums of so many entries stay below the modulus, 2^32.
    entries = 2 ** (31 - math.ceil(math.log2(number)))
    workflow = SecAggPlusWorkflow(
        1.0, 0.6, max_weight=1.0, clipping_range=CLIPPING, quantization_range=entries, timeout=fleet.timeout
    )
    workflow(PromptGrid(grid), legacy)
    if strategy.mean is None:
        raise MachineError(
            f"The secure sum of round {round} could not be taken: too few of {number} workers answered within"
            f" {fleet.timeout:g} s, or one sent what cannot be summed; see the SuperNodes' logs."
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
    """Run an experiment's algorithm on nodes of which the server sees sums alone, and measure all the same.

    All workers take part, weigh the same and remember nothing; there must be three of them or more. The trajectory is
    that of ``simulate`` up to the quantisation of secure sums, about 1e-7.

    Args:
        grid: Flower's way to the nodes, whose app is ``client_app(secure=True)``.
        context: of the ServerApp.
        experiment: algorithm, local steps, rounds and seed.
        shard: the model.
        out: directory for the run.
        wait: seconds for all nodes to come.
        timeout: seconds for each of the four exchanges of a sum.
        noise: measure sigma too.
    """
    run, N = experiment.run, experiment.data.workers or 10
    algorithm = make_algorithm(experiment.algorithm.name, **experiment.algorithm.parameters)
    if not isinstance(run.local_steps, int) or run.participants is not None or run.weights is not None:
        raise InputError("Secure sums are of all workers, with equal weights and one number of local steps.")
    if N < 3:
        raise InputError(f"Secure sums need three workers or more, not {N}: of two, each would know the other's part.")
    own = shard.federation()
    model = own.start(run.seed)
    if algorithm.worker_init(model):
        raise InputError(
            f"{algorithm.name} keeps a memory for each worker, which secure sums do not carry; use fedavg."
        )
    fleet = Fleet(grid, positive("timeout", timeout))
    fleet.gather(N, positive("wait", wait))
    said: dict[str, Any] = {
        "algorithm": algorithm.name,
        "parameters": list(algorithm.parameters),
        "numbers": list(algorithm.parameters.values()),
        "local_steps": [run.local_steps],
        "num_workers": N,
        "seed": run.seed,
        "noise": noise,
        "watch": True,
    }
    server: Mapping[str, torch.Tensor] = algorithm.init(model)
    names = [*sorted([f"message.{name}" for name in _messages(algorithm, model)] + ["gradient", "x"])]
    rounds: list[Round] = []
    seconds: list[float] = []
    noise2: list[dict[str, Any]] = []
    began = time.perf_counter()
    before: tuple[Round, torch.Tensor, torch.Tensor, Sums] | None = None
    for number in range(run.rounds + 1):
        last = number == run.rounds
        parts = [*(["look"] if before else []), "evaluate", *([] if last else ["train"])]
        tensors = {"model": model, **records.named("server", server)}
        if before is not None:
            mean = before[3].spread.mean
            assert mean is not None
            tensors["mean"] = mean.to(model.dtype)
        asked = {**said, "parts": parts, "round": number, "seen_from": number - 1}
        found = secure_mean(grid, context, fleet, number, tensors, asked)
        if before is not None:
            at_mean, numbers, *found = found
            rounds.append(_completed(*before, at_mean, (numbers / _SMALLER).tolist()))
            seconds.append(time.perf_counter() - began)
        gradient, numbers, *found = found
        loss, variance = (numbers / _SMALLER).tolist()
        if noise:
            noise2.append({"round": number, "sigma2": {"0": variance}})
        record = Round(number, loss, float(gradient @ gradient))
        if last:
            rounds.append(record)
            seconds.append(time.perf_counter() - began)
            break
        sent = dict(zip(names, found, strict=True))
        sums = Sums(spread=Spread(1.0, sent["x"], 0.0), gradient=sent["gradient"])
        before = (record, model, gradient, sums)
        message = {name: value.to(model.dtype) for name, value in records.part(sent, "message").items()}
        model, server = algorithm.update(model, server, message, 1.0)
    settings = {
        "federation": "summed securely over Flower",
        "algorithm": {"name": algorithm.name, **algorithm.parameters},
        "local_steps": run.local_steps,
        "rounds": run.rounds,
        "participation": {"sampling": "full", "participants": None, "weights": None},
        "seed": run.seed,
        "record_every": 1,
        "target_loss": None,
    }
    trace = Trace(settings, "finished", run.rounds, tuple(rounds), model.numpy().copy(), tuple(seconds))
    if out is not None:
        with RunDirectory.open(out, settings, description=experiment.to_toml()) as directory:
            for record, when in zip(rounds, seconds, strict=True):
                directory.append(record, when)
            directory.finish(trace)
        write_measurement(Path(out), trace, noise2, N)
    return trace


def _messages(algorithm: Any, model: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """What the algorithm's workers send, by name."""
    begun = algorithm.begin(model, algorithm.init(model), {})
    local = {name: value.expand(1, value.shape[-1]) for name, value in begun.items()}
    local = dict(algorithm.step(local, torch.zeros(1, len(model), dtype=model.dtype)))
    sent: Mapping[str, torch.Tensor] = algorithm.finish(model, local, torch.ones(1, 1, dtype=model.dtype))[0]
    return sent


def _completed(
    record: Round,
    model: torch.Tensor,
    gradient: torch.Tensor,
    sums: Sums,
    at_mean: torch.Tensor,
    numbers: list[float],
) -> Round:
    """The record of a round whose workers have seen their mean model."""
    squares, change2, distance2 = numbers
    sums.spread.squares = distance2
    steepest = (change2 / distance2) ** 0.5 if distance2 > 0 else 0.0
    seen = compare(model, gradient, sums, Secants(at_mean, squares, steepest))
    return Round(record.round, record.loss, record.grad2, **seen._asdict())
