"""What Table 1 prints, read as constants and as their squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge_wang2024 import ledger, ledger_page, printed_sizes
from fedgauge_wang2024.exhibits import table1_of
from fedgauge_wang2024.printed_sizes import COLUMNS, RATIO, compared
from fedgauge_wang2024.table1 import PAPER, SYMBOLS

RESULTS = Path(__file__).parents[1] / "results"


def _measured(study: str, power: float, factors: dict[str, float]) -> dict[str, Any]:
    """A result whose constants are what is printed, to a power and times a factor for each."""
    return {
        "rows": [
            {
                "percent": percent,
                "readings": {
                    "trajectory": {s: [factors[s] * PAPER[study][s][percent][0] ** power, 0.0] for s in SYMBOLS}
                },
            }
            for percent in (25, 75, 100)
        ]
    }


@given(
    st.sampled_from(sorted(PAPER)),
    st.sampled_from([1.0, 0.5]),
    st.fixed_dictionaries({symbol: st.floats(0.01, 100) for symbol in SYMBOLS}),
)
def test_a_reading_under_which_numbers_differ_by_a_factor_has_it_as_misfit(
    study: str, power: float, factors: dict[str, float]
) -> None:
    (sizes,) = compared({table1_of(study): [_measured(study, power, factors)]})
    right = (sizes.constants if power == 1.0 else sizes.squares).factors
    for symbol in SYMBOLS:
        assert right[symbol] == pytest.approx(max(factors[symbol], 1 / factors[symbol]))
    ratio = factors["L_h"] / factors["L_tilde"]
    assert right[RATIO] == pytest.approx(max(ratio, 1 / ratio))
    assert right.keys() == set(COLUMNS)


def test_beyond_counts_what_steps_of_the_papers_rate_cannot_bear() -> None:
    # The MLP's rate is 0.1: 2 / gamma = 20. It prints 131 twice, 134, 142 and 122; the largest root is 11.9.
    (sizes,) = compared({"table1": [_measured("mlp", 1.0, dict.fromkeys(SYMBOLS, 1.0))]})
    assert (sizes.constants.beyond, sizes.squares.beyond, sizes.printed) == (4, 0, 4)


def test_the_conclusion_says_which_reading_fits() -> None:
    exact = dict.fromkeys(SYMBOLS, 1.0)
    for power, said in ((1.0, "does not bring"), (0.5, "agree better")):
        held = {table1_of(study): [_measured(study, power, exact)] for study in ("mlp", "cnn")}
        assert said in printed_sizes.conclusion(compared(held))


def test_a_directory_without_table_1_has_no_such_section() -> None:
    assert compared({}) == []
    kept = {name: held for name, held in ledger.read(RESULTS).items() if not name.startswith("table1")}
    assert "sizes that Table 1 prints" not in ledger_page.page(ledger.rows(kept), {}, sizes=compared(kept))
