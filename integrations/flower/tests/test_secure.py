"""Flower's secure aggregation around all that a worker sends: the server sees sums alone, and measures all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.common import bytes_to_ndarray
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from integrations.flower.tests.here import HereGrid
from integrations.flower.tests.task import read

from fedgauge import Experiment, execute
from fedgauge.base.errors import InputError, MachineError
from fedgauge.simulation.runs.reader import read_run
from fedgauge_flower import client_app, run_securely
from fedgauge_flower.records import ARRAYS

CONTEXT = Context(1, 1, {}, RecordDict(), {})


def grid_of(shards: Path) -> HereGrid:
    def app(worker: int) -> Any:
        return client_app(lambda context: read(shards / f"{worker}.npz"), secure=True)

    return HereGrid([app(worker) for worker in range(3)])


@pytest.mark.parametrize("changes", [{}, {"algorithm": "momentum", "beta": 0.5}], ids=["fedavg", "momentum"])
def test_sums_are_enough_for_the_run_and_its_constants(
    experiment: Experiment, shards: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    asked = experiment.changed({"rounds": 2, **changes})
    here = execute(asked.changed({"processes": 1}))
    there = run_securely(grid_of(shards), CONTEXT, asked, read(shards / "test.npz"), out=tmp_path / "run")
    # Entries are rounded to 16 / 2^29, at random up or down.
    assert np.allclose(there.model, here.model, rtol=0, atol=1e-6)
    for ours, theirs in zip(here.rounds, there.rounds, strict=True):
        for name in ("loss", "grad2", "spread", "deviation2", "zeta2", "L_h_ratio", "L_g_ratio"):
            expected = getattr(ours, name)
            assert getattr(theirs, name) == (expected and pytest.approx(expected, rel=1e-4)), (ours.round, name)
        if ours.L_tilde_ratio:
            # The root mean square is at most the largest, and a bound of L_tilde from below all the same.
            assert theirs.L_tilde_ratio is not None
            assert 0.3 * ours.L_tilde_ratio < theirs.L_tilde_ratio <= ours.L_tilde_ratio * (1 + 1e-6)
    assert "sigma" in json.loads((tmp_path / "run" / "measure.json").read_text())["constants"]


def test_what_a_worker_sends_is_masked(experiment: Experiment, shards: Path) -> None:
    grid, seen = grid_of(shards), []

    def listen(worker: int, message: Message, reply: Message) -> Message:
        seen.append(reply.content)
        return reply

    grid.spoil = listen
    run_securely(grid, CONTEXT, experiment.changed({"rounds": 1}), read(shards / "test.npz"))
    configs: list[Any] = [content.config_records.get(RECORD_KEY_CONFIGS, {}) for content in seen]
    vectors = [entry[Key.MASKED_PARAMETERS] for entry in configs if Key.MASKED_PARAMETERS in entry]
    assert len(vectors) == 3 * 3
    for content in seen:
        assert not content.array_records.get(ARRAYS)
        assert all(not record for record in content.array_records.values())
    # Masks are uniform over 2^32: the numbers of two workers have nothing to do with each other, as their gradients do.
    first, second = (bytes_to_ndarray(vectors[index][1]).astype(float) for index in (0, 1))
    assert len(first) == 1210
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


def test_what_cannot_be_summed_is_said(experiment: Experiment, shards: Path) -> None:
    shard = read(shards / "test.npz")
    with pytest.raises(MachineError, match="In round 0 a worker had a number beyond 8"):
        run_securely(grid_of(shards), CONTEXT, experiment.changed({"gamma": 1e3, "rounds": 2}), shard)
    with pytest.raises(InputError, match="at least three workers, not 2"):
        run_securely(grid_of(shards), CONTEXT, experiment.changed({"workers": 2}), shard)
    with pytest.raises(InputError, match="scaffold keeps a memory"):
        run_securely(grid_of(shards), CONTEXT, experiment.changed({"algorithm": "scaffold"}), shard)
    for changes in ({"local_momentum": 0.9, "optimiser_state": "averaged"}, {"gamma_schedule": "linear,by=step"}):
        with pytest.raises(InputError, match="too coarse"):
            run_securely(grid_of(shards), CONTEXT, experiment.changed(changes), shard)
    with pytest.raises(InputError, match="local_epochs = 2 cannot be used"):
        run_securely(grid_of(shards), CONTEXT, experiment.changed({"local_epochs": 2}), shard)


REFUSED = {
    "local_steps": [2, 5, 3],
    "participants": 2,
    "sampling": "without-replacement",
    "weights": "sizes",
    "record_every": 2,
    "watch": False,
    "goal": "loss=0.1",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_with_sums_is_refused(experiment: Experiment, shards: Path, name: str) -> None:
    asked = experiment.changed({name: REFUSED[name]})
    with pytest.raises(InputError, match=f"{name} = .* cannot be used with secure sums.*leave it out"):
        run_securely(grid_of(shards), CONTEXT, asked, read(shards / "test.npz", test=True))


def test_a_secure_run_is_resumed(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    grid, asked, test = grid_of(shards), experiment.changed({"rounds": 3}), read(shards / "test.npz")

    def leave(done: int, record: object) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_securely(grid, CONTEXT, asked, test, out=tmp_path / "run", observer=leave)
    again = run_securely(grid_of(shards), CONTEXT, asked, test, out=tmp_path / "run", resume=True)
    whole = execute(asked.changed({"processes": 1}))
    assert [record.round for record in again.rounds] == [0, 1, 2, 3]
    assert np.allclose(again.model, whole.model, rtol=0, atol=1e-6)
    assert len((tmp_path / "run" / "noise.jsonl").read_text().splitlines()) == 4


def test_the_global_model_is_tested(experiment: Experiment, shards: Path) -> None:
    asked = experiment.changed({"rounds": 1, "test_examples": 50})
    there = run_securely(grid_of(shards), CONTEXT, asked, read(shards / "test.npz", test=True))
    assert there.accuracies.tolist() == execute(asked.changed({"processes": 1})).accuracies.tolist()


def test_a_directory_that_is_taken_is_refused_before_any_training(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    asked, shard = experiment.changed({"rounds": 1}), read(shards / "test.npz")
    run_securely(grid_of(shards), CONTEXT, asked, shard, out=tmp_path / "run")
    grid = grid_of(shards)
    with pytest.raises(InputError, match="already holds a run"):
        run_securely(grid, CONTEXT, asked, shard, out=tmp_path / "run")
    assert grid.exchanges == 1  # who is there


def test_what_was_recorded_before_a_failure_is_kept(experiment: Experiment, shards: Path, tmp_path: Path) -> None:
    grid, asked = grid_of(shards), experiment.changed({"rounds": 3})

    def dies(worker: int, message: Message, reply: Message) -> Message:
        # Four exchanges a sum, after the one that asks who is there: two sums in round 0, and one in each that follows.
        if worker == 2 and grid.exchanges == 1 + 4 * 3:
            grid.dead.update((100, 101, 102))
        return reply

    grid.spoil = dies
    with pytest.raises(MachineError, match="The secure sum of round 2 could not be computed"):
        run_securely(grid, CONTEXT, asked, read(shards / "test.npz"), out=tmp_path / "run", timeout=0.3)
    found = read_run(tmp_path / "run")
    assert (found.status, [record.round for record in found.rounds]) == ("unfinished", [0, 1])
    assert len((tmp_path / "run" / "noise.jsonl").read_text().splitlines()) == 2


def test_a_sum_that_lacks_an_answer_is_not_taken_for_the_sum_of_all(
    experiment: Experiment, shards: Path, tmp_path: Path
) -> None:
    grid, asked = grid_of(shards), experiment.changed({"rounds": 3})

    def late(worker: int, message: Message, reply: Message) -> Message:
        # The third of the four exchanges of a round brings the masked vectors; in round 1 one of them is lost, once.
        if worker == 2 and grid.exchanges == 1 + 4 * 2 + 3:
            assert Key.MASKED_PARAMETERS in reply.content.config_records[RECORD_KEY_CONFIGS]
            return Message(Error(ErrorCode.UNKNOWN, "lost"), reply_to=message)
        return reply

    grid.spoil = late
    with pytest.raises(MachineError, match="The secure sum of round 1 lacks the answer of worker 2"):
        run_securely(grid, CONTEXT, asked, read(shards / "test.npz"), out=tmp_path / "run", timeout=0.3)
    found = read_run(tmp_path / "run")
    whole = run_securely(grid_of(shards), CONTEXT, asked, read(shards / "test.npz"))
    # Entries are rounded at random, up or down.
    assert [record.loss for record in found.rounds] == pytest.approx([whole.rounds[0].loss], abs=1e-5)
    assert found.status == "unfinished"
    assert found.incidents == ("Worker 2 was lost in round 1: no masked answer within 0.3 s.",)


WRONG: dict[str, Callable[[Any], None]] = {
    "nothing": lambda record: record.clear(),
    "text": lambda record: record.update(dict.fromkeys(list(record), "text")),
    "no bytes": lambda record: record.update({name: [b""] for name in list(record)}),
    "numbers": lambda record: record.update({name: [1] for name in list(record)}),
}


@pytest.mark.parametrize("exchange", [1, 2, 3, 4], ids=["keys", "shares", "masked vectors", "unmasking"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_malformed_answer_ends_the_run_with_a_sentence(
    experiment: Experiment, shards: Path, tmp_path: Path, exchange: int, wrong: Callable[[Any], None]
) -> None:
    grid, asked = grid_of(shards), experiment.changed({"rounds": 3})

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        if worker == 2 and grid.exchanges == 1 + 4 * 2 + exchange:
            wrong(reply.content.config_records[RECORD_KEY_CONFIGS])
        return reply

    grid.spoil = spoil
    with pytest.raises(MachineError, match=r"The secure sum of round 1 (could not be computed|lacks the answer)"):
        run_securely(grid, CONTEXT, asked, read(shards / "test.npz"), out=tmp_path / "run", timeout=0.3)
    found = read_run(tmp_path / "run")
    assert (found.status, [record.round for record in found.rounds]) == ("unfinished", [0])


@pytest.mark.parametrize("rates", [{"gamma": 1e20}, {"eta": 1e30}], ids=["in local steps", "after the update"])
def test_divergence_is_an_outcome(
    experiment: Experiment, shards: Path, tmp_path: Path, rates: dict[str, float]
) -> None:
    asked = experiment.changed({"rounds": 3, **rates})
    here = execute(asked.changed({"processes": 1}))
    there = run_securely(grid_of(shards), CONTEXT, asked, read(shards / "test.npz"), out=tmp_path / "run")
    assert (there.status, there.stopped_at) == (here.status, here.stopped_at) == ("diverged", 1)
    assert np.isfinite(there.model).all()
    assert there.losses == pytest.approx(here.losses)
    assert read_run(tmp_path / "run").status == "diverged"
