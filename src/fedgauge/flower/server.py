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

from fedgauge.errors import InputError, MachineError, positive
from fedgauge.experiment.config import Experiment
from fedgauge.experiment.prepare import TestSet, algorithm_of, participation_of, share_out
from fedgauge.federation.participation import Participation
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.flower.client import form_of
from fedgauge.flower.engine import FlowerEngine, Schedule
from fedgauge.flower.fleet import EVENTS, Fleet
from fedgauge.flower.noise import Noise
from fedgauge.flower.result import write_measurement
from fedgauge.flower.shard import Shard, experiment_of, held_out
from fedgauge.pace.adaptive import CAP, adaptive_pace
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Keep, Observer, Recording
from fedgauge.simulation.workers import Work
from fedgauge.values import Trace

WAIT, TIMEOUT = 120.0, 300.0
"""Seconds for the nodes to come, and for each answer."""


class RemoteFederation:
    """A federation whose data stays with its workers: what the server knows of it.

    It has the model's form and first value, and a fingerprint of what each worker has; whatever needs data is asked of
    the workers.
    """

    processes: int | None = 1

    def __init__(self, own: SupervisedFederation, digests: Sequence[str]) -> None:
        self._own = own
        self.num_workers, self.dim = len(digests), own.dim
        self.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()

    @property
    def module(self) -> nn.Module:
        """The module, for the names of its parameters."""
        return self._own.module

    @property
    def batch_size(self) -> int:
        """Samples in a mini-batch."""
        return self._own.batch_size

    def flatten(self, module: nn.Module) -> torch.Tensor:
        """A module's parameters as one vector."""
        return self._own.flatten(module)

    def unflatten(self, row: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """The parameters by name, as views of a flat model."""
        return self._own.unflatten(row)

    def chunk(self, participants: int) -> int:
        """Each worker answers for itself."""
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
) -> Trace:
    """Run an experiment's algorithm on the nodes of a Flower run, and keep it as an ordinary run.

    The trajectory is that of ``simulate`` with the same seed. A round takes one exchange with the nodes.

    Args:
        grid: Flower's way to the nodes.
        experiment: algorithm, local steps, rounds, participation and seed; its data section says how many workers
            there are.
        shard: the model, and the examples to test with or any one.
        out: directory for the run; with it also ``measure.json``, the constants that were seen, and
            ``events.jsonl``, the workers that were lost or refused.
        resume: go on with the run in that directory.
        wait: seconds for all nodes to come.
        timeout: seconds for each answer; who has not answered by then is lost for the rest of the run.
        noise: measure also the variance of stochastic gradients at every recorded round, a pass over single samples.
        observer: told of every round.

    Returns:
        The trace, as ``simulate`` gives it.
    """
    own, run = shard.federation(), experiment.run
    evaluator, N = tested_with(experiment, shard, own), num_workers(experiment)
    place = None if out is None else Path(out)
    fleet = Fleet(grid, positive("timeout", timeout), place / EVENTS if place else None)
    said = fleet.gather(N, positive("wait", wait))
    _check_form(own, said)
    federation: Any = RemoteFederation(own, [said[worker]["digest"] for worker in range(N)])
    participation = _participation(experiment, [said[worker]["examples"] for worker in range(N)])
    steps: Any = run.local_steps
    if steps == "auto":
        steps = adaptive_pace(run.round_cost, federation, participation, run.most_local_steps or CAP)
    kept: list[Noise] = []
    adapts = run.local_steps == "auto"
    schedule = Schedule(
        participation,
        (1,) if adapts else (steps,) if isinstance(steps, int) else tuple(steps),
        run.rounds,
        run.seed,
        run.record_every,
        run.watch is not False,
        adapts,
        noise,
        _first_round(place) if resume and place else 0,
    )

    def make_engine(work: Work) -> FlowerEngine:
        # The run's directory is open by now, and whether this run may write there is known.
        kept.append(Noise(place))
        return FlowerEngine(work, fleet, schedule, kept[-1])

    trace = simulate(
        federation,
        algorithm_of(experiment),
        local_steps=steps,
        rounds=run.rounds,
        participation=participation,
        seed=run.seed,
        record=Recording(every=run.record_every, evaluator=evaluator, watch=run.watch is not False, observer=observer),
        stop=run.stop,
        compute=Compute(chunk=1, engine=make_engine),
        keep=None if place is None else Keep(place, resume, run.checkpoint_every, experiment.to_toml()),
    )
    # A run that had ended before has its measurement, unless it was killed in between.
    if place and trace.status != "stopped" and (kept or not (place / "measure.json").exists()):
        write_measurement(place, trace, kept[-1] if kept else Noise(place), N, participation.objective(N))
    return trace


