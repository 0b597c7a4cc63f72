"""Measuring takes a federation from Python; an experiment is a file format over the same call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgauge as fg
from fedgauge.measurement import proofs

OPTIONS = fg.MeasureOptions(("divergence", "noise", "trajectory", "curvature"), rounds=2, seeds=2)


def test_a_federation_is_measured_as_its_experiment_is(tmp_path: Path) -> None:
    federation = fg.random_quadratics(4, 3, hessian_spread=0.5, sigma2=0.1, seed=1)
    federation.write(tmp_path / "fed.json")
    experiment = fg.Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1, "local_steps": 5, "seed": 2})
    by_file = fg.measure(experiment, options=OPTIONS)
    seed: Any = np.int64(2)  # a whole number of numpy's is a seed too
    by_hand = fg.measure(federation, fg.fedavg(gamma=0.1), local_steps=5, seed=seed, options=OPTIONS)
    assert [reading.to_json() for reading in by_hand.readings] == [reading.to_json() for reading in by_file.readings]
    assert by_hand.point == by_file.point
    assert by_hand.settings["algorithm"] == {"name": "fedavg", "gamma": 0.1, "eta": 1.0}
    assert fg.Measurement.from_json(by_hand.to_json()).to_json() == by_hand.to_json()


def test_what_an_experiment_says_already_is_not_said_twice() -> None:
    experiment = fg.Experiment.of({"source": "digits", "gamma": 0.1})
    with pytest.raises(fg.InputError, match="already says its algorithm; change it there"):
        fg.measure(experiment, fg.fedavg(gamma=0.2))
    with pytest.raises(fg.InputError, match="already says its local_steps"):
        fg.measure(experiment, local_steps=3)
    with pytest.raises(fg.InputError, match="A federation needs an algorithm; pass one as well"):
        fg.measure(fg.random_quadratics(3, 2))


def test_a_regression_that_nothing_installed_proves_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    few = fg.MeasureOptions(rounds=1, seeds=1, most=1, passes=20)

    def measured(model: str, options: fg.MeasureOptions = few) -> fg.Measurement:
        experiment = fg.Experiment.of({"source": "digits", "gamma": 0.1, "model": model, "per_worker": 5})
        return fg.measure(experiment, options=options)

    said = "Constants that hold at every model are not proved, which takes another package; install it: pip install"
    for model in ("softmax", "linear"):
        # Installing it helps these.
        assert measured(model).readings[0].name == "certified"
        assert "remarks" not in measured(model).point
    monkeypatch.setattr(proofs, "plugins", lambda group: {})
    for model in ("softmax", "linear"):
        assert measured(model).point["remarks"] == [f"{said} fedgauge-verification."]
    assert "remarks" not in measured("mlp").point  # nothing proves the constants of a network
    assert "remarks" not in measured("softmax", replace(few, readings=("divergence",))).point  # not asked for
    shards = [(torch.randn(5, 3), torch.arange(5) % 2) for _ in range(3)]
    own = fg.federate(nn.Linear(3, 2), nn.CrossEntropyLoss(), shards)
    # Whether a loss of one's own has curvature that is known, the library cannot tell.
    assert "remarks" not in fg.measure(own, fg.fedavg(0.1), options=few).point
