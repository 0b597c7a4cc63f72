"""Measuring around a strategy of Flower's own and a training function of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, Result
from integrations.flower.tests.here import HereGrid
from integrations.flower.tests.measured_app import own_app
from integrations.flower.tests.task import read

from fedgauge import Experiment, execute
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.runs.reader import read_run
from fedgauge.values import Trace
from fedgauge_flower import Gauge, plan_run

ROUNDS = 4


@pytest.fixture(scope="module")
def local(experiment: Experiment) -> Trace:
    """What the local engine records, with the workers weighed by their examples as Flower's FedAvg does."""
    return execute(experiment.changed({"rounds": ROUNDS, "weights": "sizes", "processes": 1}))


@pytest.fixture
def first(shards: Path) -> ArrayRecord:
    """The first global model, as a state_dict."""
    shard = read(shards / "test.npz")
    federation: SupervisedFederation = shard.federation()
    module = federation._made(3)
    return ArrayRecord(module.state_dict())


def _run(gauge: Gauge, shards: Path, first: ArrayRecord, grid: HereGrid | None = None) -> Result:
    grid = grid or HereGrid([own_app(shards)] * 3)
    return gauge.start(grid, first, num_rounds=ROUNDS, timeout=10)


def test_records_are_those_of_a_local_run(local: Trace, shards: Path, first: ArrayRecord) -> None:
    gauge = Gauge(FedAvg(fraction_evaluate=0.0))
    result = _run(gauge, shards, first)
    assert result.arrays is not None
    model = np.concatenate([array.numpy().reshape(-1) for array in result.arrays.values()])
    # Autograd and the sums of Flower's own averaging round otherwise than the local engine.
    assert np.allclose(model, local.model, rtol=0, atol=2e-6)
    assert len(gauge.rounds) == len(local.rounds) == ROUNDS + 1
    for there, here in zip(gauge.rounds, local.rounds, strict=True):
        for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_tilde_ratio", "L_g_ratio", "L_h_ratio"):
            expected = getattr(here, name)
            assert getattr(there, name) == (expected and pytest.approx(expected, rel=1e-5)), name


def test_the_strategy_sees_its_own_messages_alone(shards: Path, first: ArrayRecord) -> None:
    gauge = Gauge(FedAdam(fraction_evaluate=0.0))
    with_gauge = _run(gauge, shards, first)
    assert gauge.events == []
    assert all(record.L_g_ratio for record in gauge.rounds[:-1])
    without = FedAdam(fraction_evaluate=0.0).start(
        HereGrid([own_app(shards, gauged=False)] * 3), first, num_rounds=ROUNDS, timeout=10
    )
    assert with_gauge.arrays is not None
    assert without.arrays is not None
    for name, array in with_gauge.arrays.items():
        # Flower adds up the answers in the order in which they come.
        assert np.allclose(array.numpy(), without.arrays[name].numpy(), rtol=0, atol=1e-4)


def test_an_exchange_a_round_and_one_at_the_end(shards: Path, first: ArrayRecord) -> None:
    grid = HereGrid([own_app(shards)] * 3)
    _run(Gauge(FedAvg(fraction_evaluate=0.0)), shards, first, grid)
    assert grid.exchanges == ROUNDS + 1


