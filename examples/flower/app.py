"""A Flower app whose local steps a live gauge chooses; the server evaluates the averaged model.

Without the variable, Flower makes an environment for the app and installs its dependencies from PyPI:
FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run examples/flower --stream
"""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.nn.functional import cross_entropy

import fedgauge as fg
from fedgauge_flower import LiveStrategy

digits = fg.load_dataset("digits")
inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)
client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One node's part of a round: as many steps as the message says."""
    config, number = message.content["config"], int(context.node_config["partition-id"])
    mine = torch.argsort(labels, stable=True).chunk(int(context.node_config["num-partitions"]))[number]
    model = torch.nn.Linear(inputs.shape[1], 10)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(1000 * config["server-round"] + number)
    for _ in range(config["local-steps"]):
        batch = mine[torch.randint(len(mine), (20,), generator=batches)]
        optimiser.zero_grad()
        cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """The server's part: any strategy, in a LiveStrategy."""
    config, own = context.run_config, int(context.run_config["local-steps"])
    torch.manual_seed(0)
    model = torch.nn.Linear(inputs.shape[1], 10)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            return MetricRecord({"loss": cross_entropy(model(inputs), labels).item()})

    numbers = (max(own // 2, 1), own, 2 * own)  # closer together than by default: trying them takes fewer rounds
    live = fg.LiveGauge(own, config["steps"], cost=config["cost"], candidates=numbers, explore=config["explore"])
    LiveStrategy(FedAvg(fraction_evaluate=0.0), live).start(grid, ArrayRecord(model.state_dict()), evaluate_fn=evaluate)
    print(live.answer())
    print(f"Of those that it tried, the run stays with {live.local_steps} local steps.")
