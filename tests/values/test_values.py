from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from fedgauge.base.codec import decoder
from fedgauge.base.errors import InputError
from fedgauge.base.symbols import SIGNED, SYMBOLS
from fedgauge.federation.participation import Participation
from fedgauge.values import Bound, Condition, Constants, Estimate, Kind, Round, Source, Term, Trace, Value, initial_gap

numbers = st.floats(allow_nan=False)
names = st.sampled_from(sorted(SYMBOLS))


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    low, value, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    kind = draw(st.sampled_from(get_args(Kind)))
    name = draw(names)
    if name not in SIGNED:
        low, value, high = sorted(map(abs, (low, value, high)))
    return Estimate(name, value, low, high, kind, draw(st.text()), {"passes": draw(numbers)})


terms = st.builds(Term, st.text(), st.text(), numbers, st.tuples(names))
conditions = st.builds(Condition, st.text(), st.text(), numbers, numbers)
sources = st.builds(Source, st.text(), st.text(), st.sampled_from(["printed", "corrected"]), st.tuples(st.text()))
rounds = st.builds(Round, st.integers(0), numbers, numbers, st.none() | numbers, st.none() | numbers)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Estimate": estimates(),
    "Constants": st.lists(estimates(), unique_by=lambda e: e.symbol).map(lambda found: Constants(tuple(found))),
    "Term": terms,
    "Condition": conditions,
    "Source": sources,
    "Bound": st.builds(
        Bound,
        st.text(),
        st.tuples(terms, terms),
        st.tuples(conditions),
        sources,
        numbers,
        numbers,
        st.just({"F": "exact"}),
    ),
    "Round": rounds,
    "Trace": st.builds(
        Trace,
        st.just({"seed": 0}),
        st.just("finished"),
        st.integers(0),
        st.tuples(rounds, rounds),
        st.lists(numbers).map(np.array),
        st.tuples(numbers, numbers),
    ),
    "Participation": st.just(Participation("with-replacement", 3, (1.0, 2.0))),
}


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_json_round_trip_is_exact(name: str, data: st.DataObject) -> None:
    value: Value = data.draw(VALUES[name])
    assert type(value).from_json(json.loads(json.dumps(value.to_json()))) == value


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_values_are_frozen(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Estimate("L_h", 2.0, 0.0, 1.0, "exact", ""), "L_h = 2.0 must lie in its interval"),
        (lambda: Estimate("L_hh", 1.0, 1.0, 1.0, "exact", ""), "did you mean L_h"),
        (lambda: Estimate("L_h", float("nan"), 0.0, 1.0, "exact", ""), "must lie in its interval"),
        (lambda: Constants((Estimate.exact("L_h", 1, ""),) * 2), "each symbol once"),
        (lambda: Constants((Estimate.exact("L_h", 1, ""),))["L_g"], "L_g was not measured"),
        (lambda: Term("a", "b", 1.0, ("nothing",)), "no symbol nothing"),
        (lambda: Round.from_json({"round": 1, "loss": 1.0}), "needs the entry 'grad2'"),
        (lambda: Round.from_json({"round": 1, "los": 1.0}), "no entry 'los'; did you mean loss"),
        (lambda: Round.from_json({"round": "1", "loss": 1.0, "grad2": 1.0}), "Round.round must be a whole number"),
        (lambda: Round.from_json({"round": 1, "loss": True, "grad2": 1.0}), "Round.loss must be a number"),
        (lambda: Source.from_json({"paper": "", "locator": "", "version": "new"}), "Source.version must be one of"),
        (lambda: Constants.from_json({"estimates": 3}), "Constants.estimates must be a list"),
        (lambda: Estimate.from_json([]), "read from a JSON object"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        make()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "gamma", "certified"),
    [("exact", 0.1, True), ("upper", 0.1, True), ("lower", 0.1, False), ("exact", 0.3, False)],
)
def test_a_bound_is_certified_by_conditions_and_kinds_together(kind: Any, gamma: float, certified: bool) -> None:
    terms = (Term("start", "F", 1.0, ("F",)), Term("noise", "sigma2", 2.0, ("sigma2",)))
    conditions = (Condition("gamma", "1/5", 0.2, gamma),)
    bound = Bound("q", terms, conditions, Source("p", "l", "corrected"), kinds={"F": kind})
    assert bound.total == 3.0
    assert bool(bound.certified) is certified


