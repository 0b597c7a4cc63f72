"""The search finds what is false, and nothing else."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgauge.algorithms import make_algorithm
from fedgauge.base.errors import InputError
from fedgauge.federation.participation import Participation
from fedgauge.federation.quadratic import QuadraticFederation
from fedgauge.simulation.loop import simulate
from fedgauge.theory import THEOREMS, Theorem, evaluate
from fedgauge.theory.base import Statement
from fedgauge.theory.expectation import expect
from fedgauge.theory.inputs import Values
from fedgauge.values import Condition, Term, Version
from fedgauge_verification.campaign import pairs, run
from fedgauge_verification.check import BoundCheck, check
from fedgauge_verification.problem import QuadraticProblem, draw, named
from fedgauge_verification.replay import save
from fedgauge_verification.strategies import climb, sample, sample_piecewise

FALSE = ("partial", "fedadam", "strongly-convex", "strongly-convex-last")
DOCUMENTED = Path(__file__).parents[1] / "results/counterexamples"
TRUE = [pair for pair in pairs() if pair[1] != "printed" or pair[0] not in FALSE]


@pytest.mark.parametrize(("name", "version"), TRUE)
def test_no_violation_of_what_is_true(name: str, version: Version) -> None:
    for findings in (
        sample(THEOREMS[name], version, seed=1, first=0, count=60),
        climb(THEOREMS[name], version, seed=1, start=0, steps=25),
    ):
        assert not findings.cases
        assert all(np.min(form.slacks) > 1 - 1e-9 for form in findings.forms.values())


@pytest.mark.parametrize(("name", "version"), pairs())
def test_every_rate_tried_is_admissible_and_the_values_give_the_bound(name: str, version: Version) -> None:
    theorem, generator = THEOREMS[name], np.random.default_rng(2)
    for _ in range(8):
        for made in check(theorem, version, draw(theorem, generator)):
            F = made.values.get("F", 0.0)
            values: dict[str, Any] = {**made.values, "F": max(F, 0.0)}
            bound = evaluate(name, version, **values)
            assert bound.admissible
            if F >= 0:
                assert bound.total == pytest.approx(made.bound, rel=1e-12)


@pytest.mark.parametrize("name", FALSE)
def test_the_directed_search_refutes_what_is_printed(name: str) -> None:
    findings = climb(THEOREMS[name], "printed", seed=0, start=0, steps=40)
    assert findings.forms["stated"].violations == 2, "the named family and the top of the climb"
    named, top = findings.forms["stated"].slacks
    assert top <= named < 1


@pytest.mark.parametrize("start", range(2, 4))
def test_it_needs_no_hint_for_the_strongly_convex_one(start: int) -> None:
    findings = climb(THEOREMS["strongly-convex-last"], "printed", seed=0, start=start, steps=200)
    assert findings.forms["stated"].violations == 1


def test_random_sampling_alone_refutes_what_is_printed_for_few_rounds_and_many_workers() -> None:
    assert sample(THEOREMS["strongly-convex"], "printed", seed=0, first=0, count=250).forms["stated"].violations > 0
    assert sample(THEOREMS["partial"], "printed", seed=0, first=0, count=250).forms["telescoped"].violations > 0


def example(name: str) -> QuadraticProblem:
    """The problem that a theorem declares as its counterexample."""
    found = named(THEOREMS[name])
    assert found is not None
    return found


@pytest.mark.parametrize(("M", "least", "average"), [(28, 0, 0), (29, 0, 1), (30, 0, 1), (31, 1, 1)])
def test_on_identical_workers_the_least_breaks_at_31_participants_and_the_average_at_29(
    M: int, least: int, average: int
) -> None:
    federation = QuadraticFederation(np.ones((M, 1, 1)), np.ones((M, 1)))
    start = replace(example("partial"), federation=federation, M=M)
    checks = [check(THEOREMS["partial"], "printed", replace(start, R=R)) for R in range(1, 40)]
    assert any(stated.violated for stated, _ in checks) == least
    assert any(telescoped.violated for _, telescoped in checks) == average


@pytest.mark.parametrize(("I", "violated"), [(11, False), (12, True)])
def test_fedadam_breaks_first_at_12_local_steps(I: int, violated: bool) -> None:  # noqa: E741
    start = replace(example("fedadam"), I=I, eta=100.0 * I)
    checks = [check(THEOREMS["fedadam"], "printed", replace(start, R=R)) for R in (3, 10, 30)]
    assert any(made.violated for (made,) in checks) is violated


# -- the machine must be able to see a violation ------------------------------------------------------------------


def weakened(theorem: Theorem, factor: float = 1.0, dropped: str = "") -> Theorem:
    """A theorem whose terms are too small, or which forgets a condition."""

    def state(version: Version, v: Values) -> Statement:
        terms, conditions = theorem.state(version, v)
        return Statement(
            tuple(Term(t.name, t.formula, t.value * factor, t.symbols) for t in terms),
            tuple(
                Condition(c.name, c.formula, np.inf if c.formula == dropped else c.limit, c.value) for c in conditions
            ),
        )

    return replace(theorem, state=state)


@pytest.mark.parametrize("name", ["nonconvex", "partial", "equal-hessians", "minibatch", "quadratic", "momentum"])
def test_a_bound_of_a_tenth_is_refuted_at_random(name: str) -> None:
    findings = sample(weakened(THEOREMS[name], 0.1), "corrected", seed=0, first=0, count=40)
    assert findings.cases


@pytest.mark.parametrize(
    ("name", "factor"),
    [("nonconvex", 0.3), ("quadratic", 0.45), ("momentum", 0.7), ("equal-hessians", 0.95), ("minibatch", 0.95),
     ("strongly-convex", 0.04), ("strongly-convex-last", 0.8), ("fedadam", 0.05)],
)  # fmt: skip
def test_a_bound_a_little_too_small_is_refuted_by_climbing(name: str, factor: float) -> None:
    theorem = weakened(THEOREMS[name], factor)
    assert any(climb(theorem, "corrected", seed=0, start=start, steps=150).cases for start in range(4))


def test_a_forgotten_condition_is_noticed() -> None:
    theorem = weakened(THEOREMS["partial"], dropped="M/(2 (M-1) I L_g)")
    assert climb(theorem, "corrected", seed=0, start=0, steps=0).cases


def test_a_run_that_is_no_number_is_no_excuse() -> None:
    assert BoundCheck("telescoped", np.inf, np.inf, np.inf, np.inf, {}).violated is False  # F overflows
    assert BoundCheck("telescoped", np.inf, np.inf, 1.0, 1e-12, {}).violated
    assert BoundCheck("stated", float("nan"), float("nan"), 1.0, 1e-12, {}).violated
    assert BoundCheck("stated", 1.0 + 1e-13, 1.0 + 1e-13, 1.0, 2e-12, {}).violated is False


# -- what is kept -------------------------------------------------------------------------------------------------


def _file(told: dict[str, Any]) -> Path:
    """The federation that a kept case's first command names."""
    return next(Path(word) for word in shlex.split(told["commands"][0]) if word.endswith("federation.json"))


