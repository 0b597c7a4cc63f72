"""Local steps that adapt themselves: the fold on made-up curves, and runs that resume and share to the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.grouped import grouped

from fedgauge import (
    Cost,
    Experiment,
    InputError,
    adaptive_pace,
    execute,
    fedavg,
    measure,
    random_quadratics,
    scaffold,
    simulate,
)
from fedgauge.algorithms.adaptive_pace import Pace, PaceState
from fedgauge.values import Round, Trace

CHEAP = Cost.parse("cross-silo")
Fall = Callable[[float], float]


def _run(pace: Pace, fall: Fall, rounds: int = 200, begin: float = 0.0, record_every: int = 1) -> list[Round]:
    """The records of a made-up federation in which k local steps lower f by fall(k), whatever came before."""
    state, loss, records = pace.init(), begin, []
    for number in range(rounds):
        if number % record_every:
            loss -= fall(state.decision.local_steps)
            continue
        looked = (*state.decision.look, state.decision.local_steps)
        path = tuple(loss - fall(k) for k in looked)
        record = Round(number, loss, 1.0, looked=looked, path=path, elapsed=pace.elapsed(state, number))
        taken = pace.take(state, record)
        record = Round(number, loss, 1.0, looked=looked, path=path, taken=taken, elapsed=record.elapsed)
        loss = dict(zip((0, *looked), (loss, *path), strict=True))[taken]
        state, _ = pace.step(state, record)
        records.append(record)
    return records


PACES = st.builds(
    Pace,
    communication=st.floats(0.01, 100.0),
    step_seconds=st.floats(0.001, 10.0),
    message=st.floats(0.0, 1.0),
    cap=st.integers(1, 300),
)


@given(pace=PACES, losses=st.lists(st.floats(-10, 10) | st.just(math.inf), min_size=60, max_size=60))
def test_the_fold_is_pure_and_stays_within_its_cap(pace: Pace, losses: list[float]) -> None:
    source = iter(losses * 20)
    first, records = pace.init(), []
    state: PaceState = first
    for number in range(20):
        looked = (*state.decision.look, state.decision.local_steps)
        assert all(1 <= steps <= pace.cap for steps in looked)
        assert list(looked) == sorted(set(looked))
        start = next(loss for loss in source if math.isfinite(loss)) if any(map(math.isfinite, losses)) else 0.0
        path = tuple(next(source, 0.0) for _ in looked)
        taken = pace.take(state, Round(number, start, 1.0, looked=looked, path=path))
        assert taken in (0, *looked)
        records.append(Round(number, start, 1.0, looked=looked, path=path, taken=taken))
        before = state
        state, decision = pace.step(state, records[-1])
        assert pace.step(before, records[-1]) == (state, decision)
    again = pace.init()
    for record in records:
        again, _ = pace.step(again, record)
    assert again == state


@settings(max_examples=25)
@given(scale=st.floats(0.01, 100.0), begin=st.floats(-5, 5))
def test_steps_that_give_nothing_are_given_up_where_they_cost(scale: float, begin: float) -> None:
    """The fall of a round does not depend on I: fewer steps pay as long as they save a tenth of the time."""
    pace = Pace(communication=1.0, step_seconds=1.0)
    records = _run(pace, lambda k: scale * 0.01, begin=begin, rounds=150)
    assert records[-1].looked == (1,)
    even = _run(Pace(communication=1.0, step_seconds=0.1), lambda k: scale * 0.01, begin=begin, rounds=300)
    assert even[-1].looked is not None
    assert even[-1].looked[-1] <= 2


@pytest.mark.parametrize("record_every", [1, 3, 10])
def test_rounds_are_counted_and_not_records(record_every: int) -> None:
    """The first trial comes after 24 rounds, and f falls by a hundredth in each, however many of them are recorded."""
    pace = Pace(communication=1.0, step_seconds=0.1)
    state, since = pace.init(), 0
    for record in _run(pace, lambda k: 0.01, rounds=100, record_every=record_every):
        since = since if state.losses.points else record.round
        state, _ = pace.step(state, record)
        if state.trial:
            break
    assert state.trial is not None
    assert 24 <= record.round + 1 - since < 24 + record_every
    before, rate, length = state.trial
    # For each e-fold of the time, seen from the middle of the rounds that it is read off.
    seconds = pace.seconds(before)
    assert rate == pytest.approx(0.01 / seconds * (state.elapsed - length * seconds / 2))


def test_on_a_plateau_steps_are_not_lowered() -> None:
    """Ups and downs within a twentieth of the first loss are no drift; without that rule they are taken for it."""
    ups = (0.02, -0.03, 0.04, -0.01, 0.03, -0.04)

    def last(flat: float) -> int:
        pace = Pace(communication=1.0, step_seconds=0.1, flat=flat)
        state, loss = pace.init(), 2.3
        for number, up in enumerate(ups * 4):
            looked = (*state.decision.look, state.decision.local_steps)
            path = (*(loss + up / 2 for _ in looked[:-1]), loss + up)
            record = Round(number, loss, 1.0, looked=looked, path=path)
            taken = pace.take(state, record)
            state, _ = pace.step(state, Round(number, loss, 1.0, looked=looked, path=path, taken=taken))
            loss = dict(zip((0, *looked), (loss, *path), strict=True))[taken]
        return state.decision.local_steps

    assert last(0.05) >= 8
    assert last(0.0) < 8


@settings(max_examples=25)
@given(scale=st.floats(1e-4, 1.0), cap=st.sampled_from((1, 2, 16, 100, 128)))
def test_steps_that_all_give_the_same_go_up_to_the_cap(scale: float, cap: int) -> None:
    records = _run(Pace(communication=1.0, step_seconds=0.1, cap=cap), lambda k: scale * k, rounds=60)
    assert records[-1].looked is not None
    assert records[-1].looked[-1] == 2 ** (cap.bit_length() - 1)


def test_a_rise_that_is_not_finite_is_undone_and_lowers_the_steps() -> None:
    pace = Pace(communication=1.0, step_seconds=0.1)
    record = Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(math.inf,) * 4)
    assert pace.take(pace.init(), record) == 0
    _, decision = pace.step(pace.init(), Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(math.inf,) * 4, taken=0))
    assert decision.local_steps == 2
    assert "undone" in (decision.why or "")
    # Where the first steps were good, they are what is taken.
    assert pace.take(pace.init(), Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(0.9, 0.8, 2.0, math.inf))) == 2
    # So too where f is a little below its beginning again, and most of what was gained on the way is gone.
    assert pace.take(pace.init(), Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(0.5, 0.6, 0.9, 0.98))) == 1
    assert pace.take(pace.init(), Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(0.5, 0.6, 0.6, 0.7))) == 8


def _quadratics(**how: float) -> Trace:
    federation = random_quadratics(5, 4, hessian_spread=1.0, linear_spread=5.0, sigma2=0.1)
    pace = adaptive_pace(CHEAP, federation)
    return simulate(federation, fedavg(gamma=0.3), local_steps=pace, rounds=60, **grouped(**how))


def test_processes_give_the_same_bits() -> None:
    assert _quadratics(processes=1) == _quadratics(processes=2)


@pytest.mark.parametrize("record_every", [1, 3])
def test_a_run_that_was_stopped_resumes_to_the_same_bits(tmp_path: Path, record_every: int) -> None:
    federation = random_quadratics(5, 4, hessian_spread=1.0, linear_spread=5.0, sigma2=0.1)

    def run(where: Path, **how: object) -> Trace:
        pace = adaptive_pace(CHEAP, federation)
        return simulate(
            federation,
            scaffold(gamma=0.3),
            local_steps=pace,
            rounds=60,
            **grouped(run=where, checkpoint_every=7, record_every=record_every, **how),
        )

    whole = run(tmp_path / "whole")
    assert len({record.looked[-1] for record in whole.rounds if record.looked}) > 1
    stopped = run(tmp_path / "stopped", pause=20)
    assert stopped.status == "stopped"
    # As after a kill: what was done since the last checkpoint but one is lost.
    newest = sorted((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))[-1]
    newest.unlink()
    assert run(tmp_path / "stopped", resume=True) == whole
    read = (tmp_path / "stopped" / "rounds.jsonl").read_bytes()
    assert read == (tmp_path / "whole" / "rounds.jsonl").read_bytes()


def test_rates_at_which_many_steps_diverge_converge() -> None:
    """Where I = 64, at which it begins, is too much, it comes down and f falls all the same."""
    federation = random_quadratics(5, 4, shape="mean-convex", hessian_spread=1.0, linear_spread=5.0)
    fixed = simulate(federation, fedavg(gamma=0.9), local_steps=64, rounds=100)
    few = simulate(federation, fedavg(gamma=0.9), local_steps=1, rounds=100)
    paced = simulate(federation, fedavg(gamma=0.9), local_steps=adaptive_pace(CHEAP, federation), rounds=100)
    assert fixed.status == "diverged" or fixed.losses[-1] > fixed.losses[0]
    assert few.losses[-1] < few.losses[0]
    assert paced.status == "finished"
    assert paced.losses[-1] < paced.losses[0]


def test_seconds_are_those_of_the_rounds_and_of_what_was_looked_at() -> None:
    trace = _quadratics()
    federation = random_quadratics(5, 4)
    cost = CHEAP.completed(federation)
    expected = 0.0
    for record in trace.rounds:
        assert record.elapsed == pytest.approx(expected)
        if record.looked:
            looks = (len(record.looked) - 1) * cost.messages(5) / 2
            expected += cost.round(record.looked[-1], 5) + looks


def test_an_experiment_takes_it_with_a_cost() -> None:
    given = {"source": "digits", "gamma": 0.1, "rounds": 3, "processes": 1, "local_steps": "auto"}
    experiment = Experiment.of({**given, "cost": "cross-silo", "most_local_steps": 32})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    trace = execute(experiment)
    assert trace.settings["local_steps"]["cap"] == 32
    assert trace.rounds[0].looked == (1, 2, 4, 8, 16, 32)
    assert trace.losses[-1] < trace.losses[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"local_steps": "auto", "cost": "local"}, "step"),
        ({"local_steps": "auto", "cost": "cross-devise"}, "did you mean cross-device"),
        ({"local_steps": "atuo"}, "auto"),
        ({"local_steps": 3, "most_local_steps": 8}, "leave it out"),
        ({"local_steps": "auto", "most_local_steps": 0}, "most_local_steps"),
    ],
)
def test_bad_input_gets_a_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Experiment.of({"source": "digits", "gamma": 0.1, **changes})


def test_a_round_that_costs_nothing_cannot_be_weighed() -> None:
    with pytest.raises(InputError, match="cost something"):
        adaptive_pace(Cost("given", step=0.0, bytes=0.0), random_quadratics(2, 2))
    with pytest.raises(InputError, match="how long a local step takes"):
        adaptive_pace(Cost.parse("local"), random_quadratics(2, 2))


def test_measuring_refuses_it_in_a_sentence() -> None:
    with pytest.raises(InputError, match="Measuring needs a fixed number of local steps"):
        measure(Experiment.of({"source": "digits", "gamma": 0.1, "local_steps": "auto"}))


@given(
    pace=PACES,
    losses=st.lists(st.floats(-10, 10) | st.just(math.inf), min_size=60, max_size=60),
    drift=st.floats(0.0, 10.0),
)
def test_the_reason_for_a_decision_does_not_contradict_it(pace: Pace, losses: list[float], drift: float) -> None:
    """More steps follow on steps that helped, or harmed less and less; fewer on steps that did not pay."""
    source = iter(losses * 20)
    state = pace.init()
    for number in range(20):
        looked = (*state.decision.look, state.decision.local_steps)
        start = next((loss for loss in source if math.isfinite(loss)), 0.0)
        path = tuple(next(source, 0.0) for _ in looked)
        taken = pace.take(state, Round(number, start, 1.0, looked=looked, path=path))
        record = Round(number, start, 1.0, looked=looked, path=path, taken=taken, deviation2=drift)
        trial = state.trial
        state, decision = pace.step(state, record)
        why = decision.why or ""
        assert bool(why) == (decision.local_steps != looked[-1])
        assert "drift" not in why
        if decision.local_steps > looked[-1]:
            helped = ("lowered f", "raised f by less", "two steps are tried", "the trial of")
            assert any(words in why for words in helped)
            assert "did not lower f" not in why
            assert ("the trial of" in why) <= (trial is not None)
        elif why:
            worse = ("is undone", "would lower f", "f rises after", "steps are tried for")
            assert any(words in why for words in worse)


def test_a_round_that_raises_f_is_undone_for_that_reason() -> None:
    pace = Pace(communication=1.0, step_seconds=0.1)
    _, decision = pace.step(pace.init(), Round(0, 1.0, 1.0, looked=(1, 2, 4, 8), path=(1.5, 2.0, 3.0, 4.0), taken=0))
    assert (
        decision.why == "the round raised f from 1 to at least 1.5, so it is undone and the next one takes fewer steps"
    )
