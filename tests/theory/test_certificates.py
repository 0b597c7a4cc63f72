"""When a bound may be called certified: by the kinds of its numbers, and by what its constants were proved for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from fedgauge import QuadraticFederation, SupervisedFederation, fedadam, fedavg
from fedgauge.base.errors import InputError
from fedgauge.simulation.loop import simulate
from fedgauge.theory import evaluate, find
from fedgauge.theory.answer import bound
from fedgauge.theory.arguments import collect, read_values
from fedgauge.theory.expectation import expect
from fedgauge.theory.inputs import look_up
from fedgauge.values import SETTINGS, Constants, Estimate, Kind, Scope, Subject, Version, is_safe
from fedgauge_planning.theorem_inputs import is_zero
from fedgauge_verification import certify


def test_only_an_exact_setting_is_safe() -> None:
    for name in SETTINGS:
        assert [kind for kind in get_args(Kind) if is_safe(name, kind)] == ["exact"]


@pytest.mark.parametrize("setting", ["N", "R", "M", "gamma", "eta", "I"])
def test_a_setting_that_may_be_smaller_certifies_nothing(setting: str, table: dict[str, Any]) -> None:
    """A bound for at most R rounds is no bound: with fewer rounds the truth is larger."""
    assert bool(evaluate("partial", **table).certified)
    assert not bool(evaluate("partial", kinds={setting: "upper"}, **table).certified)


def test_bounds_grow_with_every_constant_and_fall_with_mu(name: str, version: Version, table: dict[str, Any]) -> None:
    """This is why an upper bound on a constant is safe; for the print, which may be false, nothing is claimed."""
    if version == "printed":
        return
    # This bound is the smaller of two, one of which may fall where the noise grows: see the same law in test_laws.py.
    # An upper bound is safe all the same: the larger constant is one too.
    slack = 0.1 if (name, version) == ("strongly-convex-last", "star") else 1e-12
    values = table | ({"L_h": 0.0} if name == "equal-hessians" else {})
    here = evaluate(name, version, **values)
    for symbol in {*find(name).needed(version), *find(name).optional} - SETTINGS:
        if symbol not in values:
            continue
        for factor in (1 + 1e-6, 1.1, 2.0, 30.0):
            moved = values[symbol] / factor if symbol == "mu" else values[symbol] * factor
            moved = min(moved, 2.0) if symbol == "kappa" else moved  # which is never larger
            there = evaluate(name, version, **{**values, symbol: moved})
            assert there.total >= here.total * (1 - slack), (symbol, factor)
            assert there.gamma_max <= here.gamma_max * (1 + 1e-12), (symbol, factor)


# -- L_h = 0 ------------------------------------------------------------------------------------------------------


def almost_equal() -> QuadraticFederation:
    """Hessians 1 ± 9e-13, and pulls of 1e13 in opposite directions."""
    return QuadraticFederation([[[1 + 9e-13]], [[1 - 9e-13]]], [[1e13], [-1e13]], start=[1.0])


def test_hessians_that_are_almost_equal_do_not_count_as_equal() -> None:
    """Taken for equal, they get a certified bound of 0.01 where the average over the local steps is above 1."""
    federation = almost_equal()
    known = {**federation.constants(), **federation.constants_at()}
    values: dict[str, Any] = {name: known[name].value for name in ("L_g", "L_h", "F")} | {
        "I": 10,
        "R": 10,
        "N": 2,
        "sigma2": 0.0,
    }
    values |= {"gamma": 0.9 / known["L_g"].value}
    found = bound("equal-hessians", **values)
    steps = expect(federation, fedavg(values["gamma"]), local_steps=10, rounds=10, iterations=True)
    assert np.mean(steps.grad2[:-1]) > 100 * float(found.bound.total)  # the theorem bounds the average too
    assert found.standing == "not certified"
    assert not is_zero(look_up(federation.constants(), "L_h"))


# -- G holds near the first model -------------------------------------------------------------------------------------


def regression() -> SupervisedFederation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 3, generator=generator, dtype=torch.float64)
    module = nn.Linear(3, 2).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return SupervisedFederation(
        module, nn.functional.cross_entropy, x, torch.arange(16) % 2, [range(8), range(8, 16)], batch_size=4, l2=2.0
    )


SETTINGS_OF_ADAM: dict[str, float] = {"I": 2, "R": 5, "tau": 1.0, "beta2": 0.9, "beta1": 0.0, "eta": 0.01}


def test_G_is_certified_only_for_runs_that_cannot_leave_its_region() -> None:  # noqa: N802
    found, theorem = certify(regression(), radius=0.5), find("fedadam")
    values, kinds = found.theorem_values()
    assert kinds["G"] == "assumed"
    rates = {**SETTINGS_OF_ADAM, "gamma": 1e-3}
    travel = theorem.travel({**values, **rates})
    assert travel is not None
    assert travel < 0.5
    values, kinds = found.theorem_values(travel)
    assert bound("fedadam", kinds=kinds, **{**values, **rates}).standing == "certified"
    far = theorem.travel({**values, **rates, "R": 10**6})
    assert found.theorem_values(far)[1]["G"] == "assumed"


def test_no_run_of_fedadam_goes_further_than_the_theorem_says() -> None:
    federation = regression()
    G = certify(federation, radius=2.0).constants["G"].value
    for eta, gamma in ((0.01, 0.05), (0.3, 0.001)):
        settings = {**SETTINGS_OF_ADAM, "gamma": gamma, "eta": eta, "R": 20, "G": G}
        values = {**settings, "F": 1.0, "N": 2, "sigma2": 1.0, "zeta2": 1.0, "L_g": 1.0, "L_h": 1.0}
        limit = find("fedadam").travel(values)
        algorithm = fedadam(gamma, eta=eta, tau=1.0, beta1=0.0, beta2=0.9)
        for seed in range(5):
            trace = simulate(federation, algorithm, local_steps=2, rounds=20, seed=seed)
            assert np.abs(trace.model - federation.start(seed).numpy()).max() <= limit


def test_a_first_model_outside_the_region_is_refused() -> None:
    federation = regression()
    with pytest.raises(InputError, match=r"radius must be above the largest entry of the first model, 3"):
        certify(federation, start=torch.full((8,), 3.0, dtype=torch.float64), radius=1.0)


# -- files ------------------------------------------------------------------------------------------------------------


def write(path: Path, *estimates: Estimate, federation: str | None = "fed", **extra: Any) -> Path:
    entries = {item.symbol: item.to_json() for item in estimates}
    path.write_text(json.dumps({"settings": {"federation": federation}, "constants": entries, **extra}))
    return path


def upper(symbol: str, value: float, scope: Scope | None = None) -> Estimate:
    return Estimate(symbol, value, 0.0, value, "upper", "proved", scope=scope)


def known(F: Scope | None, L_g: Scope | None = None) -> tuple[Estimate, ...]:
    everywhere = ("sigma2", "zeta2", "L_h")
    return upper("F", 2.0, F), upper("L_g", 1.0, L_g), *(upper(name, 0.1, Scope("fed")) for name in everywhere)


RUN = ["I=2", "R=10", "N=4", "gamma=0.001"]


def test_a_file_of_one_federation_and_one_first_model_certifies(tmp_path: Path) -> None:
    file = write(tmp_path / "measure.json", *known(Scope("fed", start="x0"), Scope("fed")))
    found = collect(find("nonconvex"), RUN, file)
    assert set(found.kinds.values()) == {"exact", "upper"}
    assert not found.notes
    assert "the first model" in found.caveat


def test_a_file_that_does_not_say_its_first_model_certifies_no_gap(tmp_path: Path) -> None:
    """As earlier versions wrote them: they stay readable."""
    file = write(tmp_path / "measure.json", *known(None))
    found = collect(find("nonconvex"), RUN, file)
    assert found.kinds["F"] == "assumed"
    assert found.kinds["L_g"] == "upper"
    assert found.notes == ("F counts as assumed, because it does not say to which first model it belongs.",)
    assert bound("nonconvex", "corrected", found.kinds, (), (), **found.values).standing == "plug-in"
    # A number that is typed is vouched for.
    assert collect(find("nonconvex"), [*RUN, "F=2"], file).kinds["F"] == "exact"
    assert read_values(file)[0]["F"] == (2.0, "assumed")


def test_constants_of_two_federations_in_one_file_do_not_pass_for_one(tmp_path: Path) -> None:
    file = write(tmp_path / "measure.json", *known(Scope("fed", start="x0"), Scope("another")))
    found = collect(find("nonconvex"), RUN, file)
    assert found.kinds["L_g"] == "assumed"
    assert found.notes == ("L_g counts as assumed, because it belongs to another federation.",)


def test_two_first_models_in_one_set_of_constants_do_not_pass_for_one() -> None:
    constants = Constants((upper("F", 1.0, Scope("fed", start="a")), upper("d0", 1.0, Scope("fed", start="b"))))
    fitted, notes = constants.fitted(Subject())
    assert [item.kind for item in fitted.values()] == ["upper", "assumed"]
    assert len(notes) == 1
