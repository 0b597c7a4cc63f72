"""The table of certified bounds: its rates, its versions, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import Capture, answer, words

from fedgauge.base.errors import InputError
from fedgauge_wang2024 import certified_bounds


def test_a_line_is_certified_in_every_version_at_its_own_best_rates() -> None:
    values = {"F": 2.0, "N": 10, "sigma2": 1.0, "zeta2": 40.0, "L_g": 5.7, "L_h": 3.0, "L_tilde": 6.2, "mu": 1e-3}
    values |= {"d0": 100.0, "I": 4, "R": 100}
    for theorem, own in certified_bounds.OWN.items():
        line = certified_bounds.bounds(theorem, {**values, **own}, dict.fromkeys(values, "exact"))
        assert all(version["certified"] for version in line["versions"].values())
        totals = {name: version["bound"] for name, version in line["versions"].items()}
        assert totals[line["new"]] <= totals["corrected"] < totals["prior"]


def test_constants_of_the_unsafe_kind_certify_nothing() -> None:
    values = {"F": 2.0, "N": 10, "sigma2": 1.0, "zeta2": 40.0, "L_g": 5.7, "L_h": 3.0, "L_tilde": 6.2, "I": 4, "R": 9}
    line = certified_bounds.bounds("nonconvex", values, {"L_h": "lower"})
    assert not line["versions"]["sharp"]["certified"]


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(InputError, match="source must be one of digits, mnist"):
        certified_bounds.run("cifar10")
    with pytest.raises(InputError, match="did you mean momentum"):
        certified_bounds.run(theorems=["momentun"])


def test_the_command_goes_on_with_what_it_has(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr(certified_bounds, "PERCENTS", (100,))
    line = f"paper certified --local-steps 2 --seeds 2 --rounds 5 --jobs 1 --out {tmp_path}"
    first = answer(capsys, line)
    assert [(each["theorem"], each["below"]) for each in first["lines"]] == [
        (theorem, 2) for theorem in certified_bounds.OWN
    ]
    assert all(each["versions"][each["new"]]["certified"] for each in first["lines"])
    monkeypatch.setattr(certified_bounds, "measured", None)  # nothing is left to be run
    assert answer(capsys, line) == first == json.loads((tmp_path / "digits.json").read_text())
    assert "Certified bounds on digits" in words(capsys, line)
