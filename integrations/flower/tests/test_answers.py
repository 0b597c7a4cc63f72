"""One bad node does not end a federation: whatever it answers is refused and recorded, and it is asked again."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from integrations.flower.tests.attacks import gauge_attacks, hello_attacks, own_attacks
from integrations.flower.tests.here import HereGrid
from integrations.flower.tests.measured_app import own_app
from integrations.flower.tests.task import read
from integrations.flower.tests.test_exchange import grid_of

from fedgauge import Experiment
from fedgauge.base.errors import MachineError
from fedgauge.simulation.runs.reader import read_run
from fedgauge_flower import Gauge, run_on


def _events(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]


def test_a_worker_of_our_own_app_may_answer_anything(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    attacks = dict(own_attacks())
    names = list(attacks)
    grid, out = grid_of(shards), tmp_path / "run"

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        # In every other round, so that worker 1's answer has all its parts each time.
        round = message.content.config_records["fedgauge.said"].get("round")
        if worker == 1 and isinstance(round, int) and round % 2 == 0 and round > 0:
            attacks[names[round // 2 - 1]](reply.content)
        return reply

    grid.spoil = spoil
    asked = experiment.changed({"rounds": 2 * len(attacks) + 1, "gamma": 0.01, "local_steps": 1})
    trace = run_on(grid, asked, read(shards / "test.npz"), out=out)
    assert (trace.status, trace.stopped_at) == ("finished", asked.run.rounds)
    assert trace.model.dtype == np.float32
    assert np.isfinite(trace.model).all()
    assert trace.rounds[-1].loss < trace.rounds[0].loss
    events = {event["round"]: (event["what"], event["worker"]) for event in _events(out)}
    accepted = [name for number, name in enumerate(names) if events.get(2 * number + 2) != ("refused", 1)]
    assert accepted == []
    assert len(events) == len(names)
    assert all(event["why"] and len(event["why"]) < 1000 and event["why"].isprintable() for event in _events(out))


def test_a_greeting_that_cannot_be_used_is_asked_for_again(
    experiment: Experiment, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedgauge_flower.fleet._AGAIN", 0.0)
    monkeypatch.setattr("fedgauge_flower.fleet._POLL", 0.001)
    attacks = list(hello_attacks())
    grid, out = grid_of(shards), tmp_path / "run"

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker == 1 and message.content.config_records["fedgauge.said"].get("method") == "hello":
            _, attack = next(coming, ("", None))
            if attack is not None:
                attack(reply.content)
        return reply

    coming = iter(attacks)
    grid.spoil = spoil
    trace = run_on(grid, experiment.changed({"rounds": 1}), read(shards / "test.npz"), out=out, wait=20)
    assert trace.status == "finished"
    assert next(coming, None) is None
    assert grid.exchanges >= len(attacks)
    (event,) = _events(out)
    assert (event["what"], event["worker"], event["node"], event["round"]) == ("refused", None, "101", 0)
    assert event["why"] == "its worker is nothing, not a whole number of at least 0"
    assert read_run(out).incidents[0].startswith("Node 101 was refused in round 0: its worker is nothing")


def test_a_node_that_never_greets_properly_is_named(experiment: Experiment, shards: Path) -> None:
    grid = grid_of(shards)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker == 1:
            reply.content.config_records["fedgauge.said"]["worker"] = -1
        return reply

    grid.spoil = spoil
    with pytest.raises(MachineError, match=r"0, 2; node 101 was refused: its worker is -1, not a whole number"):
        run_on(grid, experiment, read(shards / "test.npz"), wait=0.3)


def test_the_only_participant_of_a_round_is_asked_once_more(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    """With one participant in a round, its mistake must not end the run: it is asked again at once."""
    asked = experiment.changed({"rounds": 4, "participants": 1, "sampling": "without-replacement"})
    shard = read(shards / "test.npz")
    honest = run_on(grid_of(shards), asked, shard)
    grid, out, spoiled = grid_of(shards), tmp_path / "run", set()

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        values = message.content.config_records["fedgauge.said"]
        trains = any(str(part).startswith("local_phase") for part in values.get("parts", ()))  # type: ignore[union-attr]
        if trains and values["round"] not in spoiled:
            spoiled.add(values["round"])
            reply.content.config_records["fedgauge.said"]["asked"] = "late"
        return reply

    grid.spoil = spoil
    trace = run_on(grid, asked, shard, out=out)
    assert spoiled == {0, 1, 2, 3}
    assert [event["what"] for event in _events(out)] == ["refused"] * 4
    assert np.array_equal(trace.model, honest.model)
    # Exact passes are over all workers, and the one that was refused is missing from them.
    assert [record.round for record in trace.rounds] == [0, 1, 2, 3, 4]


def test_an_answer_to_a_server_that_was_killed_is_refused_by_the_next(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    """Its round and its shapes are right; only the question is another one."""
    grid, shard, late = grid_of(shards), read(shards / "test.npz"), {}

    def listen(worker: int, message: Message, reply: Message) -> Message:
        late[worker, message.content.config_records["fedgauge.said"].get("round")] = copy.deepcopy(reply.content)
        return reply

    grid.spoil = listen
    run_on(grid, experiment.changed({"rounds": 3, "gamma": 0.2}), shard)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        round = message.content.config_records["fedgauge.said"].get("round")
        if (worker, round) == (1, 2):
            for name, record in late[worker, round].items():
                reply.content[name] = record
        return reply

    # The nodes stay, with what they remember of the first server's run.
    grid.spoil = spoil
    run_on(grid, experiment.changed({"rounds": 3}), shard, out=tmp_path / "run")
    (event,) = _events(tmp_path / "run")
    assert (event["what"], event["worker"], event["round"]) == ("refused", 1, 2)
    assert re.fullmatch(r"it answers asked '[0-9a-f]{16}\.\d+', not '[0-9a-f]{16}\.\d+'", event["why"])


# -- around a strategy -------------------------------------------------------------------------------------------------


class Seeing(FedAvg):
    """Flower's own strategy, which notes how many answers it gets."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.given: list[int] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        self.given.append(len(replies))
        return super().aggregate_train(server_round, replies)


