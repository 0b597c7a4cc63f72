"""Digits on three workers, as a test's nodes have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

# Before Flower is imported, which reads it then.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["HF_HUB_OFFLINE"] = "1"

from integrations.flower.tests.fleet import Zygote

from fedgauge import Experiment, prepare

WORKERS = 3
ASKED = {
    "source": "digits",
    "workers": WORKERS,
    "scheme": "dirichlet",
    "alpha": 0.5,
    "model_option": {"width": 16},
    "gamma": 0.1,
    "local_steps": 5,
    "rounds": 20,
    "seed": 3,
}


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return Experiment.of(ASKED)


@pytest.fixture(scope="session")
def shards(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file a worker, and one of examples to test with: what the nodes of a test have."""
    place, prepared = tmp_path_factory.mktemp("shards"), prepare(experiment)
    assert prepared.dataset is not None
    for worker in range(WORKERS):
        x, y = prepared.federation.shard(worker)  # type: ignore[attr-defined]
        np.savez(place / f"{worker}.npz", x=x.numpy().reshape(len(x), -1), y=y.numpy())
    x, y = prepared.dataset.test_inputs, prepared.dataset.test_labels
    np.savez(place / "test.npz", x=np.array(x).reshape(len(x), -1), y=np.array(y))
    return place
