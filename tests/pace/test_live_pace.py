"""A live gauge as the pace of a run: from text as from an object, after a kill, and in what a run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import Capture, answer, words

import fedgauge as fg
from fedgauge.algorithms.paces import Live, parse_rule
from fedgauge.base.errors import InputError

_PLAIN = fg.random_quadratics(5, 4, hessian_spread=0.4, sigma2=0.01, seed=2)
_LEAST = _PLAIN.minimiser()[1]
# f stays above 0, as a live gauge needs it.
FEDERATION = fg.QuadraticFederation(
    _PLAIN.hessians, _PLAIN.linear, _PLAIN.constant - _LEAST + 0.1, sigma2=0.01, start=np.full(4, 5.0)
)
TEXT = "live,local_steps=4,steps=2000,cost=10"


def test_text_and_object_choose_alike() -> None:
    by_text = fg.simulate(FEDERATION, fg.fedavg(0.05), local_steps=TEXT, rounds=2000)
    gauge = fg.LiveGauge(4, 2000, cost=10)
    by_object = fg.simulate(FEDERATION, fg.fedavg(0.05), local_steps=gauge, rounds=2000)
    assert by_text.settings == by_object.settings
    assert [each.taken for each in by_text.rounds] == [each.taken for each in by_object.rounds]
    assert {each.taken for each in by_text.rounds[:-1]} == {4, 16}
    assert (by_text.model == by_object.model).all()


def test_what_a_run_shows_is_what_its_gauge_answers(tmp_path: Path) -> None:
    gauge = fg.LiveGauge(4, 2000, cost=10)
    trace = fg.simulate(FEDERATION, fg.fedavg(0.05), local_steps=gauge, rounds=2000, keep=tmp_path / "run")
    # The run's last loss is one that its gauge was not given any more.
    gauge.record(trace.losses[-1], trace.rounds[-2].taken)
    sentence = gauge.answer().sentence
    assert sentence in " ".join(str(trace).split())
    assert sentence in " ".join(str(fg.read_run(tmp_path / "run")).split())


def test_rare_records_are_rare_for_the_gauge_and_after_a_pause(tmp_path: Path) -> None:
    def run(**how: Any) -> fg.Trace:
        gauge = fg.LiveGauge(4, 2000, cost=10)
        record = fg.Recording(every=3)
        return fg.simulate(FEDERATION, fg.fedavg(0.05), local_steps=gauge, rounds=2000, record=record, **how)

    whole = run(keep=fg.Keep(tmp_path / "whole"))
    paused = run(keep=fg.Keep(tmp_path / "paused"), stop=fg.StopAt(round=30))
    assert paused.status == "stopped"
    resumed = run(keep=fg.Keep(tmp_path / "paused", resume=True))
    assert [each.taken for each in resumed.rounds] == [each.taken for each in whole.rounds]
    assert (resumed.model == whole.model).all()
    assert fg.read_run(tmp_path / "paused").rounds == fg.read_run(tmp_path / "whole").rounds


def test_from_the_command(tmp_path: Path, capsys: Capture) -> None:
    FEDERATION.write(tmp_path / "fed.json")
    line = f"simulate {tmp_path / 'fed.json'} --gamma 0.05 --local-steps live,local_steps=4,steps=2000 --rounds 2000"
    found = answer(capsys, f"{line} --cost 10 --json")
    assert found["settings"]["local_steps"]["cost"] == 10
    assert "How much of the work counts" in words(capsys, f"{line} --cost fixed=1,step=0.1")


def test_its_length_follows_from_the_rounds_and_its_parts_are_checked() -> None:
    assert parse_rule("live") == Live()
    assert Live(local_steps=8).gauge(rounds=500).steps == 4000
    with pytest.raises(InputError, match="The pace live has no 'costs'; did you mean cost"):
        parse_rule("live,costs=3")
    with pytest.raises(InputError, match="explore must be a share of the run"):
        parse_rule("live,explore=3")
    open_cost = fg.Experiment.of({"source": "digits", "gamma": 0.1, "local_steps": "live", "cost": "local"})
    with pytest.raises(InputError, match="needs the seconds that a local step takes"):
        fg.prepare(open_cost)