@pytest.fixture
def first(shards: Path) -> ArrayRecord:
    return ArrayRecord(read(shards / "test.npz").federation()._made(3).state_dict())


def test_a_node_of_a_strategy_may_answer_anything(shards: Path, first: ArrayRecord, tmp_path: Path) -> None:
    attacks = dict(gauge_attacks())
    names = list(attacks)
    grid, out, strategy = HereGrid([own_app(shards)] * 3), tmp_path / "run", Seeing()

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        # Rounds of Flower's are counted from 1; the first and the last are left alone.
        round = reply.content["fedgauge.gauge.said"]["round"]
        if worker == 1 and isinstance(round, int) and 1 < round <= len(names) + 1:
            attacks[names[round - 2]](reply.content)
        return reply

    grid.spoil = spoil
    rounds = len(attacks) + 2
    gauge = Gauge(strategy, out=out)
    result = gauge.start(grid, first, num_rounds=rounds, timeout=10)
    assert result.arrays is not None
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    events = {event["round"]: (event["what"], event["node"]) for event in _events(out)}
    accepted = [name for number, name in enumerate(names) if events.get(number + 1) != ("refused", "101")]
    assert accepted == []
    assert len(events) == len(names)
    # The strategy sees the answers of the other two, and all three at the beginning and at the end.
    assert strategy.given == [3, *([2] * len(names)), 3]
    assert [record.round for record in gauge.rounds] == list(range(rounds + 1))
    assert all(np.isfinite(record.loss) for record in gauge.rounds)
    assert read_run(out).status == "finished"


def test_the_first_round_follows_most_nodes(shards: Path, first: ArrayRecord) -> None:
    """The first node in order names the parameters otherwise and computes in float64; the others agree."""
    grid = HereGrid([own_app(shards)] * 3)

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        content: Any = reply.content
        said, seen = content["fedgauge.gauge.said"], content["fedgauge.gauge.seen"]
        if worker == 0 and said["round"] == 1:
            said["keys"] = said["keys"][::-1]
        elif worker == 0:
            for record in (seen, content.get("arrays", {})):
                for name, array in record.items():
                    record[name] = Array(array.numpy().astype(np.float64))
        return reply

    grid.spoil = spoil
    gauge = Gauge(Seeing())
    result = gauge.start(grid, first, num_rounds=3, timeout=10)
    assert [(event["node"], event["round"]) for event in gauge.events] == [("100", 0)]
    assert result.arrays is not None
    assert [record.round for record in gauge.rounds] == [0, 1, 2, 3]
    # Wider numbers are not a mistake, and the other nodes go on in float32 as they are.
    assert gauge.rounds[1].L_h_ratio is not None


@pytest.mark.parametrize(
    ("nodes", "status", "records"), [({1}, "finished", 3), ({0, 1, 2}, "diverged", 2)], ids=["one", "all"]
)
def test_the_last_exchange_is_checked_too(
    shards: Path, first: ArrayRecord, tmp_path: Path, nodes: set[int], status: str, records: int
) -> None:
    grid, out = HereGrid([own_app(shards)] * 3), tmp_path / "run"

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker in nodes and "arrays" not in reply.content:
            reply.content.config_records["fedgauge.gauge.said"]["loss"] = float("nan")
        return reply

    grid.spoil = spoil
    gauge = Gauge(Seeing(), out=out)
    gauge.start(grid, first, num_rounds=2, timeout=10)
    found = read_run(out)
    assert (found.status, len(found.rounds)) == (status, records)
    assert found.stopped_at == 2
    assert all(np.isfinite(record.loss) for record in found.rounds)
    assert {(event["node"], event["why"]) for event in _events(out)} == {
        (str(100 + node), "its loss is not finite") for node in nodes
    }


def test_an_evaluation_that_differs_does_not_end_the_training(shards: Path, first: ArrayRecord) -> None:
    def evaluated(message: Message, context: Any) -> Message:
        metrics: dict[str, Any] = {"num-examples": 10, "loss": 1.0}
        if context.node_id == 101:
            metrics = {"loss": 1.0}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    apps = [own_app(shards, evaluates=False) for _ in range(3)]
    for app in apps:
        app.evaluate()(evaluated)
    gauge = Gauge(FedAvg())
    result = gauge.start(HereGrid(apps), first, num_rounds=2, timeout=10)
    assert [dict(result.evaluate_metrics_clientapp[round]) for round in (1, 2)] == [{"loss": 1.0}] * 2
    assert [(event["node"], event["what"]) for event in gauge.events] == [("101", "refused")] * 2
