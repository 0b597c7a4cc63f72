"""What server and nodes say to each other, with nodes in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, Message
from integrations.flower.tests.attacks import packed
from integrations.flower.tests.here import HereGrid
from integrations.flower.tests.task import read

from fedgauge import Experiment, execute, prepare, read_trace
from fedgauge.algorithms import Algorithm
from fedgauge.base.errors import InputError, MachineError
from fedgauge.cli import main
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.simulation.runs.reader import read_run
from fedgauge_flower import algorithms as wire
from fedgauge_flower import client, client_app, held_out, run_on
from fedgauge_flower.records import ARRAYS, VALUES, content, tensors_of

Spoil = Callable[[int, Message, Message], Message]


def grid_of(shards: Path, widths: tuple[int, ...] = (16, 16, 16)) -> HereGrid:
    def app(worker: int, width: int):  # type: ignore[no-untyped-def]
        return client_app(lambda context: read(shards / f"{worker}.npz", width=width))

    return HereGrid([app(worker, width) for worker, width in enumerate(widths)])


ALGORITHMS = {
    "two-sided rates": {"eta": 1.5},
    "momentum": {"algorithm": "momentum", "beta": 0.5},
    "FedAdam": {"algorithm": "fedadam", "eta": 0.02, "beta1": 0.5},
    "SCAFFOLD, which remembers": {"algorithm": "scaffold"},
    "one's own": {"algorithm": "tests.algorithms.own:signed", "algorithm_option": {"power": 0.7}},
    "DiLoCo, with a state of its own": {"algorithm": "diloco", "gamma": 0.01, "clip": 1.0},
    "an averaged state": {"local_momentum": 0.9, "local_nesterov": True, "optimiser_state": "averaged"},
    "a schedule by round": {"gamma_schedule": "cosine,warmup=1", "eta_schedule": "step,every=2"},
    "a schedule by step": {"gamma_schedule": "linear,by=step", "local_steps": [2, 5, 3]},
    "own steps": {"local_steps": [2, 5, 3]},
    "epochs": {"local_epochs": 2},
    "weights": {"weights": [1.0, 2.0, 1.0]},
    "tested on a part": {"test_examples": 50},
    "a part of the workers": {"participants": 2, "sampling": "without-replacement"},
    "the same worker twice": {"participants": 3, "sampling": "with-replacement"},
    "few records": {"record_every": 2},
    "no look": {"watch": False},
    "adapting steps": {"local_steps": "auto", "cost": "cross-silo"},
    "an optimiser of torch's": {"optimiser": "torch.optim.NAdam", "optimiser_state": "kept"},
    "steps by a rule": {"local_steps": "post-local,local_steps=3,switch=1"},
}


@pytest.mark.parametrize("changes", ALGORITHMS.values(), ids=ALGORITHMS)
def test_runs_are_the_bits_of_simulate(experiment: Experiment, shards: Path, changes: dict[str, object]) -> None:
    asked = experiment.changed({"rounds": 3, **changes})
    here = execute(asked.changed({"chunk": 1, "processes": 1}))
    there = run_on(grid_of(shards), asked, read(shards / "test.npz", test=True))
    assert there.rounds == here.rounds
    assert np.array_equal(there.model, here.model)


def test_a_node_with_other_code_is_not_asked_to_run_it(
    experiment: Experiment, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = experiment.changed({"rounds": 2, "algorithm": "tests.algorithms.own:signed"})
    monkeypatch.setattr(wire, "algorithm_of", partial(_with_code, "another"))
    monkeypatch.setattr(client, "algorithm_of", partial(_with_code, "another"))
    with pytest.raises(MachineError):
        run_on(grid_of(shards), asked, read(shards / "test.npz", test=True), timeout=0.2)


_REAL = wire.algorithm_of


def _with_code(code: str, message: Mapping[str, Any]) -> Algorithm:
    """As a node does whose module has another version."""
    return _REAL({**message, "code": code})


def test_weights_by_examples_are_those_of_simulate(experiment: Experiment, shards: Path) -> None:
    asked = experiment.changed({"rounds": 3, "weights": "sizes"})
    here = execute(asked.changed({"chunk": 1, "processes": 1}))
    there = run_on(grid_of(shards), asked, read(shards / "test.npz", test=True))
    assert there.settings["participation"] == here.settings["participation"]
    assert np.array_equal(there.model, here.model)
    # An exact pass here weighs samples, w_i / n_i each, which may round otherwise than w_i: the last digit of float64.
    assert np.allclose(there.losses, here.losses, rtol=1e-14, atol=0)
    assert np.allclose(there.grad2, here.grad2, rtol=1e-14, atol=0)


def test_a_round_takes_one_exchange(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)
    run_on(grid, experiment.changed({"rounds": 5}), read(shards / "test.npz"))
    # Who is there, the first record, the first local steps, and then one a round.
    assert grid.exchanges == 3 + 5


def test_sums_in_another_order_agree_to_rounding(experiment: Experiment, shards: Path) -> None:
    asked = experiment.changed({"rounds": 3})
    here, there = execute(asked), run_on(grid_of(shards), asked, read(shards / "test.npz", test=True))
    # Chunks of two workers are added up in another order: float32's rounding, a few times.
    assert np.allclose(there.model, here.model, rtol=0, atol=1e-6)


def test_noise_is_that_of_the_local_measurement(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    asked = experiment.changed({"rounds": 2})
    trace = run_on(grid_of(shards), asked, read(shards / "test.npz"), out=tmp_path / "run")
    federation = prepare(asked).federation
    assert isinstance(federation, SupervisedFederation)
    variances = federation.sample_variances(torch.from_numpy(trace.model), np.arange(3)) / federation.batch_size
    found = json.loads((tmp_path / "run" / "measure.json").read_text())["constants"]
    assert found["sigma"]["value"] == pytest.approx(float(variances.max()) ** 0.5, rel=1e-6)
    assert found["sigma_rms"]["value"] == pytest.approx(float(variances.mean()) ** 0.5, rel=1e-6)


def test_noise_of_a_resumed_run_is_that_of_a_whole_one(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    asked, shard = experiment.changed({"rounds": 4, "checkpoint_every": 1}), read(shards / "test.npz")
    run_on(grid_of(shards), asked, shard, out=tmp_path / "whole")
    grid, out = grid_of(shards), tmp_path / "resumed"
    grid.spoil = partial(all_die, grid)
    with pytest.raises(MachineError):
        run_on(grid, asked, shard, out=out, timeout=0.2)
    with (out / "noise.jsonl").open("a") as file:
        file.write('{"round": 2, "sig')  # as a process that is killed leaves it
    whole, resumed = tmp_path / "whole" / "measure.json", out / "measure.json"
    run_on(grid_of(shards), asked, shard, out=out, resume=True)
    assert resumed.read_text() == whole.read_text()
    # Once more, when there is nothing left to do, and also where the process was killed before it wrote this.
    run_on(grid_of(shards), asked, shard, out=out, resume=True)
    assert resumed.read_text() == whole.read_text()
    resumed.unlink()
    run_on(grid_of(shards), asked, shard, out=out, resume=True)
    assert resumed.read_text() == whole.read_text()


def test_a_worker_an_id_is_counted_from_the_data(tmp_path: Path) -> None:
    x, number = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32), np.arange(90)
    np.savez(tmp_path / "notes.npz", x=x, y=number % 3, writer=number % 4)
    asked = {"source": str(tmp_path / "notes.npz"), "scheme": "id", "gamma": 0.1, "rounds": 2, "local_steps": 2}
    experiment = Experiment.of({**asked, "chunk": 1, "processes": 1})
    grid = HereGrid([client_app()] * 4, asked)
    there, here = run_on(grid, experiment, held_out(experiment), wait=1.0), execute(experiment)
    assert there.rounds == here.rounds


# -- failures ----------------------------------------------------------------------------------------------------------


def _events(place: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]


def _tampered(change: Callable[[Message], None]) -> Spoil:
    """Worker 1's answer in round 2 changed."""

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker == 1 and message.content.config_records[VALUES].get("round") == 2:
            change(reply)
        return reply

    return spoil


