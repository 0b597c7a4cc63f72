"""Where the sliders start, and what their numbers are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from fedgauge.show.web.elements import KINDS
from fedgauge.show.web.writing import resource
from fedgauge.theory import THEOREMS
from fedgauge.theory.answer import bound
from fedgauge.values import Kind
from fedgauge_explorer.controls import CONSTANTS, start

# What certify gives of softmax regression: no kappa, as it is no quadratic, and no G, as its models are not bounded.
PROVED = {"L_g": 1.0, "L_h": 0.2, "L_tilde": 1.1, "mu": 0.01, "sigma": 0.1, "zeta": 1.0, "F": 2.0, "d0": 3.0}


def standings(path: Path) -> dict[str, str]:
    first = start(path)
    given: dict[str, Any] = {**first.spelled(), "gamma": 1e-5, "beta1": 0.0}
    return {name: bound(name, kinds=first.theorem_kinds(), **given).standing for name in THEOREMS}


def test_what_the_file_does_not_have_is_assumed_and_certifies_nothing(tmp_path: Path) -> None:
    path = tmp_path / "measure.json"
    path.write_text(json.dumps({name: {"value": value, "kind": "exact"} for name, value in PROVED.items()}))
    assert start(path).kinds == {**dict.fromkeys(PROVED, "exact"), "kappa": "assumed", "G": "assumed"}
    found = standings(path)
    assert (found["quadratic"], found["fedadam"]) == ("plug-in", "plug-in")
    assert (found["nonconvex"], found["partial"], found["momentum"]) == ("certified",) * 3
    everything = {**PROVED, "kappa": 0.9, "G": 0.1}
    path.write_text(json.dumps(everything))
    assert set(everything) | {"L_h_rms"} == set(CONSTANTS)
    assert standings(path)["fedadam"] == "certified"
    assert start().kinds == {}  # without a file the reader asks what if, and vouches for all


def test_every_kind_is_known_wherever_kinds_are_named() -> None:
    assert set(KINDS) == set(get_args(Kind))
    assert f"const KINDS = {json.dumps(list(get_args(Kind)))};" in resource("state.js", "fedgauge_explorer")


def test_a_federation_that_is_not_strongly_convex_has_no_mu(tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text('{"L_g": 1.0, "mu": 0.0}')
    assert start(path).kinds["mu"] == "assumed"
    assert standings(path)["strongly-convex"] == "plug-in"
