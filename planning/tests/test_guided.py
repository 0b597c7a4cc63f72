"""The guided search on federations of which every run is known in closed form, and its laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.tests.worlds import GAMMAS, SEARCH, STEPS, World, costs, worlds

from fedgauge.algorithms.cost import Cost
from fedgauge_planning.candidates import Candidate, Space
from fedgauge_planning.course import Course, Race
from fedgauge_planning.gauge_start import Guided, Way
from fedgauge_planning.pilots import finals

SPACE = Space(STEPS, GAMMAS, (1.0,), (10,), Candidate(8, 0.09, 1.0, 10), ("local_steps",))


def plan(world: World, cost: Cost, target: float, limit: float = 3e3, space: Space = SPACE, seeds: int = 3) -> Race:
    course = Course(world.runs(cost, target), target, None, limit)
    ended = Guided(course, space, cost).run()
    return finals(course, seeds) if course.ready else course.unreached(ended)


def test_winners_are_nearly_the_best_of_an_exhaustive_search_for_a_few_runs() -> None:
    generator = np.random.default_rng(1)
    ratios, works, races = [], [], []
    for _ in range(60):
        noise, drift = generator.uniform(0, 0.3), generator.choice([0.0, 0.01, 1.0]) * generator.uniform()
        world = World(noise=float(generator.choice([0.0, noise])), drift=float(drift))
        cost = Cost("given", fixed=float(10 ** generator.uniform(-1.3, 1)), step=0.01)
        target = float(generator.choice([0.1, 0.03, 0.01]))
        times, found = world.times(cost, target), plan(world, cost, target)
        best = min(times.values())
        if found.standings:
            ratios.append(times[found.winner] / best)
            works.append(found.gradient_steps)
            races.append(world.run(cost, target).gradient_steps)
    assert len(ratios) > 40
    assert np.mean(np.array(ratios) <= 1.25) >= 0.9
    # These runs have no noise, so that a race eliminates many at once; on real data the share is smaller.
    assert np.median(np.array(works) / np.array(races)) <= 0.5


@pytest.mark.parametrize(
    ("world", "fixed", "target"),
    [
        # Left out, the smaller rate costs a factor of 2.1: what it saves in drift and noise is not foreseen.
        (World(noise=0.23, drift=0.0025), 0.21, 0.03),
        # Without more local steps at the smaller rate, a factor of 2.4: drift falls faster with it than expected.
        (World(noise=0.08, drift=0.066, power=4), 1.77, 0.01),
    ],
)
def test_a_smaller_rate_with_more_local_steps_is_found(world: World, fixed: float, target: float) -> None:
    cost = Cost("given", fixed=fixed, step=0.01)
    times = world.times(cost, target)
    assert times[plan(world, cost, target).winner] <= 1.01 * min(times.values())


@settings(max_examples=60, deadline=None, phases=SEARCH)
@given(world=worlds, cost=costs, wobble=st.floats(0.0, 0.5), target=st.sampled_from([0.1, 0.03, 0.001, 1e-6]))
def test_the_choice_is_never_one_that_was_eliminated_or_that_anothers_record_beats(
    world: World, cost: Cost, wobble: float, target: float
) -> None:
    world = World(world.noise, world.drift, wobble, largest=0.5)
    for found in (plan(world, cost, target, limit=50.0), world.run(cost, target, limit=50.0)):
        chosen = next(entry for entry in found.entries if entry.candidate == found.winner)
        assert not chosen.outcome.startswith("behind")
        if found.standings:
            assert chosen.curve.when(target) is not None
            assert all(standing.score >= found.standings[0].score for standing in found.standings)
        else:
            sound = [entry for entry in found.entries if not entry.curve.diverged]
            assert min(chosen.curve.errors) == min(min(entry.curve.errors) for entry in sound or found.entries)


@pytest.mark.parametrize(
    ("noise", "best", "tried"),
    [
        (0.0, 2.0, {1.0, 2.0}),  # the larger rate leads, and the smaller one is not tried any more
        (0.5, 0.5, {0.5, 1.0, 2.0}),  # with the larger rate, noise keeps the goal out of reach
    ],
)
def test_smaller_global_rates_are_tried_only_if_no_larger_one_has_led(
    noise: float, best: float, tried: set[float]
) -> None:
    space = Space(STEPS, (0.09,), (0.5, 1.0, 2.0), (10,), Candidate(8, 0.09, 1.0, 10), ("local_steps",))
    found = plan(World(noise=noise), Cost("given", fixed=1.0, step=0.01), 0.06, space=space)
    assert found.winner.eta == best
    assert {entry.candidate.eta for entry in found.entries} == tried


def test_a_goal_that_is_only_touched_does_not_count() -> None:
    """Noise of a half touches almost every level once; what counts are two records in a row."""
    world, cost = World(noise=0.3, wobble=0.5), Cost("given", fixed=0.1, step=0.01)
    found = plan(world, cost, 0.02)
    for entry in found.entries:
        if entry.curve.status == "target":
            assert max(entry.curve.errors[-2:]) <= 0.02


@given(st.dictionaries(st.sampled_from(STEPS), st.floats(1.0, 1e6), min_size=1), st.floats(1.0, 1e4))
def test_a_way_passes_through_what_is_known_and_beyond_it_local_steps_are_never_more_efficient(
    known: dict[int, float], beyond: float
) -> None:
    way = Way(known)
    for steps, length in known.items():
        assert math.isclose(way.steps(steps), length, rel_tol=1e-9)
    assert way.steps(max(known) * beyond) >= known[max(known)] * (1 - 1e-9)


def test_the_gauge_replaces_runs_where_it_is_asked() -> None:
    """With the whole way from the gauge, only promising local steps are run."""
    world, cost, target = World(drift=0.3), Cost("given", fixed=1.0, step=0.01), 0.01
    asked = []

    def gauged(base: Candidate, steps: int) -> dict[int, float]:
        asked.append((base, steps))
        times = world.times(cost, target)
        same = {c.I: time / c.seconds(cost) * c.I for c, time in times.items() if c.gamma == base.gamma}
        return {steps: way for steps, way in same.items() if math.isfinite(way)}

    course = Course(world.runs(cost, target), target, None, 3e3)
    Guided(course, SPACE, cost, gauged=gauged).run()
    assert [base.I for base, _ in asked] == [1]
    plain = Course(world.runs(cost, target), target, None, 3e3)
    Guided(plain, SPACE, cost).run()
    assert len(course.field) <= len(plain.field)
    best = min(world.times(cost, target).values())
    assert min(map(course.score, course.ready)) <= 1.05 * best
