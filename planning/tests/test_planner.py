"""Plans on quadratics, where what is best is known, and on digits; and what a plan says when there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgauge import Cost, Experiment, InputError, QuadraticFederation, Setup, execute, fedavg, federate
from fedgauge.cli import main
from fedgauge.federation.participation import Participation
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge_planning import Goal, Plan, PlanOptions, plan
from fedgauge_planning.candidates import Candidate
from fedgauge_planning.measured_constants import theory_of

COST = Cost("given", fixed=1.0, step=0.01)
ONE = PlanOptions(jobs=1)


def experiment(place: Path, gamma: float = 0.1, **options: Any) -> Experiment:
    random_quadratics(4, 5, **options).write(place / "fed.json")
    return Experiment.of({"source": str(place / "fed.json"), "gamma": gamma, "rounds": 200})


def test_equal_hessians_without_noise_send_local_steps_to_their_cap(tmp_path: Path) -> None:
    asked = experiment(tmp_path, hessian_spread=0.0, linear_spread=10.0)
    found = plan(asked, goal=Goal("grad2", 1e-8), cost=COST, over={"gamma": [0.1]}, options=ONE)
    assert found.choice.I == 128
    assert any("I is the largest that was tried" in note for note in found.notes)


def test_strong_heterogeneity_keeps_local_steps_few(tmp_path: Path) -> None:
    asked = experiment(tmp_path, hessian_spread=1.0, linear_spread=10.0, seed=3)
    over = {"gamma": [0.3], "eta": [1.0]}
    found = plan(asked, goal=Goal("grad2", 1e-4), cost=COST, over=over, options=ONE)
    assert found.choice.I <= 2
    assert found.seen.L_h > 0


def test_identical_workers_are_recognised(tmp_path: Path) -> None:
    one = random_quadratics(1, 5, sigma2=0.1)
    parts = {"hessians": np.repeat(one.hessians, 3, axis=0), "linear": np.repeat(one.linear, 3, axis=0)}
    QuadraticFederation(**parts, sigma2=0.1).write(tmp_path / "same.json")
    asked = Experiment.of({"source": str(tmp_path / "same.json"), "gamma": 0.1, "rounds": 200})
    found = plan(asked, goal=Goal("grad2", 0.05), cost=COST, over={"gamma": [0.1]}, options=ONE)
    assert any("workers are identical" in note for note in found.notes)
    assert found.seen.identical


def test_the_plan_runs_as_it_is_and_takes_about_what_it_says(tmp_path: Path) -> None:
    asked = experiment(tmp_path, sigma2=0.05, hessian_spread=0.3)
    found = plan(asked, goal=Goal("grad2", 1e-2), cost=COST, options=ONE, directory=tmp_path / "plan")
    trace = execute(Experiment.from_toml(found.toml))
    assert trace.status == "target"
    assert trace.stopped_at <= 3 * found.rounds + 1
    assert Plan.from_json(found.to_json()).to_json() == found.to_json()
    again = plan(asked, goal=Goal("grad2", 1e-2), cost=COST, options=ONE, directory=tmp_path / "plan")
    assert again.race == found.race


def test_both_answers_are_there_the_practical_and_the_certified(tmp_path: Path) -> None:
    asked = experiment(tmp_path, sigma2=0.05, hessian_spread=0.3)
    found = plan(asked, goal=Goal("grad2", 1e-2), cost=COST, options=ONE)
    assert found.theory is not None
    assert found.theory.practice is not None
    assert found.theory.practice.gamma == found.choice.gamma
    assert found.theory.seconds > found.seconds
    assert f"At I = {found.choice.I}, client drift is" in found.why
    assert "communication is" in found.why


def test_within_a_budget_the_rounds_are_what_it_pays_for(tmp_path: Path) -> None:
    asked = experiment(tmp_path, sigma2=0.05)
    found = plan(asked, goal=Goal("loss", budget=30.0), cost=COST, options=ONE, over={"gamma": [0.03, 0.1, 0.3]})
    made = Experiment.from_toml(found.toml)
    assert made.run.rounds * found.choice.seconds(COST) <= 30.0 < (made.run.rounds + 1) * found.choice.seconds(COST)
    assert execute(made).losses[-1] == pytest.approx(found.value, rel=1e-9)


def test_a_budget_shows_nothing_of_what_lies_beyond_it(tmp_path: Path) -> None:
    """Pilots that a larger budget has left go further; what is said of the smaller one is what it pays for."""
    asked = experiment(tmp_path, sigma2=0.05, hessian_spread=0.3)
    over: dict[str, list[Any]] = {"local_steps": [4], "gamma": [0.05], "eta": [1.0]}
    for seconds in (200.0, 50.5):
        goal = Goal("loss", None, seconds)
        found = plan(asked, goal=goal, cost=COST, over=over, options=ONE, directory=tmp_path / "plan")
    assert found.rounds == 48  # of 1.04 s
    run = execute(asked.changed({"local_steps": 4, "gamma": 0.05, "rounds": 48}))
    assert found.value == min(record.loss for record in run.rounds)


def test_an_unreachable_goal_says_how_close_it_came(tmp_path: Path) -> None:
    asked = experiment(tmp_path, sigma2=1.0)
    over: dict[str, list[Any]] = {"gamma": [0.1, 0.3], "local_steps": [1, 4], "eta": [1.0]}
    found = plan(asked, goal=Goal("grad2", 1e-9), cost=COST, over=over, options=PlanOptions(jobs=1, limit=100.0))
    assert not found.reached
    assert found.verdict.startswith("Not reached: none of 4 candidates reached |grad f|^2 of at most 1e-09")
    assert f"reached a squared gradient norm of {found.value:.3g}" in found.verdict
    assert found.value > 1e-9


def test_where_all_diverge_the_rates_are_named_and_the_next_proposed(tmp_path: Path) -> None:
    asked = experiment(tmp_path, gamma=100.0)
    with pytest.raises(InputError, match=r"Every candidate diverged: gamma from 11\.1 to 900 .* try gamma = 1 next"):
        plan(asked, goal=Goal("grad2", 1e-3), cost=COST, options=ONE)


def test_where_time_is_up_a_gradient_that_rose_is_no_divergence(tmp_path: Path) -> None:
    """Down from a saddle the gradient grows while f falls."""
    hessians = np.array([np.diag([-1.0, 1.0]), np.diag([0.5, 1.0])])
    QuadraticFederation(hessians, np.array([[0.1, 0.0], [0.1, 0.0]])).write(tmp_path / "saddle.json")
    asked = Experiment.of({"source": str(tmp_path / "saddle.json"), "gamma": 0.1, "rounds": 200})
    found = plan(asked, goal=Goal("grad2", 1e-9), cost=COST, options=PlanOptions(jobs=1, spend=1e-9))
    assert not found.reached
    assert "the time for planning is up" in found.verdict


def test_more_combinations_than_are_tried_are_said(tmp_path: Path) -> None:
    over: dict[str, list[Any]] = {"gamma": [0.01 * k for k in range(1, 11)], "local_steps": list(range(1, 11))}
    goal = Goal("grad2", budget=30.0)
    found = plan(experiment(tmp_path), goal=goal, cost=COST, over=over, options=PlanOptions(1, 1e-9, jobs=1))
    assert any(
        "Of 100 combinations of I and gamma, only the 45 that the constants favour" in note for note in found.notes
    )


@pytest.mark.parametrize(
    ("goal", "changes", "words"),
    [
        (Goal("loss", budget=0.5), {}, "budget of 0.5 s is below one round, which takes at least 1.01 s"),
        (Goal("loss", 0.5), {"goal": "loss=0.2"}, "loss=0.2, which contradicts the goal"),
        (Goal("loss", -1e6), {}, "the smallest value of f"),
        (Goal("grad2", 1e6), {}, "first model already has"),
        (Goal("accuracy", 0.9), {}, "accuracy needs test examples"),
    ],
)
def test_contradictions_are_refused_before_anything_is_run(
    tmp_path: Path, goal: Goal, changes: dict[str, Any], words: str
) -> None:
    asked = experiment(tmp_path).changed(changes)
    with pytest.raises(InputError, match=words):
        plan(asked, goal=goal, cost=COST, options=ONE)


def test_dearer_communication_does_not_lower_local_steps(tmp_path: Path) -> None:
    asked = experiment(tmp_path, hessian_spread=0.5, linear_spread=3.0, seed=2)
    chosen = []
    for fixed in (0.0, 0.03, 10.0):
        cost = Cost("given", fixed=fixed, step=0.01)
        over = {"gamma": [0.1], "eta": [1.0]}
        chosen.append(plan(asked, goal=Goal("grad2", 1e-4), cost=cost, over=over, options=ONE).choice.I)
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_the_theory_of_a_plan_knows_who_takes_part(tmp_path: Path) -> None:
    asked = experiment(tmp_path).changed({"participants": 4, "local_steps": 2})
    over: dict[str, list[Any]] = {"local_steps": [2], "gamma": [0.1], "eta": [1.0]}
    drawn = plan(asked, goal=Goal("grad2", 1e-1), cost=COST, over=over, options=ONE)
    assert drawn.theory is not None
    assert drawn.theory.choice.theorem == "partial"  # 4 draws of 4 workers are not all of them
    weighted = experiment(tmp_path).changed({"weights": [1000.0, 1.0, 1.0, 1.0], "local_steps": 2})
    found = plan(weighted, goal=Goal("grad2", 1e-1), cost=COST, over=over, options=ONE)
    assert found.theory is not None
    assert found.theory.values["N"] == pytest.approx(1.006, abs=1e-3)  # (1003/1000)^2, nearly
    both = plan(weighted.changed({"participants": 2}), goal=Goal("grad2", 1e-1), cost=COST, over=over, options=ONE)
    assert both.theory is None
    assert any("equal weights" in note for note in both.notes)


def test_as_many_participants_as_workers_are_tried_as_that_many(tmp_path: Path) -> None:
    few = experiment(tmp_path).changed({"participants": 2})
    everyone = Candidate(2, 0.1, 1.0, 4)
    assert few.changed(everyone.changes(few, 4)).run.participants == 4
    assert "participants" not in everyone.changes(experiment(tmp_path), 4)


def test_the_least_loss_is_that_of_the_weighted_objective(tmp_path: Path) -> None:
    # f = (x - 2)^2/2 of the second worker alone, and (x - 1)^2/2 + 1/2 of both.
    federation = QuadraticFederation([[[1.0]], [[1.0]]], [[0.0], [-2.0]], [0.0, 2.0])
    assert Setup(federation, fedavg(0.1), participation=Participation(weights=(0.0, 3.0))).floor == 0
    assert Setup(federation, fedavg(0.1)).floor == 0.5


def test_theory_plans_for_weighted_workers_with_their_effective_number_and_certifies_nothing(tmp_path: Path) -> None:
    # One Hessian and sigma^2 = 1: N = 20 would divide the noise by 20, and one worker has almost all the weight.
    random_quadratics(20, 2, hessian_spread=0.0, sigma2=1.0).write(tmp_path / "fed.json")
    weights = [1000.0, *19 * [1.0]]
    asked = Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1, "weights": weights})
    found = theory_of(asked, Goal("grad2", 0.1), COST)
    w = np.array(weights) / np.sum(weights)
    assert found.values["N"] == pytest.approx(1 / np.sum(w * w))
    assert found.values["N"] < 1.04
    assert any("as 1.04 workers with equal weights" in note for note in found.notes)
    plain = theory_of(asked.changed({"weights": None}), Goal("grad2", 0.1), COST)
    assert plain.certified
    assert not found.certified, "the exact constants are those of equal weights"


def test_constants_measured_with_other_weights_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_quadratics(3, 2, sigma2=1.0, seed=1).write(tmp_path / "fed.json")
    assert main(["theory", "constants", str(tmp_path / "fed.json"), "--json"]) == 0
    (tmp_path / "constants.json").write_text(capsys.readouterr().out)
    base = {"source": str(tmp_path / "fed.json"), "gamma": 0.1, "local_steps": 1}
    weighted = Experiment.of({**base, "weights": [3.0, 1.0, 1.0]})
    with pytest.raises(InputError, match="measured with other weights"):
        theory_of(weighted, Goal("grad2", 1.0), COST, values=tmp_path / "constants.json")
    line = (
        f"measure {tmp_path / 'fed.json'} --gamma 0.1 --weights 3,1,1 --most 2 --readings divergence,noise,trajectory"
    )
    assert main([*line.split(), "--out", str(tmp_path / "m")]) == 0
    measured = tmp_path / "m" / "measure.json"
    assert theory_of(weighted, Goal("grad2", 5.0), COST, values=measured).values["N"] == pytest.approx(25 / 11)
    with pytest.raises(InputError, match="measured with other weights"):
        theory_of(Experiment.of(base), Goal("grad2", 5.0), COST, values=measured)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_federation_is_planned_as_its_experiment_is(jobs: int, tmp_path: Path) -> None:
    federation = random_quadratics(4, 3, hessian_spread=0.5, sigma2=0.1, seed=1)
    federation.write(tmp_path / "fed.json")
    asked = Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1, "local_steps": 4})
    how: dict[str, Any] = {"goal": Goal("grad2", 0.05), "cost": COST, "options": PlanOptions(seeds=2, jobs=jobs)}
    over: dict[str, list[Any]] = {"local_steps": [1, 4, 16], "gamma": [0.1, 0.3]}
    by_file = plan(asked, over=over, **how)
    by_hand = plan(federation, fedavg(gamma=0.1), over=over, setup={"local_steps": 4}, **how)
    assert by_hand.race == by_file.race
    assert (by_hand.choice, by_hand.seconds) == (by_file.choice, by_file.seconds)
    assert (by_hand.experiment, by_hand.toml) == ({}, "")
    assert by_file.toml


def test_a_network_with_a_loss_of_ones_own_is_planned_in_processes() -> None:
    generator = torch.Generator().manual_seed(0)
    shards = [(torch.randn(30, 4, generator=generator), torch.randint(2, (30,), generator=generator)) for _ in range(3)]
    federation = federate(
        lambda: torch.nn.Linear(4, 2),
        lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets) * 2,
        shards,
    )
    over = {"local_steps": [1, 4], "gamma": [0.1], "eta": [1.0]}
    how: dict[str, Any] = {"goal": Goal("loss", 1.35), "cost": COST, "over": over}
    found = [plan(federation, fedavg(gamma=0.1), options=PlanOptions(seeds=1, jobs=jobs), **how) for jobs in (1, 2)]
    assert found[0].race == found[1].race
    assert found[0].reached


def test_an_algorithm_that_cannot_be_made_again_is_refused() -> None:
    changed = replace(fedavg(gamma=0.1), update=lambda model, server, mean, fraction: (model, server))
    with pytest.raises(InputError, match="A plan has to make fedavg again with other rates"):
        plan(random_quadratics(3, 2), changed, goal=Goal("grad2", 0.1), cost=COST)
