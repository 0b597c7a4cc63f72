"""Laws that the facts of every registered theorem obey, and what a theorem needs to be accepted everywhere."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from fedgauge.algorithms import ALGORITHMS
from fedgauge.algorithms.cost import Cost
from fedgauge.federation.participation import Participation, Sampling
from fedgauge.theory import THEOREMS, Theorem, covering, evaluate
from fedgauge.theory.base import Statement, at_most, over, term
from fedgauge.theory.inputs import COLOURS, GRADIENT_NOISE, INITIAL_GAP, Objectives, Quantity, TermFacts, Values
from fedgauge.theory.search import best_gamma, best_local_steps
from fedgauge.values import Constants, Estimate, Version
from fedgauge_explorer.controls import CONTROLS, start
from fedgauge_explorer.page import build
from fedgauge_explorer.recording import record
from fedgauge_explorer.region import contestants
from fedgauge_planning.by_theory import theory_plan
from fedgauge_planning.goal import Goal
from fedgauge_verification.campaign import pairs, run
from fedgauge_verification.problem import named

every_theorem = pytest.mark.parametrize("name", list(THEOREMS))
every_version = pytest.mark.parametrize(("name", "version"), pairs())
VALUES: dict[str, Any] = {
    "F": 1.3, "d0": 0.7, "I": 6, "R": 40, "N": 8, "M": 4, "sigma2": 0.9, "zeta2": 1.9, "L_g": 1.1, "L_h": 0.4,
    "L_tilde": 1.6, "L_h_rms": 0.5, "kappa": 1.3, "beta": 0.5, "beta1": 0.0, "beta2": 0.9, "tau": 0.2, "G": 0.9,
    "mu": 0.3, "gamma": 1e-3, "eta": 1.0,
}  # fmt: skip


@every_theorem
def test_the_algorithm_exists_and_takes_the_rates_that_the_theorem_names(name: str) -> None:
    theorem = THEOREMS[name]
    assert theorem.algorithm in ALGORITHMS
    assert theorem.sampling in get_args(Sampling)
    assert theorem.objectives in get_args(Objectives)
    assert ("M" in theorem.needs) == (theorem.sampling != "full"), "only sampled workers have a number M"


@every_version
def test_every_term_has_facts_and_every_fact_a_term(name: str, version: Version) -> None:
    theorem = THEOREMS[name]
    shown = [made.name for made in evaluate(name, version, **VALUES).terms]
    assert len(set(shown)) == len(shown)
    for one in shown:
        facts = theorem.term_facts(one)
        assert facts.meaning
        assert 0 <= facts.colour < COLOURS
    assert {facts.name for facts in theorem.terms} == set(shown)
    colours = [facts.colour for facts in theorem.terms]
    assert len(set(colours)) == len(colours), "two terms of a theorem look alike"


@every_version
def test_the_cause_of_a_term_is_in_its_formula(name: str, version: Version) -> None:
    theorem = THEOREMS[name]
    symbol = {"start": theorem.gap, "noise": "sigma2", "divergence": "zeta2"}
    for made in evaluate(name, version, **VALUES).terms:
        assert symbol[theorem.term_facts(made.name).cause] in made.symbols


@every_version
def test_the_bound_shows_the_quantity_that_the_facts_declare(name: str, version: Version) -> None:
    quantity = THEOREMS[name].quantity_of(version)
    assert evaluate(name, version, **VALUES).quantity == quantity.text
    assert ("grad f" in quantity.text) == (quantity.measure == "grad2")
    assert (quantity.taken == "least") == quantity.text.startswith("min_")


@every_theorem
def test_what_is_said_of_eta_is_what_the_conditions_say(name: str) -> None:
    theorem = THEOREMS[name]
    other = evaluate(name, **{**VALUES, "eta": 0.5, "L_h": 0.0})
    assert (theorem.eta == "one") == any(not made.holds for made in other.conditions if made.name == "|eta - 1|")
    swapped = evaluate(name, **{**VALUES, "eta": 0.5, "gamma": 2e-3})
    assert (theorem.eta == "product") == (float(swapped.total) == pytest.approx(float(evaluate(name, **VALUES).total)))


@every_version
def test_the_declared_shape_in_the_rate_is_that_of_the_bound(name: str, version: Version) -> None:
    """A/(x R) + a + b x + c x^2 has terms that are powers of x and of R; a geometric one shrinks by q per round."""
    theorem = THEOREMS[name]
    one, doubled = (evaluate(name, version, **{**VALUES, "gamma": gamma}) for gamma in (1e-3, 2e-3))
    powers = [np.log2(float(b.value) / float(a.value)) for a, b in zip(one.terms, doubled.terms, strict=True)]
    simple = all(abs(power - round(power)) < 1e-9 and -1 <= round(power) <= 2 for power in powers)
    assert simple == (theorem.shape_of(version) == "powers")
    if theorem.shape_of(version) == "root":
        # rounds_to says after how many rounds the bound is what it is.
        assert theorem.rounds_to is not None
        v = theorem.prepare(version, VALUES)
        assert float(theorem.rounds_to(version, v, float(one.total))) == pytest.approx(VALUES["R"], rel=1e-9)
    elif theorem.shape_of(version) is not None:
        assert (theorem.contraction is not None) == (theorem.shape_of(version) == "geometric")
        # The search takes the limit of eta from the product alone.
        limits = [
            [
                made.limit
                for made in evaluate(name, version, **{**VALUES, "eta": eta}).conditions
                if made.name == "gamma"
            ]
            for eta in (1.0, 3.0)
        ]
        assert limits[0] == limits[1]


@pytest.mark.parametrize("version", ["corrected", "sharp"])
def test_the_contraction_is_what_the_start_shrinks_by(version: Version) -> None:
    theorem = THEOREMS["strongly-convex"]
    assert theorem.contraction is not None
    q = 1 - theorem.contraction(version, {name: np.asarray(value, dtype=float) for name, value in VALUES.items()})
    starts = [float(evaluate(theorem.name, version, **{**VALUES, "R": R}).terms[0].value) for R in (40, 41)]
    assert starts[1] / starts[0] == pytest.approx(float((q**-40 - 1) / (q**-41 - 1)))


@every_theorem
def test_a_counterexample_is_one_of_the_theorem_s_runs(name: str) -> None:
    theorem, problem = THEOREMS[name], named(THEOREMS[name])
    if problem is None:
        assert theorem.counterexample is None
    else:
        assert set(theorem.counterexample.settings) <= set(vars(problem))  # type: ignore[union-attr]
        assert problem.federation.num_workers >= problem.M
        assert theorem.eta == "free" or problem.eta == 1


def test_theorems_are_found_by_their_facts() -> None:
    assert covering("fedavg", measure="loss", objectives="strongly convex") is THEOREMS["strongly-convex"]
    assert covering("scaffold") is None
    roles = contestants()
    assert [THEOREMS[name].algorithm for name, _ in roles["minibatch"]] == ["minibatch"]
    assert [THEOREMS[name].objectives for name, _ in roles["equal"]] == ["equal Hessians"]


# -- a new theorem ------------------------------------------------------------------------------------------------

DELAY = TermFacts("cost of delay", "what the wait for the slowest worker adds", "divergence", 6)


def _state(version: Version, v: Values) -> Statement:
    """A bound with terms of its own: above that of Theorem 4.3, and so true; as printed it forgets half the gap."""
    gap = 0.2 if version == "printed" else 8
    return Statement(
        (
            term(v, "initial gap", gap, "F", "gamma eta I R"),
            term(v, "gradient noise", 8, "gamma eta L_g sigma2", "N"),
            term(v, DELAY.name, 200, "gamma^2 L_tilde^2 I^2 zeta2"),
            term(v, "noise of delay", 200, "gamma^2 L_tilde^2 I^2 sigma2"),
        ),
        (
            at_most(v, "gamma eta", "1/(2 I L_g)", over(1.0, 2 * v["I"] * v["L_g"])),
            at_most(v, "gamma", "1/(20 I L_tilde)", over(1.0, 20 * v["I"] * v["L_tilde"])),
        ),
    )


NEW = Theorem(
    name="made-up",
    title="FedAvg that waits",
    locator="Theorem Z.1",
    needs=("F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_tilde", "gamma"),
    versions={"printed": (), "corrected": ("8 replaces 0.2.",)},
    state=_state,
    algorithm="fedavg",
    quantity=Quantity("min_r E|grad f(xbar^r)|^2", "grad2", "least"),
    terms=(
        INITIAL_GAP,
        GRADIENT_NOISE,
        DELAY,
        TermFacts("noise of delay", "the noise that piles up during the wait", "noise", 7),
    ),
    rate_shape="powers",
    optional={"eta": 1.0},
)


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Theorem:
    """A theorem with a term that no other has, registered and nothing else."""
    monkeypatch.setitem(THEOREMS, NEW.name, NEW)
    return NEW


def test_a_new_theorem_is_evaluated_and_tuned(new: Theorem) -> None:
    assert evaluate(new.name, **VALUES).terms[2].name == "cost of delay"
    values = {name: value for name, value in VALUES.items() if name not in ("gamma", "eta")}
    assert best_gamma(new.name, **values).bound.admissible
    chosen = {name: value for name, value in values.items() if name not in ("I", "R")}
    assert best_local_steps(new.name, budget=500, communication=5, **chosen).bound.admissible


def test_a_new_theorem_is_in_the_explorer(new: Theorem) -> None:
    page = build(start())
    assert 'id="panel-made-up"' in page
    assert f'<i class="key t6" aria-hidden="true"></i><span title="{DELAY.meaning}">cost of delay</span>' in page
    assert record(new, "corrected").startswith("v=>{const ")
    assert set(new.needs) <= {control.theorems_name for control in CONTROLS.values()}


@pytest.mark.parametrize("version", ["printed", "corrected"])
def test_a_new_theorem_is_tried_and_its_mistake_found(new: Theorem, version: Version) -> None:
    outcome = run(new.name, version, samples=40, searches=2, jobs=1)
    assert outcome.complete
    assert [row.form for row in outcome.rows] == ["stated", "telescoped", "piecewise"]
    assert all(row.checks > 0 for row in outcome.rows)
    assert bool(outcome.cases) == (version == "printed")


def test_a_new_theorem_plans(new: Theorem) -> None:
    held = Constants(tuple(Estimate.exact(name, VALUES[name], "given") for name in
                           ("F", "sigma2", "zeta2", "L_g", "L_h", "L_tilde")))  # fmt: skip
    cost = Cost("given", fixed=1.0, step=0.1)
    plan = theory_plan(held, goal=Goal("grad2", 0.5), cost=cost, num_workers=8, theorem=new.name, cap=50)
    assert plan.choice.theorem == new.name
    assert plan.choice.bound <= 0.5
    assert plan.certified
    usual = theory_plan(held, goal=Goal("grad2", 0.5), cost=cost, num_workers=8, cap=50)
    assert usual.choice.theorem == "nonconvex", "of two that fit, the one that was registered first"
    assert Participation().sampling == new.sampling
