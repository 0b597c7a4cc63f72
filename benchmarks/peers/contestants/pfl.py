"""pfl-research: ``FederatedAveraging`` on its ``SimulatedBackend``, in one process or in several.

Its datasets are read in order and at most once, so a user's dataset for a round consists of I batches drawn with
replacement, fetched by one index. Users are chosen by its ``minimize_reuse`` sampler, each once in ten rounds of many.
Nothing is evaluated after the first round, and no metrics are printed. With several processes, the users of a round are
divided among them and the updates summed by torch.distributed, as its documentation describes for distributed
simulations.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from peers.networks import make_network, values_of
from peers.workloads import BATCH, GAMMA, Contestant, NoMoreTurns

RANK = "PFL_WORKER_RANK"


class Classifier(nn.Module):
    """The common model with the methods that pfl requires."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Cross entropy."""
        return functional.cross_entropy(self.network(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        """Do nothing."""
        return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_others(number: int) -> list[subprocess.Popen[str]]:
    """Start the other processes of a distributed simulation; they are this program, at another rank."""
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join([f"127.0.0.1:{_free_port()}"] * number)
    os.environ[RANK] = "0"
    command = [sys.executable, "-P", "-m", "peers.contestants.pfl", *sys.argv[1:]]
    return [
        subprocess.Popen(command, env={**os.environ, RANK: str(rank)}, stdin=subprocess.PIPE, stdout=2, text=True)
        for rank in range(1, number)
    ]


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("pfl", "torch")
    work = contestant.work
    others = _start_others(contestant.processes) if contestant.processes > 1 and RANK not in os.environ else []

    # Importing pfl connects the processes, so it comes after they are started.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(contestant.threads)
    np.random.seed(0)  # noqa: NPY002 (pfl draws its seeds from there)
    x, y = map(torch.from_numpy, contestant.data)
    generator = np.random.default_rng(int(os.environ.get(RANK, 0)))

    def dataset(worker: int) -> PyTorchTensorDataset:
        drawn = generator.integers(work.samples, size=work.local_steps * BATCH) + worker * work.samples
        return PyTorchTensorDataset((x[drawn], y[drawn]))

    users = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(work.num_workers))))
    module = Classifier()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    backend = SimulatedBackend(training_data=users, val_data=users)
    algorithm = FederatedAveraging()
    training = NNTrainHyperParams(
        local_num_epochs=None, local_num_steps=work.local_steps, local_learning_rate=GAMMA, local_batch_size=BATCH
    )
    done = 0

    def run(rounds: int) -> None:
        nonlocal done
        for other in others:
            assert other.stdin is not None
            print(rounds, file=other.stdin, flush=True)
        done += rounds
        parameters = NNAlgorithmParams(
            central_num_iterations=done,
            evaluation_frequency=sys.maxsize,
            train_cohort_size=work.participants,
            val_cohort_size=None,
        )
        algorithm.run(parameters, backend, model, training, send_metrics_to_platform=False)

    if os.environ.get(RANK, "0") == "0":
        contestant.serve(run, lambda: values_of(module.parameters()))
        for other in others:
            other.communicate()
        return
    try:
        while True:
            run(contestant.next_turn())
    except NoMoreTurns:
        return


if __name__ == "__main__":
    main()