def test_a_bound_on_a_grid_answers_point_by_point() -> None:
    gamma = np.array([0.1, 0.3])
    bound = Bound(
        "q",
        (Term("a", "gamma", gamma, ("gamma",)),),
        (Condition("gamma", "1/5", 0.2, gamma),),
        Source("p", "l", "printed"),
    )
    assert bound.total.tolist() == [0.1, 0.3]
    assert bound.certified.tolist() == [True, False]


def test_the_ratio_of_a_round_is_missing_where_it_is_zero_over_zero() -> None:
    assert Round(0, 1.0, 1.0, spread=0.0, deviation2=0.0).L_h_ratio is None
    assert Round(0, 1.0, 1.0, spread=4.0, deviation2=1.0).L_h_ratio == 0.5


@pytest.mark.parametrize(
    ("arguments", "low", "high", "kind"),
    [
        ({"loss": 2.5, "floor": 0.0}, 0.0, 2.5, "upper"),  # all that is known of a loss
        ({"loss": 2.5, "floor": 1.0, "ceiling": 1.5}, 1.0, 1.5, "upper"),
        ({"loss": 2.5, "floor": 1.0, "ceiling": 1.0}, 1.5, 1.5, "exact"),
        ({"loss": 2.5, "floor": 1.0, "ceiling": 1.0, "rounding": 0.25}, 1.25, 1.75, "upper"),
        ({"loss": 1.0, "floor": 1.5, "ceiling": 1.5}, 0.0, 0.0, "exact"),  # rounding, not a gap below 0
        ({"loss": 1.0, "floor": -math.inf, "ceiling": -math.inf}, math.inf, math.inf, "exact"),
        ({"loss": -1.0, "floor": 0.0}, 0.0, math.inf, "upper"),  # a loss that may be negative has no floor at 0
    ],
)
def test_the_initial_gap_lies_between_the_bounds_on_the_least_value(
    arguments: dict[str, Any], low: float, high: float, kind: str
) -> None:
    gap = initial_gap(**arguments)
    assert (gap.symbol, gap.low, gap.high, gap.value, gap.kind) == ("F", low, high, high, kind)


def test_constants_are_a_mapping() -> None:
    constants = Constants((Estimate.exact("L_h", 0.5, "eigenvalue"), Estimate.exact("L_g", 1.0, "eigenvalue")))
    assert isinstance(constants, Mapping)
    assert list(constants) == list(constants.keys()) == ["L_h", "L_g"]
    assert {name: estimate.value for name, estimate in constants.items()} == {"L_h": 0.5, "L_g": 1.0}
    assert (len(constants), constants.get("mu"), "L_h" in constants) == (2, None, True)
    with pytest.raises(KeyError, match=r"^mu was not measured; choose one of L_h, L_g\.$"):
        constants["mu"]


def test_a_trace_gives_arrays_and_a_frame() -> None:
    rounds = (Round(0, 2.0, 1.0, spread=4.0, deviation2=1.0), Round(5, 1.0, 0.5, accuracy=0.75))
    trace = Trace({}, "finished", 5, rounds, np.zeros(2), (0.1,))
    assert trace.column("round").tolist() == [0, 5]
    np.testing.assert_array_equal(trace.accuracies, [np.nan, 0.75])
    np.testing.assert_array_equal(trace.column("L_h_ratio"), [0.5, np.nan])
    frame = trace.to_frame()
    assert frame["loss"].tolist() == [2.0, 1.0]
    np.testing.assert_array_equal(frame["seconds"], [0.1, np.nan])
    with pytest.raises(InputError, match="no entry 'los'; did you mean loss"):
        trace.column("los")


def test_arrays_are_read_through_an_alias_of_its_own_kind() -> None:
    """As numpy's ``NDArray`` is from 2.5 on, where Python has them."""
    number = TypeVar("number", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[number]], type_params=(number,))
    found = decoder(alias[np.float64])([1, 2], "a list")
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]
