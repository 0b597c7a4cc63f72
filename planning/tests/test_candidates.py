"""What a plan may choose from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge import Cost, InputError, Setup, fedavg, random_quadratics
from fedgauge.values import Constants, Estimate
from fedgauge_planning.candidates import Candidate, space_of
from fedgauge_planning.plan_result import Seen, known_before, order, terms

CHEAP = Cost("given", fixed=1.0, step=0.1)
DEAR = Cost("given", fixed=1.0, step=0.1, bandwidth=1e6, bytes=1e6)


def setup(workers: int = 10, *, gamma: float = 0.1, eta: float = 1.0, steps: Any = 10, sampling: str = "") -> Setup:
    sections = {"run": {"sampling": sampling}} if sampling else {}
    return Setup(random_quadratics(workers, 2), fedavg(gamma, eta), local_steps=steps, experiment=sections)


@given(st.floats(1e-5, 10.0), st.integers(1, 200), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_users_own_values_are_among_those_tried(gamma: float, steps: int, eta: float) -> None:
    space = space_of(setup(gamma=gamma, steps=steps, eta=eta), CHEAP)
    assert space.own in space.grid()
    assert space.own.gamma == pytest.approx(gamma, rel=1e-5)


@given(st.data())
def test_neighbours_are_near_and_come_back_to_the_same_numbers(data: st.DataObject) -> None:
    space = space_of(setup(40), DEAR)
    leader = data.draw(st.sampled_from(space.grid()))
    for other in space.beside(leader):
        assert other != leader
        assert leader in space.beside(other)


def test_what_is_named_is_all_that_is_tried() -> None:
    over: dict[str, list[Any]] = {"local_steps": [5], "gamma": [0.2, 0.1], "eta": [1.0], "participants": [10]}
    space = space_of(setup(), DEAR, over)
    assert space.grid() == (Candidate(5, 0.1, 1.0, 10), Candidate(5, 0.2, 1.0, 10))
    assert set(space.beside(space.grid()[0])) == {Candidate(5, 0.2, 1.0, 10)}


def test_fewer_participants_are_tried_where_messages_take_time() -> None:
    assert space_of(setup(40), CHEAP).participants == (40,)
    assert space_of(setup(40), DEAR).participants == (2, 10, 40)
    assert space_of(setup(40, sampling="full"), DEAR).participants == (40,)


@pytest.mark.parametrize(
    ("changes", "over", "words"),
    [
        ({}, {"participants": [20]}, "participants must be at most the 10 workers, not 20"),
        ({"sampling": "full"}, {"participants": [5]}, "contradicts participants = 5"),
        ({}, {"batch_size": [5]}, "does not choose 'batch_size'"),
        ({}, {"gamma": [0.0]}, "gamma must be"),
        ({}, {"local_steps": []}, "at least one value"),
        ({"steps": [1] * 10}, {}, "one number"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], over: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        space_of(setup(**changes), CHEAP, over)


def test_the_drift_is_scaled_to_what_was_measured() -> None:
    seen = Seen(1.0, 0.1, sigma2=1.0, zeta2=2.0, L_g=1.0, L_h=0.5, deviation2=0.07, local_steps=8, gamma=0.1)
    assert seen.drift(8, 0.1) == pytest.approx(0.07)
    assert seen.drift(1, 0.1) == 0.0
    assert seen.drift(16, 0.1) > 4 * 0.07 * 0.9
    found = terms(seen, Candidate(8, 0.1, 2.0, 10), CHEAP, 180.0)
    assert (found.progress, found.noise, found.drift) == pytest.approx((2 / (0.2 * 8 * 100), 0.02, 0.07))


def test_constants_put_those_that_overshoot_last_and_order_the_rest() -> None:
    constants = Constants(tuple(Estimate.exact(n, v, "") for n, v in (("sigma", 0.1), ("zeta", 1.0), ("L_g", 10.0))))
    before = known_before(constants, fall=1.0, grad2=1.0)
    candidates = [Candidate(steps, gamma, 1.0, 10) for steps in (1, 10) for gamma in (0.01, 0.1, 1.0)]
    found = order(candidates, before, CHEAP, 20.0)
    assert {candidate.gamma for candidate in found[-2:]} == {1.0}
    assert found[0] == Candidate(10, 0.1, 1.0, 10)  # without L_h nothing speaks against many steps
