"""What Table 1 prints, read as constants and as their squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge_wang2024 import ledger, ledger_page, printed_sizes
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
    st.sampled_from(sorted(printed_sizes.POWERS)),
    st.fixed_dictionaries({symbol: st.floats(0.01, 100) for symbol in SYMBOLS}),
)
def test_a_reading_under_which_numbers_differ_by_a_factor_has_it_as_misfit(
    study: str, power: float, factors: dict[str, float]
) -> None:
    name = "table1" if study == "mlp" else f"table1-{study}"
    sizes = compared({name: [_measured(study, power, factors)]})
    (right,) = (each for each in sizes if each.power == power)
    for symbol in SYMBOLS:
        assert right.misfits[symbol] == pytest.approx(max(factors[symbol], 1 / factors[symbol]))
    ratio = factors["L_h"] / factors["L_tilde"]
    assert right.misfits[RATIO] == pytest.approx(max(ratio, 1 / ratio))
    assert right.misfits.keys() == set(COLUMNS)


def test_beyond_counts_what_steps_of_the_papers_rate_cannot_bear() -> None:
    # The MLP's rate is 0.1: 2 / gamma = 20. It prints 131 twice, 134, 142 and 122; the largest root is 11.9.
    plain, squares = compared({"table1": [_measured("mlp", 1.0, dict.fromkeys(SYMBOLS, 1.0))]})
    assert (plain.beyond, plain.printed) == (4, 4)
    assert (squares.beyond, squares.printed) == (0, 4)


def test_the_conclusion_does_not_say_squares_where_constants_fit() -> None:
    exact = dict.fromkeys(SYMBOLS, 1.0)
    held = {name: [_measured(study, 1.0, exact)] for name, study in (("table1", "mlp"), ("table1-cnn", "cnn"))}
    assert "does not bring" in printed_sizes.conclusion(compared(held))


def test_a_directory_without_table_1_has_no_such_section(tmp_path: Path) -> None:
    assert compared({}) == []
    kept = {name: held for name, held in ledger.read(RESULTS).items() if not name.startswith("table1")}
    assert "sizes that Table 1 prints" not in ledger_page.page(ledger.rows(kept), {}, sizes=compared(kept))