def replayed(folder: Path) -> tuple[float, float, bool]:
    """Both sides of a kept case from its files alone, and whether all conditions hold."""
    federation = QuadraticFederation.read(folder / "federation.json")
    told = json.loads((folder / "case.json").read_text())
    values = json.loads((folder / "values.json").read_text())
    words = shlex.split(told["commands"][0])
    option = {word[2:]: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}
    rates = {k: float(option[k]) for k in ("gamma", "eta", "beta", "tau", "beta1", "beta2") if k in option}
    algorithm = make_algorithm(option["algorithm"], **rates)
    I, R = int(option["local-steps"]), int(option["rounds"])  # noqa: E741
    if words[1] == "simulate":
        trace = simulate(federation, algorithm, local_steps=I, rounds=R)
        grad2, loss = trace.grad2, trace.losses
    else:
        M = option.get("participants")
        who = Participation() if M is None else Participation("with-replacement", int(M))
        answer = expect(federation, algorithm, local_steps=I, rounds=R, participation=who)
        grad2, loss = np.array(answer.grad2), np.array(answer.loss)
    exact = {
        "the least grad2 over r < R": grad2[:-1].min(),
        "the average of grad2 over r < R": grad2[:-1].mean(),
        "the last entry of loss (f* is 0)": loss[-1],
    }[told["exact_is"]]
    assert exact == pytest.approx(told["exact"], rel=1e-9)
    assert Path(shlex.split(told["commands"][1])[-2]).parts[-2:] == (folder.name, "values.json")
    bound = evaluate(told["theorem"], told["version"], **values)
    assert bound.total == pytest.approx(told["bound"], rel=1e-12)
    return float(exact), float(bound.total), bool(bound.admissible)


