"""The published rules give the numbers of local steps that their papers' formulas give, and runs keep their bits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.algorithms.paces import RULES, Rule, from_settings, named, parse_rule
from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.prepare import execute
from fedgauge.simulation.options import StopAt
from fedgauge.simulation.runs.reader import read_run

RULED: list[Rule] = [
    fg.QSR(alpha=0.2, base=2, steps=90),
    fg.PostLocal(local_steps=6, switch=9, steps=80),
    fg.AdaComm(local_steps=12, interval=30.0, cost=3.0, steps=100),
]
COSINE = fg.with_schedules(fg.fedavg(gamma=0.1), "cosine,by=step,over=90")


def quadratics() -> fg.QuadraticFederation:
    return fg.random_quadratics(5, 4, hessian_spread=0.3, linear_spread=1.0, sigma2=0.1, seed=1)


def positive() -> fg.SupervisedFederation:
    """A federation whose losses are above 0."""
    experiment = fg.Experiment.of({"source": "digits", "model": "softmax", "percent": 50, "gamma": 0.1})
    federation = fg.prepare(experiment).federation
    assert isinstance(federation, fg.SupervisedFederation)
    return federation


def run(rule: Rule | int | str, federation: fg.Federation | None = None, **how: Any) -> fg.Trace:
    how = {"algorithm": COSINE, "rounds": 1000, "compute": fg.Compute(1), **how}
    algorithm = how.pop("algorithm")
    return fg.simulate(federation or positive(), algorithm, local_steps=rule, **how)


def taken(trace: fg.Trace) -> list[int]:
    return [record.taken for record in trace.rounds if record.taken is not None]


def test_qsr_takes_the_square_of_alpha_over_the_rate() -> None:
    expected: list[int] = []
    while (before := sum(expected)) < 90:
        rate = 0.1 * (1 + math.cos(math.pi * before / 90)) / 2
        expected.append(min(max(2, int((0.2 / rate) ** 2)), 90 - before))
    trace = run(RULED[0], quadratics())
    assert taken(trace) == expected
    assert expected[0] == 4
    assert max(expected) > 20
    assert (trace.status, trace.stopped_at) == ("finished", len(expected))


def test_qsr_ignores_the_rising_rate_of_a_warm_up_and_keeps_to_its_largest_number() -> None:
    algorithm = fg.with_schedules(fg.fedavg(gamma=0.1), "linear,over=12,warmup=4")
    expected = [4] * 5 + [min(int((0.2 / (0.1 * (1 - t / 8))) ** 2), 30) for t in range(1, 8)]
    assert taken(run(fg.QSR(0.2, 1, most=30), quadratics(), algorithm=algorithm, rounds=12)) == expected
    constant = run(fg.QSR(0.2, 1), quadratics(), algorithm=fg.fedavg(gamma=0.1), rounds=3)
    assert taken(constant) == [4, 4, 4]


def test_post_local_takes_one_step_up_to_the_switch() -> None:
    assert taken(run(RULED[1], quadratics())) == [1] * 9 + [6] * 11 + [5]
    assert taken(run(fg.PostLocal(3, switch=0), quadratics(), rounds=4)) == [3] * 4


def test_adacomm_takes_the_root_of_the_loss_ratio_and_halves_where_that_is_not_less() -> None:
    trace = run(fg.AdaComm(12, interval=30, cost=3, steps=300), algorithm=fg.fedavg(gamma=0.1))
    expected, time, local_steps, passed = [], 0.0, 12, 0
    for record in trace.rounds[:-1]:
        if int(time / 30) > passed:
            passed = int(time / 30)
            wanted = math.ceil(math.sqrt(record.loss / trace.rounds[0].loss) * 12)
            local_steps = wanted if wanted < local_steps else max(math.ceil(local_steps / 2), 1)
        expected.append(local_steps)
        time += local_steps + 3
    assert taken(trace)[:-1] == expected[:-1]
    assert sum(taken(trace)) == 300
    assert len(set(expected)) >= 4


def test_a_constant_rule_has_the_bits_of_the_same_number_of_local_steps() -> None:
    federation = positive()
    plain = run(4, federation, algorithm=fg.fedavg(0.1), rounds=5)
    ruled = run(fg.PostLocal(4, switch=0), federation, algorithm=fg.fedavg(0.1), rounds=5)
    np.testing.assert_array_equal(ruled.model, plain.model)
    assert ruled.losses.tolist() == plain.losses.tolist()


@pytest.mark.parametrize("rule", RULED)
def test_the_bits_are_the_same_in_two_processes(rule: Rule) -> None:
    federation = positive()
    assert run(rule, federation, compute=fg.Compute(2)) == run(rule, federation)


class KilledError(Exception):
    """What ends a run at once, without a checkpoint."""


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("rule", RULED)
def test_a_killed_run_and_a_paused_one_resume_to_the_same_bits(rule: Rule, every: int, tmp_path: Path) -> None:
    federation = positive()
    whole = run(rule, federation, record=fg.Recording(every=every))

    def kill(done: int, record: fg.Round | None) -> None:
        if done == 6:
            raise KilledError

    keep = fg.Keep(tmp_path, checkpoint_every=4)
    with pytest.raises(KilledError):
        run(rule, federation, record=fg.Recording(every=every, observer=kill), keep=keep)
    resume = fg.Keep(tmp_path, resume=True, checkpoint_every=4)
    paused = run(rule, federation, record=fg.Recording(every=every), keep=resume, stop=StopAt(round=6))
    assert paused.status == "stopped"
    again = run(rule, federation, record=fg.Recording(every=every), keep=resume)
    assert again == whole
    saved = read_run(tmp_path)
    steps = dict(zip((record.round for record in run(rule, federation).rounds), _steps(rule, federation), strict=True))
    if every == 1 or not isinstance(rule, fg.AdaComm):  # which decides at records alone
        assert saved.steps == [steps[record.round] for record in saved.rounds]
    assert saved.steps[-1] == rule.steps


def _steps(rule: Rule, federation: fg.Federation) -> list[float]:
    """The local steps before each round of a run with a record in every round."""
    return [0.0, *np.cumsum(taken(run(rule, federation))).astype(float).tolist()]


@pytest.mark.parametrize("rule", RULED)
def test_an_experiment_takes_it_as_text(rule: Rule) -> None:
    values = {key: value for key, value in named(rule).items() if value is not None}
    text = ",".join([values.pop("name"), *(f"{key}={value}" for key, value in values.items())])
    assert parse_rule(text) == rule == from_settings(named(rule))
    given = {"source": "digits", "gamma": 0.1, "gamma_schedule": "cosine,by=step", "rounds": 3, "processes": 1}
    experiment = fg.Experiment.of({**given, "local_steps": text})
    assert fg.Experiment.from_toml(experiment.to_toml()) == experiment
    trace = execute(experiment)
    assert trace.settings["local_steps"] == named(rule)
    assert trace.settings["algorithm"]["gamma_schedule"] == f"cosine,by=step,over={rule.steps}"
    assert len(taken(trace)) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qrs,alpha=0.1,base=2", "did you mean qsr"),
        ("qsr,alpha=0.1", "needs base, as in qsr,alpha=0.02,base=4"),
        ("qsr,alpha=0.1,base=2,mots=3", "did you mean most"),
        ("qsr,alpha=0.1,base=2.5", "base of the pace qsr must be a whole number"),
        ("qsr,alpha=0.1,base=8,most=4", "most must be a whole number of at least 8"),
        ("adacomm,local_steps=8,interval=9,decay=1", "decay must be between 0 and 1"),
        ("post-local,local_steps=8,switch=-1", "switch must be a whole number of at least 0"),
        ("post-local,local_steps=8,switch=1,steps=0", "steps must be"),
    ],
)
def test_a_mistake_gets_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fg.Experiment.of({"source": "digits", "gamma": 0.1, "local_steps": text})
    with pytest.raises(InputError, match=said):
        fg.simulate(quadratics(), fg.fedavg(0.1), local_steps=text, rounds=3)


def test_qsr_needs_a_rate_and_an_end() -> None:
    cosine = fg.with_schedules(fg.fedavg(0.1), "cosine,over=1000")
    with pytest.raises(InputError, match="give most"):
        run(fg.QSR(0.2, 2), quadratics(), algorithm=cosine)
    with pytest.raises(InputError, match="needs the rate gamma, which mine does not have"):
        run(fg.QSR(0.2, 2), quadratics(), algorithm=fg.Algorithm("mine", {}, COSINE.step, COSINE.update))


def test_adacomm_needs_losses_above_zero() -> None:
    below = fg.QuadraticFederation.from_json({**quadratics().to_json(), "constant": [-100.0] * 5})
    with pytest.raises(InputError, match="f must be above 0 at the beginning"):
        run(RULED[2], below)


def test_every_rule_has_a_name() -> None:
    assert {type(rule) for rule in RULED} == set(RULES.values())