def _changed(reply: Message, name: str, value: torch.Tensor | None) -> None:
    tensors = tensors_of(reply.content)
    del tensors[name]
    reply.content[ARRAYS] = content({**tensors, **({} if value is None else {name: value})})[ARRAYS]


def _nan(reply: Message) -> None:
    _changed(reply, "local_phase.0.message.change", torch.full((1210,), torch.nan))


def _shape(reply: Message) -> None:
    _changed(reply, "local_phase.0.message.change", torch.zeros(7))


def _bytes(reply: Message) -> None:
    reply.content.array_records[ARRAYS]["safetensors"] = Array(np.zeros(99, dtype=np.uint8))


def _stale(reply: Message) -> None:
    reply.content.config_records[VALUES]["round"] = 1


def _silent(reply: Message) -> None:
    _changed(reply, "evaluate.0.gradient", None)


def _number(reply: Message) -> None:
    reply.content.config_records[VALUES]["evaluate.0.loss"] = float("inf")


MISTAKES = {
    "not finite": (_nan, "message.change is not finite"),
    "shape": (_shape, "has shape (7,), not (1210,)"),
    "stale": (_stale, "round 1, not 2"),
    "unreadable": (_bytes, "cannot be read"),
    "missing": (_silent, "evaluate.0.gradient"),
    "infinite": (_number, "loss is not finite"),
}