@pytest.mark.parametrize("name", FALSE)
def test_kept_counterexamples_replay(name: str, tmp_path: Path) -> None:
    outcome = run(name, "printed", samples=1, searches=1, keep=9, jobs=1)
    cases = [case for case in outcome.cases if case.check.form in ("stated", "telescoped")]
    assert {case.origin for case in cases} >= {"named", "directed 0"}
    for told in save(cases, tmp_path):
        exact, bound, admissible = replayed(_file(told).parent)
        assert exact > bound
        assert admissible


@pytest.mark.parametrize("name", FALSE)
def test_the_counterexamples_of_the_documentation_replay(name: str) -> None:
    exact, bound, admissible = replayed(DOCUMENTED / f"{name}-printed-1")
    assert exact > 2 * bound
    assert admissible


def test_the_answer_does_not_depend_on_the_processes() -> None:
    settings = {"samples": 130, "searches": 1, "keep": 3, "seed": 5}
    one = run("partial", "printed", jobs=1, **settings)  # type: ignore[arg-type]
    two = run("partial", "printed", jobs=2, **settings)  # type: ignore[arg-type]
    assert one.rows == two.rows
    assert [(c.origin, c.check) for c in one.cases] == [(c.origin, c.check) for c in two.cases]
    digests = [[c.problem.federation.digest for c in each.cases] for each in (one, two)]  # type: ignore[union-attr]
    assert digests[0] == digests[1]


def test_another_seed_draws_other_federations() -> None:
    first, second = (sample(THEOREMS["nonconvex"], "corrected", seed, 0, 3).forms["telescoped"] for seed in (0, 1))
    assert first.slacks != second.slacks


def test_an_interrupted_search_keeps_what_it_found() -> None:
    def progress(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    outcome = run("strongly-convex", "printed", samples=300, searches=1, jobs=1, progress=progress)
    assert not outcome.complete
    assert outcome.cases


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"theorem": "nonconvx"}, "There is no theorem nonconvx; did you mean nonconvex?"),
        ({"theorem": "momentum", "version": "sharp"}, "momentum has no version 'sharp'"),
        ({"version": "primted"}, "There is no version 'primted'; did you mean printed?"),
        ({"samples": 0}, "samples must be a whole number of at least 1, not 0."),
        ({"searches": -1}, "searches must be a whole number of at least 0, not -1."),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1, not 0."),
    ],
)
def test_mistakes_get_one_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        run(**arguments)  # type: ignore[arg-type]
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("name", "index"),
    # What a search with 2500 samples flagged before rounding was accounted for: f falls without end, and runs that end
    # as near to x* as numbers can be.
    [("equal-hessians", 1080), *(("strongly-convex-last", index) for index in (1874, 1254, 822))],
)
def test_rounding_and_overflow_are_no_violations(name: str, index: int) -> None:
    found = sample(THEOREMS[name], "star", seed=0, first=index, count=1)
    assert sum(form.violations for form in found.forms.values()) == 0
    slacks = [slack for form in found.forms.values() for slack in form.slacks]
    assert slacks
    assert min(slacks) > 1 - 1e-10


def test_an_equality_between_kinks_is_no_violation() -> None:
    """One short step on a parabola whose kinks are a thousand times as far away: bound/exact is 1 to many digits."""
    found = sample_piecewise(THEOREMS["nonconvex"], "star", seed=0, first=137, count=1)
    assert found.forms["piecewise"].violations == 0
    assert found.forms["piecewise"].slacks == [pytest.approx(1, abs=1e-12)]