def num_workers(experiment: Experiment) -> int:
    """N; where each id is a worker, as many as the data has."""
    given = experiment.data.num_workers
    return share_out(experiment)[1].num_workers if given is None else given


def tested_with(experiment: Experiment, shard: Shard, own: SupervisedFederation) -> TestSet | None:
    """What the global model is tested with, where there is something, as in a local run."""
    if shard.test:
        part = slice(experiment.data.test_examples)
        return TestSet(own, shard.inputs[part], shard.targets[part])
    if experiment.run.target_accuracy is not None:
        raise InputError(
            "target_accuracy needs examples to test on, and the server has none; leave it out, or give the server a"
            " shard of test examples (test=True)."
        )
    return None


def _check_form(own: SupervisedFederation, said: Mapping[int, Mapping[str, Any]]) -> None:
    """Refuse workers whose model is not the server's."""
    for worker, told in sorted(said.items()):
        if told["form"] != form_of(own):
            raise InputError(
                f"Worker {worker} has another model, loss or batch size than the server ({told['dim']} parameters, not"
                f" {own.dim}); give server and nodes the same code and configuration."
            )


def _participation(experiment: Experiment, sizes: Sequence[int]) -> Participation:
    if experiment.run.weights != "sizes":
        return participation_of(experiment)
    plain = participation_of(experiment.changed({"weights": None}))
    shares = np.array(sizes, dtype=float)
    return Participation(plain.sampling, plain.participants, tuple((shares / shares.sum()).tolist()))


def _first_round(place: Path) -> int:
    """The round that a resumed run goes on with."""
    states = sorted((place / "checkpoints").glob("*.safetensors"))
    return int(states[-1].stem) if states else 0


def server_app(load: Callable[[Context], Shard] | None = None, *, secure: bool = False) -> ServerApp:
    """A ServerApp that runs the experiment that the run's configuration describes, for :func:`client_app`.

    Besides the experiment's own keys (``gamma``, ``local-steps``, ``rounds``, ``workers``, ...) the configuration may
    have ``out`` (directory for the run), ``resume``, ``wait`` and ``timeout`` (seconds, for the nodes to come and for
    each answer) and ``noise`` (whether to measure sigma).

    Args:
        load: gives the server's shard from its context: the model that all share, and examples to test with or any
            one; if not given, the experiment's test data.
        secure: see sums of the workers' answers alone, by Flower's secure aggregation, for ``client_app(secure=True)``.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context)
        except (InputError, MachineError) as error:
            # Flower keeps the sentence as the run's details, and logs where it came from; here it stands by itself.
            print(f"fedgauge: {error}", flush=True)
            raise

    def serve(grid: Grid, context: Context) -> None:
        config = context.run_config
        experiment = experiment_of(config)
        shard = load(context) if load else held_out(experiment)
        options = {name: config[name] for name in ("wait", "timeout") if name in config}
        common: dict[str, Any] = {name: float(value) for name, value in options.items()}
        common |= {"out": str(config["out"]) if config.get("out") else None, "noise": bool(config.get("noise", True))}
        if secure:
            from fedgauge.flower.secure import run_securely

            if config.get("resume"):
                raise InputError("A run with secure sums cannot be resumed; leave resume out, and name another out.")
            trace = run_securely(grid, context, experiment, shard, **common)
        else:
            resume = bool(config.get("resume", False))
            trace = run_on(grid, experiment, shard, resume=resume, observer=_say, **common)
        last = trace.rounds[-1] if trace.rounds else None
        where = f"; kept in {config['out']}" if config.get("out") else ""
        print(f"fedgauge: {trace.status} at round {trace.stopped_at}, loss {last.loss if last else '–'}{where}.")

    return app


def _say(done: int, record: Any) -> None:
    if record is not None:
        seen = "" if record.L_h_ratio is None else f", L_h seen {record.L_h_ratio:.4g}"
        accuracy = "" if record.accuracy is None else f", accuracy {record.accuracy:.2%}"
        print(f"fedgauge: round {record.round}, loss {record.loss:.6g}{accuracy}{seen}", flush=True)
