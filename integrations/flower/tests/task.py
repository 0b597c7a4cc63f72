"""What a test's nodes share: the model and how a shard is read. Copied into the tests' Flower apps as it is."""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from fedgauge.federation.models import mlp
from fedgauge_flower import Shard


def read(path: str | Path, test: bool = False, width: int = 16) -> Shard:
    with np.load(path) as data:
        inputs, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    return Shard(mlp((64,), 10, width=width).make, functional.cross_entropy, inputs, labels, test=test)
