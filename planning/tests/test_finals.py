"""The finals of a search, with runs whose times are given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fedgauge_planning.candidates import Candidate, Trial
from fedgauge_planning.course import Course
from fedgauge_planning.forecast import Curve
from fedgauge_planning.pilots import finals

FIRST, SECOND = Candidate(8, 0.1, 1.0, 10), Candidate(4, 0.1, 1.0, 10)


def course_of(times: dict[Candidate, Sequence[float]]) -> Course:
    """A course on which both have reached the goal with their first seed."""

    def run(trials: Sequence[Trial], seconds: Sequence[float]) -> list[Curve]:
        ends = [times[trial.candidate][trial.seed] for trial in trials]
        return [Curve((0.0, end, end + 1), (1.0, 0.1, 0.1), 1.0, "target") for end in ends]

    course = Course(run, 0.1, None, 1e3)
    course.run([Trial(candidate, 0) for candidate in times], [1e3] * len(times))
    return course


@pytest.mark.parametrize(
    ("second", "trials", "ending"),
    [
        # The intervals of the first two seeds overlap in all of these.
        ((11.5, 13.2, 99.0), 4, "the other finalist is more than a tenth behind"),
        ((10.6, 13.0, 11.6), 6, "the best cannot be told apart"),
        ((10.2, 12.1, 11.1), 6, "the difference between the best does not matter"),
    ],
)
def test_a_finalist_that_is_a_tenth_behind_with_two_seeds_gets_no_third(
    second: tuple[float, ...], trials: int, ending: str
) -> None:
    found = finals(course_of({FIRST: (10.0, 12.0, 11.0), SECOND: second}), 3)
    assert (found.trials, found.ending, found.winner) == (trials, ending, FIRST)
    assert found.clear == ("does not matter" in ending)
