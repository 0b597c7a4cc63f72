"""What is said about curves of known shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge_wang2024.curve_claims import curve_claims, every_step, faster, largest, race
from fedgauge_wang2024.studies import Panel

PANEL = Panel("vgg11", 50, "loss")
ROUNDS = list(range(0, 201, 10))


def _figure(curves: Mapping[int, Sequence[float]], deviation: float = 0.01, rounds: Sequence[int] = ROUNDS) -> Any:
    def curve(values: Sequence[float]) -> dict[str, Any]:
        return {"mean": list(values), "deviation": [deviation] * len(values)}

    combinations = [
        {
            "values": {"local_steps": steps, "percent": 50.0},
            "rounds": list(rounds),
            "loss": curve(values),
            "accuracy": curve([1 - value / 3 for value in values]),
            "seconds": 60.0,
        }
        for steps, values in curves.items()
    ]
    study = {"experiment": {"data": {"workers": 10}}, "seeds": 2, "combinations": combinations}
    return {"scale": "workstation", "studies": {"vgg11": study}}


def _falling(rate: float, floor: float = 0.1) -> list[float]:
    return [floor + (2.3 - floor) * rate ** (number / 10) for number in ROUNDS]


def _judged(result: Any) -> dict[str, str]:
    """Verdicts on the first panel of Figure 4, by the last words of the claim."""
    claims = [claim for claim in curve_claims() if claim.where == "Figure 4(a)"]
    found = {claim.text: claim.judged({"fig4": [result]}).found.verdict for claim in claims}
    return dict(zip(("every step", "largest", "faster"), found.values(), strict=True))


def test_curves_that_fall_faster_with_more_steps_are_all_that_is_claimed() -> None:
    result = _figure({1: _falling(0.95), 5: _falling(0.9), 20: _falling(0.8)})
    assert set(_judged(result).values()) == {"reproduced"}


def test_curves_that_meet_at_their_floor_are_faster_all_the_same() -> None:
    """After 200 rounds all but I = 1 are at 0.1, so that their order there is chance."""
    result = _figure({1: _falling(0.9), 5: _falling(0.5), 20: _falling(0.2)})
    assert _judged(result) == {"every step": "not reproduced", "largest": "not reproduced", "faster": "reproduced"}


def test_a_curve_that_leads_only_for_a_while_is_not_faster() -> None:
    leading = [max(value, 0.5) for value in _falling(0.2)]
    result = _figure({1: _falling(0.9, 0.0), 5: _falling(0.5, 0.0), 20: leading})
    assert _judged(result)["faster"] == "not reproduced"


def test_curves_on_one_plateau_have_no_order_and_no_verdict() -> None:
    result = _figure({1: [2.3] * 21, 5: [2.29] * 21, 20: [2.0] * 21}, deviation=0.001)
    assert set(_judged(result).values()) == {"not decided: the reference did not train"}


@pytest.mark.parametrize("missing", [1, 5])
def test_without_a_reference_or_with_a_single_curve_there_is_nothing_to_judge(missing: int) -> None:
    curves = {1: _falling(0.9), 5: _falling(0.7)}
    del curves[missing]
    assert set(_judged(_figure(curves)).values()) == {"not run"}


def test_curves_are_compared_at_rounds_that_all_of_them_have() -> None:
    """A run that diverged has fewer rounds."""
    result = _figure({1: _falling(0.9), 5: _falling(0.7)})
    shorter = result["studies"]["vgg11"]["combinations"][1]
    shorter["rounds"] = shorter["rounds"][:9]
    for key in ("loss", "accuracy"):
        shorter[key] = {name: values[:9] for name, values in shorter[key].items()}
    run = race(result, PANEL)
    assert run is not None
    assert list(run.points) == [20, 40, 80]


def test_curves_are_compared_over_the_seeds_that_all_of_them_have() -> None:
    """The second seed of I = 5 is far better, and I = 1 has none: it does not count yet."""
    result = _figure({1: _falling(0.9), 5: _falling(0.7)})
    result["studies"]["vgg11"]["seeds"] = 3
    one, five = result["studies"]["vgg11"]["combinations"]

    def run(seed: int, loss: float) -> dict[str, Any]:
        told = {"seed": seed, "status": "finished", "seconds": 1.0, "rounds": [0, 10], "accuracy": [0.1, 0.2]}
        return {**told, "loss": [2.3, loss]}

    one["runs"], five["runs"] = [run(0, 1.0)], [run(0, 1.5), run(1, 0.1)]
    found = race(result, PANEL)
    assert found is not None
    assert (found.ends, found.seeds) == ({1: (1.0, 0.0), 5: (1.5, 0.0)}, 1)
    one["runs"].append(run(1, 1.2))
    found = race(result, PANEL)
    assert found is not None
    assert found.seeds == 2  # all have both, and their means are taken as they stand
    assert found.ends[5][0] == pytest.approx(_falling(0.7)[-1])
    one["runs"], five["runs"] = [run(0, 1.0)], [run(1, 0.1)]
    assert race(result, PANEL) is None


def test_a_panel_took_the_time_of_its_own_curves() -> None:
    """A study has runs at 50% and 75%, each of which is a panel of its own."""
    result = _figure({1: _falling(0.9), 5: _falling(0.7)})
    combinations = result["studies"]["vgg11"]["combinations"]
    combinations += [{**each, "values": {**each["values"], "percent": 75.0}, "seconds": 1e6} for each in combinations]
    costs = {claim.cost(result) for claim in curve_claims() if claim.where == "Figure 4(a)"}
    assert costs == {("workstation", 2, 120.0)}


VALUES = st.lists(st.lists(st.floats(0.01, 2.0), min_size=21, max_size=21), min_size=2, max_size=4)


@given(VALUES, st.floats(0, 0.5))
def test_the_claims_imply_each_other_as_they_should(values: list[list[float]], deviation: float) -> None:
    curves = dict(zip((1, 5, 20, 80), values, strict=False))
    run = race(_figure(curves, deviation), PANEL)
    assert run is not None
    if every_step(PANEL, run):
        # A chain of gaps, each above the spread, is a gap between its ends.
        assert largest(PANEL, run)
    backwards = race(_figure(dict(zip(curves, reversed(values), strict=True)), deviation), PANEL)
    assert backwards is not None
    assert not (faster(PANEL, run) and faster(PANEL, backwards))
