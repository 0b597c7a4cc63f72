"""What a file of constants says about its run, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgauge_explorer.controls import start
from fedgauge_explorer.run_settings import own_gap, own_theorem, own_values


def made(tmp_path: Path, **changes: Any) -> Path:
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    (run / "settings.json").write_text('{"federation": "abc", "algorithm": {"name": "fedavg"}}')
    (run / "rounds.jsonl").write_text('{"round": 0, "loss": 2.5, "grad2": 1.0}\n')
    raw: dict[str, Any] = {
        "settings": {"experiment": {"data": {"name": "digits"}}, "federation": "abc"},
        "point": {"origin": str(run / "model.safetensors"), "loss": 0.2},
        "constants": {"L_g": {"value": 1.0, "kind": "lower"}},
        **changes,
    }
    path = tmp_path / "measure.json"
    path.write_text(json.dumps(raw))
    return path


def test_local_steps_that_differ_or_adapt_are_left_alone() -> None:
    for steps in ([1, 2, 3], {"pace": "auto"}, 0, 2.5, True, None):
        assert own_values({"settings": {"local_steps": steps, "num_workers": 4}}) == {"N": 4}


def test_an_experiment_comes_before_the_run_s_settings() -> None:
    experiment = {"run": {"local_steps": 7}, "algorithm": {"name": "momentum", "gamma": 0.5, "beta": 0.9}}
    raw = {"settings": {"experiment": experiment, "local_steps": 3, "algorithm": {"gamma": 0.1}}}
    assert own_values(raw) == {"I": 7, "gamma": 0.5, "beta": 0.9}
    assert own_theorem(raw) == "momentum"


@pytest.mark.parametrize(
    ("algorithm", "participation", "expected"),
    [
        ("fedavg", {}, "nonconvex"),
        ("fedavg", {"participants": 3}, "partial"),
        ("fedavg", {"participants": 3, "sampling": "with-replacement"}, "partial"),
        ("scaffold", {}, None),
        ("fedadam", {"participants": 3, "sampling": "with-replacement"}, None),
    ],
)
def test_the_theorem_is_the_one_that_covers_the_run(
    algorithm: str, participation: dict[str, Any], expected: str | None
) -> None:
    raw = {"settings": {"algorithm": {"name": algorithm}, "participation": participation}}
    assert own_theorem(raw) == expected


def test_the_gap_comes_from_the_first_record_of_the_same_federation(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert (start(path).values["F"], start(path).kinds["F"]) == (2.5, "upper")
    other = made(tmp_path, settings={"experiment": {"data": {"name": "digits"}}, "federation": "another"})
    assert start(other).kinds["F"] == "assumed"


def test_at_the_first_model_the_measured_loss_is_the_gap(tmp_path: Path) -> None:
    path = made(tmp_path, point={"origin": "first model", "loss": 1.75})
    assert start(path).values["F"] == 1.75


def test_of_quadratics_the_least_value_must_be_known(tmp_path: Path) -> None:
    settings = {"experiment": {"data": {"name": "fed.json"}}, "federation": "abc"}
    path = made(tmp_path, settings=settings)
    assert own_gap(path, json.loads(path.read_text())) is None
    known = {"f_star": {"symbol": "f_star", "value": 0.5, "low": 0.5, "high": 0.5, "kind": "exact"}}
    path = made(tmp_path, settings=settings, constants=known)
    gap = own_gap(path, json.loads(path.read_text()))
    assert gap is not None
    assert (gap.value, gap.kind) == (2.0, "exact")


def test_a_file_s_own_gap_stands(tmp_path: Path) -> None:
    scope = {"federation": "made here", "start": "its digest"}
    path = made(tmp_path, constants={"F": {"value": 9.0, "kind": "exact", "scope": scope}})
    assert (start(path).values["F"], start(path).kinds["F"]) == (9.0, "exact")


def test_a_gap_of_no_known_first_model_gives_way_to_that_of_the_run(tmp_path: Path) -> None:
    path = made(tmp_path, constants={"F": {"value": 9.0, "kind": "exact"}})
    assert (start(path).values["F"], start(path).kinds["F"]) == (2.5, "upper")


def test_a_gap_of_no_known_first_model_is_assumed_without_a_run(tmp_path: Path) -> None:
    path = made(tmp_path, constants={"F": {"value": 9.0, "kind": "exact"}}, point={})
    assert (start(path).values["F"], start(path).kinds["F"]) == (9.0, "assumed")
    assert start(path).labels["F"].startswith("F counts as assumed, because it does not say")
