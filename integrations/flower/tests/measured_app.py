"""A user's own Flower app, with a training function that knows nothing of fedgauge's, gauged in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from integrations.flower.tests.task import read

from fedgauge.base.randomness import Purpose, Streams
from fedgauge_flower import gauge_mod

STEPS, GAMMA, SEED = 5, 0.1, 3


def own_app(shards: Path, *mods: Any, gauged: bool = True, evaluates: bool = True) -> ClientApp:
    """Plain SGD by autograd, with the mini-batches that fedgauge would draw for the same seed."""

    def number(context: Context) -> int:
        return int(context.node_config.get("partition-id", context.node_id - 100))

    def shard(context: Context):  # type: ignore[no-untyped-def]
        return read(shards / f"{number(context)}.npz")

    app = ClientApp(mods=[*mods, *([gauge_mod(shard)] if gauged else [])])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mine = shard(context)
        module = mine.model()
        module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        round = int(message.content.config_records["config"]["server-round"]) - 1  # type: ignore[arg-type]
        generator = Streams(SEED, Purpose.NOISE).at(round, number(context))
        steps = int(message.content.config_records["config"].get("local-steps", STEPS))  # type: ignore[arg-type]
        batches = generator.integers(len(mine.targets), size=(steps, mine.batch_size))
        optimiser = torch.optim.SGD(module.parameters(), lr=GAMMA)
        for batch in torch.from_numpy(np.asarray(batches)):
            optimiser.zero_grad()
            mine.loss(module(mine.inputs[batch]), mine.targets[batch]).backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": len(mine.targets)})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    if not evaluates:
        return app

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        mine = shard(context)
        module = mine.model()
        module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        with torch.no_grad():
            loss = mine.loss(module(mine.inputs), mine.targets).item()
        metrics = MetricRecord({"num-examples": len(mine.targets), "loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app
