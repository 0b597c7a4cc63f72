"""The client of Flower's contestant, in a separate module, so that Ray's actors import it once and keep the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.nn import functional

from peers.networks import make_network
from peers.workloads import BATCH, GAMMA, WORKLOADS, make_data

app = ClientApp()


@dataclass(frozen=True)
class Held:
    """What an actor keeps from one message to the next."""

    x: torch.Tensor
    y: torch.Tensor
    module: nn.Module
    generator: np.random.Generator


@cache
def held(workload: str) -> Held:
    """Made at an actor's first message."""
    torch.set_num_threads(1)
    x, y = map(torch.from_numpy, make_data(WORKLOADS[workload]))
    return Held(x, y, make_network(), np.random.default_rng())


@app.train()
def train(message: Message, context: Context) -> Message:
    """I local steps."""
    workload = str(message.content["config"]["workload"])
    work, mine = WORKLOADS[workload], held(workload)
    mine.module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    parameters: list[torch.Tensor] = list(mine.module.parameters())
    worker = int(context.node_config["partition-id"])
    drawn = mine.generator.integers(work.samples, size=(work.local_steps, BATCH)) + worker * work.samples
    for batch in torch.from_numpy(drawn):
        loss = functional.cross_entropy(mine.module(mine.x[batch]), mine.y[batch])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-GAMMA)
    content = RecordDict(
        {"arrays": ArrayRecord(mine.module.state_dict()), "metrics": MetricRecord({"num-examples": work.samples})}
    )
    return Message(content=content, reply_to=message)
