"""The server's part of a run on SuperNodes: the one round loop, with Flower's nodes as its engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.algorithms.paces import Chosen
from fedgauge.base.errors import InputError, MachineError, positive
from fedgauge.federation.participation import Participation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.engines.local import Engine
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import algorithm_of, local_steps_of, participation_of, share_out
from fedgauge.simulation.experiment.user_data import TestSet
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Keep, Recording
from fedgauge.simulation.setup import epochs_as_steps
from fedgauge.simulation.workers import Work
from fedgauge.values import Observer, Trace
from fedgauge_flower.answers import far_from_others
from fedgauge_flower.client import form_of
from fedgauge_flower.engine import FlowerEngine, RunSchedule
from fedgauge_flower.fleet import Fleet
from fedgauge_flower.noise import Noise
from fedgauge_flower.result import write_measurement
from fedgauge_flower.shard import Shard, experiment_of, held_out

WAIT, TIMEOUT = 120.0, 300.0
"""The default number of seconds to wait for the nodes to connect, and for each answer."""


class RemoteFederation:
    """What the server knows about a federation whose data stays with its workers.

    It has the model's shapes and first parameters, and a fingerprint of each worker's data. Whatever needs the data
    itself is computed by the workers.
    """

    processes: int | None = 1

    def __init__(self, own: SupervisedFederation, digests: Sequence[str]) -> None:
        self._own = own
        self.num_workers, self.dim = len(digests), own.dim
        self.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()

    @property
    def module(self) -> nn.Module:
        """The module, which has the names of the parameters."""
        return self._own.module

    @property
    def batch_size(self) -> int:
        """The number of samples in a mini-batch."""
        return self._own.batch_size

    def flatten(self, module: nn.Module) -> torch.Tensor:
        """A module's parameters as one vector."""
        return self._own.flatten(module)

    def unflatten(self, row: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""
        return self._own.unflatten(row)

    def chunk(self, participants: int) -> int:
        """One: each worker answers for itself."""
        return 1

    def start(self, seed: int) -> torch.Tensor:
        """The first global model."""
        return self._own.start(seed)


def run_on(
    grid: Grid,
    experiment: Experiment,
    shard: Shard,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    wait: float = WAIT,
    timeout: float = TIMEOUT,
    noise: bool = True,
    observer: Observer | None = None,
    engine: Callable[[Work, Fleet, RunSchedule, Noise], Engine] = FlowerEngine,
    chunk: int = 1,
) -> Trace:
    """Run an experiment's algorithm on the nodes of a Flower run, and save it as an ordinary run.

    The trajectory is that of ``simulate`` with the same seed. A round takes one exchange with the nodes.

    Args:
        grid: Flower's connection to the nodes.
        experiment: the algorithm, local steps, rounds, participation and seed; its data section says how many workers
            there are.
        shard: the model, and the test examples; any one example will do if there is no test.
        out: the directory for the run. It also gets ``measure.json``, the measured constants, and
            ``events.jsonl``, the workers that were lost or refused.
        resume: whether to resume the run in that directory.
        wait: the number of seconds to wait for all nodes to connect.
        timeout: the number of seconds to wait for each answer; a worker that has not answered by then is lost for the
            rest of the run.
        noise: whether to measure the variance of stochastic gradients at every recorded round, which takes a pass over
            single samples.
        observer: called after every round.
        engine: how the workers' part of a round is computed.
        chunk: the number of workers that the engine answers for at once.

    Returns:
        The trace of the run, as from ``simulate``.
    """
    own, run = shard.federation(), experiment.run
    evaluator, N = tested_with(experiment, shard, own), num_workers(experiment)
    place = None if out is None else Path(out)
    fleet = Fleet(grid, positive("timeout", timeout))
    hellos = fleet.gather(N, positive("wait", wait), form_of(own))
    federation: Any = RemoteFederation(own, [hellos[worker].digest for worker in range(N)])
    if run.record_sample is not None:
        raise InputError("record_sample is for runs on one machine or cluster: nodes record all their examples.")
    sizes = [hellos[worker].examples for worker in range(N)]
    participation = _participation(experiment, sizes)
    steps: Any = (
        local_steps_of(experiment, federation, participation)
        if run.local_epochs is None
        else epochs_as_steps(sizes, own.batch_size, run.local_epochs)
    )
    kept: list[Noise] = []
    adapts = isinstance(steps, Pace | Chosen)
    schedule = RunSchedule(
        participation,
        (1,) if adapts else (steps,) if isinstance(steps, int) else tuple(steps),
        run.rounds,
        run.seed,
        run.record_every or 1,
        run.watch is not False,
        adapts,
        noise,
        _first_round(place) if resume and place else 0,
    )

    def make_engine(work: Work) -> Engine:
        # By now the run's directory is open, and it is certain that this run may write there.
        fleet.record_in(place)
        kept.append(Noise(place))
        return engine(work, fleet, schedule, kept[-1])

    trace = simulate(
        federation,
        algorithm_of(experiment, steps),
        local_steps=steps,
        rounds=run.rounds,
        participation=participation,
        seed=run.seed,
        record=Recording(
            every=run.record_every or 1, evaluator=evaluator, watch=run.watch is not False, observer=observer
        ),
        stop=run.stop,
        compute=Compute(chunk=chunk, engine=make_engine),
        keep=None if place is None else Keep(place, resume, run.checkpoint_every, experiment.to_toml()),
    )
    # A run that had already ended has its measurement, unless it was killed just before writing it.
    if place and trace.status != "stopped" and (kept or not (place / "measure.json").exists()):
        write_measurement(place, trace, kept[-1] if kept else Noise(place), N, participation.objective(N))
    return trace


def num_workers(experiment: Experiment) -> int:
    """The number N of workers; if there is one worker per id, the number of ids in the data."""
    number = experiment.data.num_workers
    return share_out(experiment)[1].num_workers if number is None else number


def tested_with(experiment: Experiment, shard: Shard, own: SupervisedFederation) -> TestSet | None:
    """The test set for the global model, if there is one, as in a local run."""
    if shard.test:
        if shard.targets.ndim != 1 or shard.targets.is_floating_point():
            raise InputError(
                "Over Flower, accuracy is measured for one whole-number label per example only; give the server a shard"
                " of another kind (test=False)."
            )
        part = slice(experiment.data.test_examples)
        return TestSet(own, shard.inputs[part], shard.targets[part])
    if experiment.run.stop.accuracy is not None:
        raise InputError(
            "The goal accuracy needs test examples, and the server has none; leave it out, or give the server a shard"
            " of test examples (test=True)."
        )
    return None


def _participation(experiment: Experiment, sizes: Sequence[int]) -> Participation:
    if experiment.run.weights != "sizes":
        return participation_of(experiment)
    plain = participation_of(experiment.changed({"weights": None}))
    far = far_from_others({worker: {"size": torch.tensor([float(size)])} for worker, size in enumerate(sizes)})
    for worker in far:
        raise MachineError(
            f"Worker {worker} says that it has {sizes[worker]} examples, more than a million times as many as any"
            " other, and with weights = sizes it would decide alone; correct its data, or leave out weights."
        )
    shares = np.array(sizes, dtype=float)
    return Participation(plain.sampling, plain.participants, tuple((shares / shares.sum()).tolist()))


def _first_round(place: Path) -> int:
    """The round with which a resumed run begins."""
    states = sorted((place / "checkpoints").glob("*.safetensors"))
    return int(states[-1].stem) if states else 0


def server_app(load: Callable[[Context], Shard] | None = None, *, secure: bool = False) -> ServerApp:
    """Make a ServerApp that runs the experiment in the run's configuration, for nodes with :func:`client_app`.

    Besides the experiment's own keys (``gamma``, ``local-steps``, ``rounds``, ``workers``, ...) the configuration may
    have ``out`` (the directory for the run), ``resume``, ``wait`` and ``timeout`` (the number of seconds to wait for
    the nodes to connect, and for each answer) and ``noise`` (whether to measure sigma).

    Args:
        load: a function that loads the server's shard from its context: the model that all nodes share, and the test
            examples (any one example will do if there is no test). By default, the experiment's test data.
        secure: whether the server sees only sums of the workers' answers, by Flower's secure aggregation; for
            ``client_app(secure=True)``.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context)
        except (InputError, MachineError) as error:
            # Flower stores the message in the run's details and logs a traceback; print it on its own as well.
            print(f"fedgauge: {error}", flush=True)
            raise

    def serve(grid: Grid, context: Context) -> None:
        config = context.run_config
        experiment = experiment_of(config)
        shard = load(context) if load else held_out(experiment)
        options = {name: config[name] for name in ("wait", "timeout") if name in config}
        common: dict[str, Any] = {name: float(value) for name, value in options.items()}
        common |= {"out": str(config["out"]) if config.get("out") else None, "noise": bool(config.get("noise", True))}
        common |= {"resume": bool(config.get("resume", False)), "observer": _print_round}
        if secure:
            from fedgauge_flower.secure import run_securely

            trace = run_securely(grid, context, experiment, shard, **common)
        else:
            trace = run_on(grid, experiment, shard, **common)
        last = trace.rounds[-1] if trace.rounds else None
        where = f"; kept in {config['out']}" if config.get("out") else ""
        print(f"fedgauge: {trace.status} at round {trace.stopped_at}, loss {last.loss if last else '–'}{where}.")

    return app


def _print_round(done: int, record: Any) -> None:
    if record is not None:
        seen = "" if record.L_h_ratio is None else f", L_h measured {record.L_h_ratio:.4g}"
        accuracy = "" if record.accuracy is None else f", accuracy {record.accuracy:.2%}"
        print(f"fedgauge: round {record.round}, loss {record.loss:.6g}{accuracy}{seen}", flush=True)
