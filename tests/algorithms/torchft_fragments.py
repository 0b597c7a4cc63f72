"""DiLoCo in two fragments by torchft, in a process of its own: three replicas, a lighthouse, and gloo between them.

Writes the flat global model after all rounds to the file that is named first, before the delay, mix and rounds.
"""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from tests.algorithms.fragments import GAMMA, SEED, STEPS, fragmented, gradients
from torch import distributed
from torchft._torchft import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

WAIT = timedelta(seconds=60)


def replica(worker: int, lighthouse: str, delay: int, mix: float, rounds: int) -> torch.Tensor:
    """One worker's part, as torchft has it: DiLoCo acts when the inner optimiser steps."""
    federation = fragmented()
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
        parts = [module[0], module[2]]
        outer = [torch.optim.SGD(each.parameters(), 0.7, momentum=0.9, nesterov=True) for each in parts]
        # A fragment is sent so many steps before the end of a chunk; the last one is applied after further steps.
        chunks = [STEPS - delay] + [STEPS] * (rounds - 1) + [delay] if delay else [STEPS] * rounds
        with DiLoCo(
            manager, parts, inner, outer, 2 * STEPS, fragment_sync_delay=delay, fragment_update_alpha=mix
        ) as diloco:
            for round, steps in enumerate(chunks):
                for gradient in gradients(federation, worker, round, steps):
                    slopes = federation.unflatten(gradient(federation.flatten(module)))
                    for name, slope in slopes.items():
                        module.get_parameter(name).grad = slope.clone()
                    inner.step()
        sent = [each.original_parameters["weight"].reshape(-1) for each in diloco._fragments]
        return torch.cat(sent)
    finally:
        manager.shutdown(wait=False)


def main(path: str, delay: str, mix: str, rounds: str) -> None:
    """Run the replicas and save their common model."""
    torch.set_num_threads(1)
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=3, join_timeout_ms=60000)
    with ThreadPoolExecutor(3) as pool:
        models = list(
            pool.map(lambda worker: replica(worker, server.address(), int(delay), float(mix), int(rounds)), range(3))
        )
    assert all(torch.equal(models[0], model) for model in models)
    np.save(path, models[0].numpy())
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
