"""Federations of equal zeta: the search, the models at which they are compared, and a small design."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.simulation.experiment.config import Experiment
from fedgauge_wang2024 import Design, DesignOptions, design
from fedgauge_wang2024.equal_zeta import PARTS, Bisection, pooled_models, with_kind, zeta_over

PLAIN = Experiment.of(
    {"source": "digits", "model": "softmax", "gamma": 0.1, "scheme": "iid", "workers": 4, "rounds": 10, "processes": 1}
).changed({"local_steps": 4})


@given(power=st.floats(0.3, 4), wanted=st.floats(0.05, 0.95), tolerance=st.floats(0.001, 0.1))
def test_bisection_finds_where_a_growing_quantity_is(power: float, wanted: float, tolerance: float) -> None:
    found = Bisection(tolerance, 60).find(lambda strength: strength**power, wanted)
    assert found.reached
    assert abs(found.strength**power - wanted) <= tolerance * wanted
    assert found.value == found.strength**power
    assert found.tried[0][0] == 1.0


def test_a_search_that_cannot_succeed_ends_nearest() -> None:
    low = Bisection().find(lambda strength: 0.1 * strength, 0.5)
    assert (low.strength, low.reached, len(low.tried)) == (1.0, False, 1)
    # A floor that every strength is above: the search goes to 0 and says that it did not get there.
    high = Bisection(most=6).find(lambda strength: 1 + strength, 0.5)
    assert not high.reached
    assert (high.strength, len(high.tried)) == (2.0**-5, 6)


def test_pooled_models_are_those_of_a_run_with_one_local_step() -> None:
    setup = fg.prepare(PLAIN)
    models = pooled_models(setup, 12, (0.0, 0.5, 1.0))
    for rounds, model in zip((6, 12), models[1:], strict=True):
        trace = fg.simulate(setup.federation, setup.algorithm, local_steps=1, rounds=rounds, seed=0)
        assert torch.equal(model, torch.from_numpy(np.asarray(trace.model)))
    # Against the definition, with each worker's gradient by itself.
    each = []
    for model in models:
        slopes = torch.cat([setup.federation.gradients(model[None], np.array([k])).double() for k in range(4)])
        each.append(float((slopes - slopes.mean(dim=0)).square().sum(dim=1).mean()))
    assert zeta_over(setup, models) == pytest.approx(math.sqrt(np.mean(each)), rel=1e-6)


def test_a_diverging_pooled_run_is_refused() -> None:
    setup = fg.Setup(fg.random_quadratics(3, 2), fg.fedavg(gamma=1e6))
    with pytest.raises(InputError, match="smaller gamma"):
        pooled_models(setup, 200)


@pytest.mark.parametrize("along", ["common", "own"])
def test_designed_federations_have_the_zeta_that_is_wanted(along: str) -> None:
    options = DesignOptions(along=along, search=Bisection(0.02), curvature=along == "own")  # type: ignore[arg-type]
    kinds = ["label", "swap"] if along == "own" else ["label", "swap", "gain"]
    found = design(PLAIN, kinds, options=options)
    assert found.plain < found.zeta
    assert [each.kind for each in found.federations] == kinds
    shared = pooled_models(fg.prepare(PLAIN), 40, (0.0, *PARTS))
    for each in found.federations:
        # What is written to a file is the federation that was found.
        made = fg.prepare(Experiment.from_toml(each.to_toml()))
        own = pooled_models(made, 40)
        assert each.zeta_own == pytest.approx(zeta_over(made, own), rel=1e-9)
        assert each.zeta_rms == pytest.approx(zeta_over(made, own if along == "own" else shared), rel=1e-9)
        assert each.reached == (abs(each.zeta_rms - found.zeta) <= 0.02 * found.zeta)
        assert each.efficiency.local_steps == found.local_steps == 4
        if along == "own":
            assert each.L_h is not None
            assert each.L_tilde is not None
            assert each.L_h <= each.L_tilde
    assert all(each.reached for each in found.federations)
    assert Design.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_kind_that_stays_below_is_named_and_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(PLAIN.to_toml())
    arguments = ["data", "design", str(file), "--no-curvature", "--tolerance", "0.05", "--out", str(tmp_path / "equal")]
    assert main([*arguments, "--kind", "label", "--kind", "blur", "--zeta", "0.9"]) == 0
    assert "blur does not have this zeta_rms" in " ".join(capsys.readouterr().out.split())
    assert sorted(path.name for path in (tmp_path / "equal").iterdir()) == ["design.json", "label.toml"]
    assert Experiment.read(tmp_path / "equal" / "label.toml").data.scheme == "paper"


WRONG = [
    (["--kind", "rotatoin"], "did you mean rotation"),
    (["--kind", "label", "--kind", "label"], "name each once"),
    (["--zeta", "0"], "above 0"),
    (["--zeta", "0.0001"], "choose a larger one"),
    (["--along", "mine"], "common or own"),
    (["--tolerance", "2"], "between 0 and 1"),
    (["--kind", "offset"], "needs values"),
]


@pytest.mark.parametrize(("more", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_wrong_design_is_refused(
    more: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(PLAIN.to_toml())
    assert main(["data", "design", str(file), "--steps", "4", *more]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_kinds_go_with_what_an_experiment_has() -> None:
    with pytest.raises(InputError, match="already has the shift gain"):
        with_kind(PLAIN.changed({"shift": "gain=0.1"}), "gain", 0.5)
    labelled = with_kind(PLAIN.changed({"scheme": "dirichlet", "alpha": 0.3, "shift": "gain=0.1"}), "label", 0.4)
    assert (labelled.data.scheme, labelled.data.percent, labelled.data.alpha) == ("paper", 40.0, None)
    assert labelled.data.shift == ("gain=0.1",)
    with pytest.raises(InputError, match="Quadratics have no data"):
        design(Experiment.of({"source": "fed.json", "gamma": 0.1}))
