"""DiLoCo by torchft, in a process of its own: three replicas in threads, a lighthouse, and gloo between them.

Writes the flat global model after all rounds to the file that is named as the first argument.
"""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from tests.algorithms.test_optimisers import GAMMA, ROUNDS, SEED, STEPS, network
from torch import distributed
from torchft._torchft import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from fedgauge.base.randomness import Purpose, Streams

WAIT = timedelta(seconds=60)


def replica(worker: int, lighthouse: str) -> torch.Tensor:
    """One worker's part, as torchft has it: DiLoCo acts when the inner optimiser steps."""
    federation, gradient = network()
    module: Any = copy.deepcopy(federation.module)
    with torch.no_grad():
        for name, value in federation.unflatten(federation.start(SEED)).items():
            module.get_parameter(name).copy_(value)
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    manager: Any = Manager(
        pg=ProcessGroupGloo(timeout=WAIT),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=federation.num_workers,
        use_async_quorum=False,
        init_sync=False,
        timeout=WAIT,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        lighthouse_addr=lighthouse,
        replica_id=str(worker),
    )
    try:
        inner = torch.optim.AdamW(module.parameters(), GAMMA, weight_decay=0.1)
        outer = torch.optim.SGD(module.parameters(), 0.7, momentum=0.9, nesterov=True)
        streams = Streams(SEED, Purpose.NOISE)
        with DiLoCo(manager, [module], inner, outer, sync_every=STEPS):
            for round in range(ROUNDS):
                for numbers in federation.draws(streams, round, np.array([worker]), np.array([0]), STEPS):
                    slopes = federation.unflatten(gradient(federation.flatten(module), worker, numbers))
                    for name, slope in slopes.items():
                        module.get_parameter(name).grad = slope.clone()
                    inner.step()
        return federation.flatten(module).detach()
    finally:
        manager.shutdown(wait=False)


def main(path: str) -> None:
    """Run the replicas and save their common model."""
    torch.set_num_threads(1)
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=3, join_timeout_ms=60000)
    with ThreadPoolExecutor(3) as pool:
        models = list(pool.map(lambda worker: replica(worker, server.address()), range(3)))
    assert all(torch.equal(models[0], model) for model in models)
    np.save(path, models[0].numpy())
    server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