def test_a_run_is_kept_shown_reported_and_planned_from(
    shards: Path, first: ArrayRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    settings = {"local_steps": 5, "gamma": 0.1}
    _run(Gauge(FedAvg(fraction_evaluate=0.0), out=out, settings=settings), shards, first)
    assert main(["runs", "show", str(out)]) == 0
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert "L_h" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    limits = ["runs", "check", str(out), "--values", str(out / "measure.json"), "--json"]
    main(limits)
    assert set(json.loads(capsys.readouterr().out)["limits"]) == {"L_h", "L_g", "L_tilde"}
    plan = plan_run(out, goal="grad2=0.05", cost="cross-silo")
    assert plan.I >= 1
    assert not plan.certified
    assert main(["report", str(out), "--out", str(tmp_path / "planned.html")]) == 0
    assert "Theorem 4.3" in (tmp_path / "planned.html").read_text()
    numbers = ["I=5", "R=100", "N=3", "gamma=0.01", "--values", str(out / "measure.json"), "--json"]
    assert main(["theory", "bound", "nonconvex", *numbers]) == 0


def test_a_part_of_the_nodes_is_measured_without_L_g(shards: Path, first: ArrayRecord) -> None:  # noqa: N802
    gauge = Gauge(FedAvg(fraction_train=0.67, fraction_evaluate=0.0))
    _run(gauge, shards, first)
    assert all(record.L_h_ratio and record.L_g_ratio is None for record in gauge.rounds[:-1])


def test_a_run_says_who_took_part_and_not_what_nobody_knows(
    shards: Path, first: ArrayRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    _run(Gauge(FedAvg(fraction_train=0.67, fraction_evaluate=0.0), out=out), shards, first)
    settings = read_run(out).settings
    assert settings["participation"] == {"sampling": "without-replacement", "participants": 2, "weights": None}
    assert settings["local_steps"] is None
    assert json.loads((out / "measure.json").read_text())["settings"]["num_workers"] == 3
    assert main(["runs", "show", str(out)]) == 0
    assert "unknown local steps" in capsys.readouterr().out
    assert main(["runs", "compare", str(out), str(out), "--plot", str(tmp_path / "compared.png")]) == 0
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "FedAvg with I = unknown" in page


def test_a_plan_reckons_with_those_who_took_part(shards: Path, first: ArrayRecord, tmp_path: Path) -> None:
    out = tmp_path / "run"
    _run(Gauge(FedAvg(fraction_train=0.67, fraction_evaluate=0.0), out=out), shards, first)
    # Rounds of some nodes do not show L_g, which the theorem for some workers needs.
    with pytest.raises(InputError, match=r"A plan by partial-without \(Theorem 4\.5\) lacks L_g"):
        plan_run(out, goal="grad2=0.05", cost="cross-silo")


def test_the_noise_of_nodes_without_a_number_is_kept(shards: Path, first: ArrayRecord, tmp_path: Path) -> None:
    plain, grid = HereGrid([own_app(shards)] * 3), HereGrid([own_app(shards)] * 3)
    _run(Gauge(FedAvg(fraction_evaluate=0.0), out=tmp_path / "numbered"), shards, first, plain)
    for context in grid._contexts.values():
        context.node_config.clear()
    _run(Gauge(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run"), shards, first, grid)
    noise, expected = (
        [json.loads(line)["sigma2"] for line in (tmp_path / name / "noise.jsonl").read_text().splitlines()]
        for name in ("run", "numbered")
    )
    assert [set(each) for each in noise] == [{"100", "101", "102"}] * (ROUNDS + 1)
    assert [list(each) for each in expected] == [["0", "1", "2"]] * (ROUNDS + 1)
    for there, here in zip(noise, expected, strict=True):
        assert list(there.values()) == pytest.approx(list(here.values()), rel=1e-4)
    found, wanted = (
        json.loads((tmp_path / name / "measure.json").read_text())["constants"] for name in ("run", "numbered")
    )
    for symbol in ("sigma", "sigma_rms"):
        assert found[symbol]["value"] == pytest.approx(wanted[symbol]["value"], rel=1e-4)
    assert found["sigma"]["value"] > found["sigma_rms"]["value"]


def test_a_directory_that_is_taken_is_refused_before_any_training(
    shards: Path, first: ArrayRecord, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").touch()
    grid = HereGrid([own_app(shards)] * 3)
    with pytest.raises(InputError, match="holds files but no run"):
        _run(Gauge(FedAvg(fraction_evaluate=0.0), out=tmp_path), shards, first, grid)
    assert grid.exchanges == 0


def test_what_was_recorded_before_a_failure_is_kept(shards: Path, first: ArrayRecord, tmp_path: Path) -> None:
    class Fails(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            if server_round == 3:
                raise RuntimeError("out of memory")
            return super().aggregate_train(server_round, replies)

    out, grid = tmp_path / "run", HereGrid([own_app(shards), own_app(shards), own_app(shards, gauged=False)])
    with pytest.raises(RuntimeError, match="out of memory"):
        _run(Gauge(Fails(fraction_evaluate=0.0), out=out), shards, first, grid)
    found = read_run(out)
    assert (found.status, [record.round for record in found.rounds]) == ("unfinished", [0, 1])
    assert "no gauge_mod" in found.incidents[0]


def test_wrong_answers_do_not_reach_the_strategy(shards: Path, first: ArrayRecord) -> None:
    grid = HereGrid([own_app(shards)] * 3)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records.get("arrays")
        if worker == 1 and arrays is not None and len(gauge.rounds) == 1:
            arrays["1.weight"] = Array(np.full((16, 64), np.nan, dtype=np.float32))
        return reply

    grid.spoil = spoil
    gauge = Gauge(FedAvg(fraction_evaluate=0.0))
    result = _run(gauge, shards, first, grid)
    assert result.arrays is not None
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    refused = [event for event in gauge.events if event["what"] == "refused"]
    assert refused
    assert all(event["node"] == "101" and "1.weight is not finite" in event["why"] for event in refused)


def test_a_client_without_the_mod_is_named(shards: Path, first: ArrayRecord) -> None:
    gauge = Gauge(FedAvg(fraction_evaluate=0.0))
    _run(gauge, shards, first, HereGrid([own_app(shards), own_app(shards), own_app(shards, gauged=False)]))
    assert {event["node"] for event in gauge.events} == {"102"}
    assert "no gauge_mod" in gauge.events[0]["why"]


def test_a_strategy_with_its_own_start_is_refused() -> None:
    class Own(FedAvg):
        def start(self, *arguments: object, **named: object) -> Result:
            return Result()

    with pytest.raises(InputError, match="Own overrides start"):
        Gauge(Own())
