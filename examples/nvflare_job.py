"""An NVFlare job whose local steps a live gauge chooses: python examples/nvflare_job.py."""

import os
import sys

import nvflare.client as flare
import torch
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from torch.nn.functional import cross_entropy

import fedgauge as fg
from fedgauge_nvflare import LiveAggregator

CLIENTS, LOCAL_STEPS, STEPS, COST = 2, 16, int(os.environ.get("STEPS", "1024")), 10
digits = fg.load_dataset("digits")
inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)


class Model(torch.nn.Linear):  # noqa: D101
    def __init__(self):
        torch.manual_seed(0)  # the server makes the first model, from its class
        super().__init__(64, 10)


class Aggregator(LiveAggregator):  # noqa: D101
    def evaluate(self, params):
        """The loss of the averaged model, on the server."""
        model = Model()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in params.items()})
        return cross_entropy(model(inputs), labels).item()


def train() -> None:
    """One client: as many steps a round as the model says that it receives."""
    flare.init()
    number, model = int(flare.get_site_name().removeprefix("site-")) - 1, Model()
    mine, batches = torch.argsort(labels, stable=True).chunk(CLIENTS)[number], torch.Generator().manual_seed(number)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict(received.params)
        for _ in range(received.meta["local_steps"]):
            batch = mine[torch.randint(len(mine), (20,), generator=batches)]
            optimiser.zero_grad()
            cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimiser.step()
        flare.send(flare.FLModel(params=model.state_dict()))


def submit() -> None:
    """Run the job in NVFlare's simulator; the server's log ends with the answer."""
    aggregator = Aggregator(LOCAL_STEPS, STEPS, COST, candidates=(8, 16), explore=0.5)
    settings = {"train_script": __file__, "train_args": "--train", "stop_cond": f"steps >= {STEPS}"}
    recipe = FedAvgRecipe(model=Model(), aggregator=aggregator, min_clients=CLIENTS, num_rounds=STEPS, **settings)
    recipe.execute(SimEnv(num_clients=CLIENTS))


if __name__ == "__main__":
    train() if "--train" in sys.argv else submit()
