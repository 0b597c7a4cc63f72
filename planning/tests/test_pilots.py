"""Pilot runs against plain runs of the same experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgauge import Cost, Experiment, execute, random_quadratics
from fedgauge.simulation.experiment.prepare import setup_of
from fedgauge.simulation.setup import Setup
from fedgauge_planning import Goal
from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.forecast import Scale
from fedgauge_planning.pilots import Pilots

COST = Cost("given", fixed=1.0, step=0.5)
DIGITS = Experiment.of({"source": "digits", "percent": 75, "gamma": 0.1, "processes": 1, "batch_size": 8})


def pilots(of: Experiment | Setup, goal: Goal, place: Path | None, jobs: int = 1) -> Pilots:
    return Pilots(setup_of(of), Scale(goal), COST, directory=place, jobs=jobs)


@pytest.fixture
def quadratic(tmp_path: Path) -> Experiment:
    random_quadratics(4, 3, sigma2=0.1, seed=1).write(tmp_path / "fed.json")
    return Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1})


@pytest.mark.parametrize("candidate", [Candidate(2, 0.1, 1.0, 4), Candidate(3, 0.05, 2.0, 2)])
def test_a_pilot_is_the_run_itself_however_often_it_paused(
    quadratic: Experiment, tmp_path: Path, candidate: Candidate
) -> None:
    goal, trial = Goal("grad2", 1e-9), Trial(candidate, 1)
    with pilots(quadratic, goal, tmp_path / "pilots") as running:
        for rounds in (3, 7, 20):
            curve = running.run([trial], [rounds * candidate.seconds(COST)])[0]
            assert curve.end == pytest.approx(rounds * candidate.seconds(COST))
    chosen = {"local_steps": candidate.I, "gamma": candidate.gamma, "eta": candidate.eta}
    drawn = {"participants": candidate.M} if candidate.M < 4 else {}
    whole = execute(quadratic.changed({"seed": 1, "rounds": 20, **chosen, **drawn}))
    assert list(curve.errors) == [record.grad2 for record in whole.rounds]


def test_a_run_that_is_further_shows_no_more_than_was_asked_for(quadratic: Experiment, tmp_path: Path) -> None:
    trial = Trial(Candidate(2, 0.1, 1.0, 4), 0)
    with pilots(quadratic, Goal("grad2", 1e-9), tmp_path / "pilots") as running:
        long = running.run([trial], [40.0])[0]
        assert running.run([trial], [10.0])[0].end == 10.0
    with pilots(quadratic, Goal("grad2", 1e-9), tmp_path / "pilots") as again:
        short = again.run([trial], [10.0])[0]
    assert short.errors == long.errors[: len(short.errors)]
    assert short.end == 10.0


def test_two_processes_give_the_same_bits_and_seeds_share_start_and_partition(tmp_path: Path) -> None:
    trials = [Trial(Candidate(4, 0.1, 1.0, 10), 0), Trial(Candidate(4, 0.1, 1.0, 10), 1)]
    found = []
    for jobs in (1, 2):
        with pilots(DIGITS, Goal("accuracy", 0.99), tmp_path / str(jobs), jobs=jobs) as running:
            found.append(running.run(trials, [30.0, 30.0]))
    assert found[0] == found[1]
    first, second = found[0]
    assert first.errors[0] == second.errors[0]
    assert first.errors[1:] != second.errors[1:]


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    """The experiment is the same, its data are not."""
    experiment = Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1, "processes": 1})
    trial, found = Trial(Candidate(2, 0.1, 1.0, 3), 0), []
    for dim in (2, 5):
        random_quadratics(3, dim, sigma2=0.1, seed=0).write(tmp_path / "fed.json")
        with pilots(experiment, Goal("grad2", 1e-9), tmp_path / str(dim)) as running:
            running.run([trial], [5.0])
            found.append(running.model(trial)[0].shape)
    assert found == [(2,), (5,)]


def test_a_pilot_ends_at_its_goal(quadratic: Experiment, tmp_path: Path) -> None:
    trial = Trial(Candidate(4, 0.1, 1.0, 4), 0)
    with pilots(quadratic, Goal("grad2", 0.05), None) as running:
        curve = running.run([trial], [1e4])[0]
        model, records = running.model(trial)
    assert curve.status == "target"
    assert max(curve.errors[-2:]) <= 0.05 < min(curve.errors[:-2])  # a goal counts when it holds
    assert records[-1].grad2 == curve.errors[-1]
    assert model.shape == (3,)
