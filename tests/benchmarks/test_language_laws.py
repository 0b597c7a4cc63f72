"""Laws of the efficiency in the number of local steps: what follows one is found again, and the other misses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_scores import fitted, predicted

STEPS = (4, 16, 64, 256)


@given(st.floats(2, 200), st.floats(0.1, 0.9))
def test_efficiencies_that_fall_to_a_floor_have_it_found_and_foretold(H0: float, floor: float) -> None:
    def efficiency(H: int) -> float:
        return floor + (1 - floor) / (1 + (H - 1) / H0)

    found = fitted("floor", STEPS, map(efficiency, STEPS))
    assert found == pytest.approx((H0, floor, 0.0), rel=1e-3, abs=1e-6)
    for H in (1, 8, 1024):
        assert predicted("floor", *found[:2], H) == pytest.approx(efficiency(H), rel=1e-4)


@given(st.floats(5, 500), st.floats(0.3, 1.5))
def test_a_power_is_found_and_foretold(H0: float, p: float) -> None:
    def efficiency(H: int) -> float:
        return float(1 / (1 + (H / H0) ** p))

    found = fitted("power", STEPS, map(efficiency, STEPS))
    assert found == pytest.approx((H0, p, 0.0), rel=1e-3, abs=1e-6)
    assert predicted("power", *found[:2], 1024) == pytest.approx(efficiency(1024), rel=1e-4)


def test_a_law_that_is_not_that_of_the_numbers_errs() -> None:
    values = [predicted("floor", 15.0, 0.6, H) for H in STEPS]
    assert fitted("power", STEPS, values)[2] > 0.02
