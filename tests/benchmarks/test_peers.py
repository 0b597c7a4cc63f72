"""What the contestants of benchmarks/peers share; the libraries themselves are not installed here."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import rounds
from peers import run, workloads
from peers.networks import make_network, values_of


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workloads_are_those_of_rounds(name: str) -> None:
    here = workloads.WORKLOADS[name]
    (there,) = (work for work in rounds.WORKLOADS if work.name == name)
    for field in ("num_workers", "samples", "participants", "local_steps", "rounds"):
        assert getattr(here, field) == getattr(there, field)
    assert there.shape == (workloads.INPUTS,)
    assert (workloads.GAMMA, workloads.BATCH) == (rounds.GAMMA, rounds.BATCH)
    shapes = [tuple(parameter.shape) for parameter in there.model.make().parameters()]
    assert [values.shape for values in workloads.first_network()] == shapes


def test_loss_is_torchs_cross_entropy() -> None:
    work = workloads.Workload("few", 2, 30, 2, 1, rounds=1, check_rounds=1, tolerance=1.0)
    x, y = workloads.make_data(work)
    module = make_network()
    expected = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).item()
    # Both add up in single precision: 60 terms near 2, to a few units in the seventh digit.
    assert workloads.loss(values_of(module.parameters()), (x, y)) == pytest.approx(expected, rel=1e-5)
    assert len(np.unique(y)) > 1


@pytest.mark.parametrize(
    ("by_median", "by_fastest", "expected"),
    [(6, 7, "met"), (5, 5, "missed"), (5, 7, "missed by medians"), (7, 5, "missed by fastest turns")],
)
def test_verdict_names_the_measure_that_misses(by_median: float, by_fastest: float, expected: str) -> None:
    assert run.verdict(by_median, by_fastest, aim=6) == expected


PROGRAM = """
from peers.workloads import Contestant, first_network

contestant = Contestant("numpy")
contestant.ready([0.9 * values for values in first_network()])
for _ in range({turns}):
    contestant.answer(seconds=0.001 * contestant.next_turn())
{after}
"""


def write_contestant(place: Path, name: str, turns: int, after: str = "contestant.next_turn()") -> run.Peer:
    """A program that answers so many turns; it is found beside those of the benchmark."""
    path = place / "peers" / "contestants" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM.format(turns=turns, after=after))
    return run.Peer(name, name.title(), (run.Variant("1 thread"),), {})


@pytest.mark.parametrize("turns", [None, 0, 2, 3])
def test_nothing_is_compared_when_our_own_contestant_fails(
    turns: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails before the first turn, in the warm-up, in a turn that counts, or not at all."""
    ours = write_contestant(
        tmp_path, "ours", turns or 0, "contestant.next_turn()" if turns == 3 else "raise ValueError"
    )
    if turns is None:
        (tmp_path / "peers" / "contestants" / "ours.py").write_text("raise ValueError")
    monkeypatch.setattr(run, "OURSELVES", ours)
    monkeypatch.setattr(run, "PEERS", {"other": write_contestant(tmp_path, "other", 3)})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "version_info", (3, 11))
    command = ["run.py", "--workloads", "tiny", "--turns", "2", "--environments", str(tmp_path / "logs"), "--json"]
    monkeypatch.setattr(sys, "argv", command)
    if turns == 3:
        run.main()
    else:
        with pytest.raises(SystemExit) as ended:
            run.main()
        assert ended.value.code == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert len(result["ratios"]) == (turns == 3)
    assert len(result["rows"]) == 2 * (turns == 3)
    assert list(result["failures"]) == ["ours, 1 thread"] * (turns != 3)


def test_our_own_contestant_takes_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11))
    command = ["run.py", "--only", "--workloads", "tiny", "--turns", "2", "--markdown"]
    monkeypatch.setattr(sys, "argv", [*command, "--environments", str(tmp_path)])
    run.main()
    assert "2 processes" in capsys.readouterr().out
