"""Losses and accuracies by worker, against a loop over the shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgauge import Experiment, execute, prepare, random_quadratics
from fedgauge.cli import main
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.measurement.worker_evaluation import evaluate_workers

EXPERIMENT = {"source": "digits", "scheme": "dirichlet", "gamma": 0.1, "rounds": 2, "processes": 1, "workers": 12}


def test_each_worker_is_evaluated_on_its_own_examples() -> None:
    setup = prepare(Experiment.of(EXPERIMENT))
    federation: Any = setup.federation
    assert isinstance(federation, SupervisedFederation)
    model = setup.first_model
    found = evaluate_workers(federation, model)
    assert found.accuracies is not None
    assert found.examples == tuple(federation.sizes(np.arange(12)).tolist())
    for worker in range(12):
        x, y = federation.shard(worker)
        outputs = torch.func.functional_call(federation.module, federation.unflatten(model), (x,))
        assert found.losses[worker] == pytest.approx(float(torch.nn.functional.cross_entropy(outputs, y)), rel=1e-5)
        assert found.accuracies[worker] == pytest.approx(float((outputs.argmax(dim=1) == y).double().mean()))


def test_the_worst_tenth_are_the_least_accurate_or_those_with_the_largest_losses() -> None:
    losses = tuple(float(value) for value in range(20))
    found = WorkerEvaluation(losses, tuple(1 - value / 20 for value in losses), None, "", "")
    assert found.worst_workers() == (19, 18)
    assert found.summary()["loss"]["worst 10%"] == 18.5
    assert found.summary()["accuracy"]["worst 10%"] == pytest.approx(0.075)
    assert found.summary()["loss"]["90% quantile"] == pytest.approx(np.quantile(losses, 0.9))
    assert WorkerEvaluation.from_json(found.to_json()) == found
    alone = WorkerEvaluation((2.0,), None, None, "", "")
    assert alone.worst_workers() == (0,)
    assert alone.summary()["loss"]["worst 10%"] == 2.0


def test_quadratics_have_losses_only() -> None:
    federation = random_quadratics(3, 2, linear_spread=1.0)
    found = evaluate_workers(federation, federation.start(0))
    assert found.accuracies is None
    assert found.examples is None


def test_the_command_reads_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(Experiment.of(EXPERIMENT), keep=tmp_path / "run")
    assert main(["runs", "evaluate", str(tmp_path / "run"), "--json", "--out", str(tmp_path / "workers.json")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "workers.json").read_text())
    assert len(found["losses"]) == len(found["accuracies"]) == 12
    assert found["worst_workers"] == np.argsort(found["accuracies"], kind="stable")[:2].tolist()
    assert main(["runs", "evaluate", str(tmp_path / "run")]) == 0
    assert "worst 10%" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert (
        main(["report", str(tmp_path / "run"), "--evaluation", str(tmp_path / "workers.json"), "--out", str(page)]) == 0
    )
    assert "How well it serves each worker" in page.read_text()
    federation = random_quadratics(3, 2)
    other = evaluate_workers(federation, federation.start(0)).to_json()
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert (
        main(["report", str(tmp_path / "run"), "--evaluation", str(tmp_path / "other.json"), "--out", str(page)]) == 2
    )
    assert "another federation" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "other.json"), "--out", str(page)]) == 0
