"""Flower: ``run_simulation`` on its Ray backend with one CPU per client, so two actors on two cores, and FedAvg.

Flower leaves the training to its user: here the loop of ``benchmarks/rounds.py``. Ray's idle processes cost time,
and a simulation cannot wait for long, so each turn starts a simulation and ends it: one round to warm up, in which the
actors make their data, and then the rounds that count. No client evaluates, and the logs of Flower and Ray are reduced.
"""

from __future__ import annotations

import logging
import os
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.contestants import flower_client
from peers.networks import make_network, values_of
from peers.workloads import Contestant


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("flwr", "ray", "torch")
    work = contestant.work
    logging.getLogger("flwr").setLevel(logging.ERROR)
    arrays = ArrayRecord(make_network().state_dict())
    warm_up = 0

    def run(rounds: int) -> float:
        nonlocal warm_up
        seconds = 0.0
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            nonlocal arrays, seconds
            strategy = FedAvg(
                fraction_train=work.participants / work.num_workers,
                fraction_evaluate=0.0,
                min_train_nodes=work.participants,
                min_available_nodes=work.num_workers,
            )
            for number in (warm_up, rounds):
                config = ConfigRecord({"workload": work.name})
                began = time.perf_counter()
                if number:
                    arrays = strategy.start(grid, arrays, num_rounds=number, train_config=config).arrays
                seconds = time.perf_counter() - began

        run_simulation(
            server,
            flower_client.app,
            num_supernodes=work.num_workers,
            backend_config={
                "init_args": {"num_cpus": contestant.processes, "include_dashboard": False, "logging_level": "error"},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        # The check consists of the first rounds, without a warm-up before them.
        warm_up = 1
        return seconds

    contestant.serve(run, lambda: values_of(arrays.to_torch_state_dict().values()))


if __name__ == "__main__":
    main()