@pytest.mark.parametrize(("change", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_answer_is_refused_named_and_recorded(
    experiment: Experiment, shards: Path, tmp_path: Path, change: Callable[[Message], None], words: str
) -> None:
    grid, out = grid_of(shards), tmp_path / "run"
    grid.spoil = _tampered(change)
    trace = run_on(grid, experiment.changed({"rounds": 4}), read(shards / "test.npz"), out=out)
    assert trace.status == "finished"
    assert np.isfinite(trace.model).all()
    (event,) = _events(out)
    assert (event["what"], event["worker"], event["round"]) == ("refused", 1, 2)
    assert words in str(event["why"])
    # The message of round 2 carried also what round 1 had yet to see; from round 3 on all is as before.
    assert [record.spread is not None for record in trace.rounds] == [True, False, True, True, False]


def test_a_node_that_dies_is_lost_and_the_others_go_on(
    experiment: Experiment, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, out = grid_of(shards), tmp_path / "run"

    def dies(worker: int, message: Message, reply: Message) -> Message:
        if worker == 2 and message.content.config_records[VALUES].get("round") == 1:
            grid.dead.add(102)
        return reply

    grid.spoil = dies
    asked = experiment.changed({"rounds": 4})
    trace = run_on(grid, asked, read(shards / "test.npz"), out=out, timeout=0.3)
    (event,) = _events(out)
    assert (event["what"], event["worker"], event["round"]) == ("lost", 2, 2)
    assert "0.3 s" in str(event["why"])
    assert read_run(out).incidents == ("Worker 2 was lost in round 2: no answer within 0.3 s.",)
    assert main(["runs", "show", str(out)]) == 0
    assert read_run(out).incidents[0] in capsys.readouterr().out
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert read_run(out).incidents[0] in (tmp_path / "report.html").read_text()
    assert trace.status == "finished"
    assert trace.rounds[2].L_g_ratio is not None
    # The rest is the run of the two that are left, from the model at which the third was lost.
    before = execute(asked.changed({"chunk": 1, "processes": 1, "rounds": 2}))
    assert np.isclose(trace.rounds[1].loss, before.rounds[1].loss, rtol=1e-12)
    loss, gradient = prepare(asked).federation.pooled(torch.from_numpy(before.model), np.arange(2), np.full(2, 0.5))
    assert trace.rounds[2].loss == pytest.approx(loss, rel=1e-6)
    assert trace.rounds[2].grad2 == pytest.approx(float(gradient @ gradient), rel=1e-5)


def all_die(grid: HereGrid, worker: int, message: Message, reply: Message) -> Message:
    """Every node is gone once the last worker has answered in round 2."""
    if worker == 2 and message.content.config_records[VALUES].get("round") == 2:
        grid.dead.update((100, 101, 102))
    return reply


def test_nobody_left_is_said_and_what_was_recorded_is_kept(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    grid, out = grid_of(shards), tmp_path / "run"
    grid.spoil = partial(all_die, grid)
    with pytest.raises(MachineError, match="No worker is left in round 3"):
        run_on(grid, experiment, read(shards / "test.npz"), out=out, timeout=0.2)
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 2


def test_a_run_goes_on_where_it_stopped(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    asked, shard = experiment.changed({"rounds": 4, "checkpoint_every": 1}), read(shards / "test.npz", test=True)
    grid, out = grid_of(shards), tmp_path / "run"
    grid.spoil = partial(all_die, grid)
    with pytest.raises(MachineError):
        run_on(grid, asked, shard, out=out, timeout=0.2)
    run_on(grid_of(shards), asked, shard, out=out, resume=True)
    whole = execute(asked.changed({"chunk": 1, "processes": 1}))
    assert read_trace(out).rounds == whole.rounds


def test_divergence_is_an_outcome(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    asked = experiment.changed({"gamma": 1e20, "rounds": 4})
    trace = run_on(grid_of(shards), asked, read(shards / "test.npz"), out=tmp_path / "run")
    assert trace.status == "diverged"
    assert np.isfinite(trace.model).all()


def test_a_target_that_cannot_be_tested_is_refused(experiment: Experiment, shards: Path) -> None:
    with pytest.raises(InputError, match="The goal accuracy needs test examples, and the server has none"):
        run_on(grid_of(shards), experiment.changed({"goal": "accuracy=0.5"}), read(shards / "test.npz"))


def test_different_models_are_refused(experiment: Experiment, shards: Path) -> None:
    with pytest.raises(MachineError, match=r"node 102 was refused: its model \(1285 parameters\), loss or batch size"):
        run_on(grid_of(shards, (16, 16, 17)), experiment, read(shards / "test.npz"), wait=0.3)
    # If all nodes are wrong, there is nobody to wait for.
    with pytest.raises(MachineError, match=r"node 100 was refused: its model .* differs from the server's"):
        run_on(grid_of(shards), experiment, read(shards / "test.npz", width=8))


def test_workers_that_do_not_come_are_named(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)
    grid.dead.add(101)
    with pytest.raises(MachineError, match=r"Of 3 workers only these connected within 0\.3 s: 0, 2"):
        run_on(grid, experiment, read(shards / "test.npz"), wait=0.3, timeout=0.1)


def test_a_node_without_a_number_says_so(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)
    for context in grid._contexts.values():
        context.node_config.clear()
    with pytest.raises(MachineError, match=r"cannot take part.*partition-id"):
        run_on(grid, experiment, read(shards / "test.npz"))


def test_two_nodes_of_one_number_are_named(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)
    grid._contexts[102].node_config["partition-id"] = 1
    with pytest.raises(MachineError, match="node 102 was refused: another node is worker 1 already"):
        run_on(grid, experiment, read(shards / "test.npz"), wait=0.3)


@pytest.mark.parametrize("partition", [1, 7])
def test_a_surplus_node_does_not_stop_the_start(
    experiment: Experiment, shards: Path, tmp_path: Path, partition: int
) -> None:
    grid = grid_of(shards)
    grid._apps[103] = grid._apps[100]
    grid._contexts[103] = grid._context_of(103, partition)
    plain = run_on(grid_of(shards), experiment, read(shards / "test.npz"))
    trace = run_on(grid, experiment, read(shards / "test.npz"), out=tmp_path / "run")
    assert np.array_equal(trace.model, plain.model)
    (event,) = (json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (event["what"], event["node"], event["round"]) == ("refused", "103", 0)


def test_a_worker_that_would_weigh_all_is_named(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker == 1:
            reply.content.config_records[VALUES]["examples"] = 10**11
        return reply

    grid.spoil = spoil
    with pytest.raises(MachineError, match="Worker 1 says that it has 100000000000 examples, more than a million"):
        run_on(grid, experiment.changed({"weights": "sizes"}), read(shards / "test.npz"))


def test_a_lone_participant_that_is_not_finite_is_recorded(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    """Nobody can tell its mistake from divergence, so the run ends, but not in silence."""
    grid, out = grid_of(shards), tmp_path / "run"

    def grow(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            tensors[name] = torch.full_like(tensors[name], 3e38)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if message.content.config_records[VALUES].get("round") == 1:
            packed(grow)(reply.content)
        return reply

    grid.spoil = spoil
    alone = {"participants": 1, "sampling": "without-replacement", "record_every": 4, "rounds": 4, "watch": False}
    trace = run_on(grid, experiment.changed(alone), read(shards / "test.npz"), out=out)
    assert trace.status == "diverged"
    (event,) = (json.loads(line) for line in (out / "events.jsonl").read_text().splitlines())
    assert (event["what"], event["round"]) == ("not finite", 1)
    assert "is beyond 1e+15" in event["why"]
    assert read_run(out).status == "diverged"
