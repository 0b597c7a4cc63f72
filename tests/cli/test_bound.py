"""``fedgauge theory bound`` and ``tune``: the JSON that was promised, the table, and one sentence a mistake."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedgauge.cli import main
from fedgauge.show import console
from fedgauge.theory import THEOREMS, evaluate
from fedgauge.theory.search import best_gamma, best_local_steps

VALUES: dict[str, Any] = {
    "F": 1.3, "I": 6, "R": 50, "N": 8, "M": 4, "sigma2": 0.7, "zeta2": 1.9, "L_g": 1.1, "L_h": 0.4, "L_tilde": 1.6,
    "gamma": 0.003, "beta": 0.5, "kappa": 1.3, "tau": 0.2, "G": 0.9, "beta2": 0.9, "mu": 0.3, "d0": 2.1,
}  # fmt: skip
EVERY = [(name, version) for name, theorem in THEOREMS.items() for version in theorem.versions]
Capture = pytest.CaptureFixture[str]


def arguments(*without: str, **changes: Any) -> list[str]:
    kept = {name: value for name, value in {**VALUES, **changes}.items() if name not in without}
    return [f"{name}={value}" for name, value in kept.items()]


def run(capsys: Capture, *command: str, status: int = 0) -> str:
    assert main([*command]) == status
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert not (said.err if status == 0 else said.out)
    return said.out if status == 0 else said.err


def answer(capsys: Capture, *command: str) -> Any:
    return json.loads(run(capsys, *command, "--json"))


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_json_holds_what_was_promised(name: str, version: Any, capsys: Capture) -> None:
    found = answer(capsys, "theory", "bound", name, *arguments(), "--theorem-version", version)
    bound = evaluate(name, version, **VALUES)
    assert (found["theorem"], found["version"], found["quantity"]) == (name, version, bound.quantity)
    assert found["source"]["locator"] == THEOREMS[name].locator
    assert found["total"] == float(bound.total) == pytest.approx(math.fsum(t["value"] for t in found["terms"]))
    assert found["certified"] == bool(bound.certified)
    assert (found["gamma_max"], found["gamma_eta_max"]) == (bound.gamma_max, bound.gamma_eta_max)
    assert [(t["name"], t["formula"], t["value"]) for t in found["terms"]] == [
        (t.name, t.formula, t.value) for t in bound.terms
    ]
    assert sum(t["share"] for t in found["terms"]) == pytest.approx(1)
    assert [(c["name"], c["formula"], c["limit"], c["value"], c["holds"]) for c in found["conditions"]] == [
        (c.name, c.formula, c.limit, c.value, c.holds) for c in bound.conditions
    ]
    assert found["versions"][version]["total"] == found["total"]
    assert found["dominant"] == max(found["terms"], key=lambda t: float(t["value"]))["name"]


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_table_shows_every_term_and_condition(name: str, version: str, capsys: Capture, monkeypatch: Any) -> None:
    monkeypatch.setattr(console.out, "_width", 200)
    said = run(capsys, "theory", "bound", name, *arguments(), "--theorem-version", version)
    bound = evaluate(name, version, **VALUES)  # type: ignore[arg-type]
    for shown, formula in ((part.name, part.formula) for parts in (bound.terms, bound.conditions) for part in parts):
        assert shown in said
        assert formula in said
    for other in THEOREMS[name].versions:
        assert other in said
    assert said.count("✗") == sum(not condition.holds for condition in bound.conditions)


def test_an_inadmissible_rate_is_a_failed_condition_and_no_mistake(capsys: Capture) -> None:
    found = answer(capsys, "theory", "bound", "nonconvex", *arguments(gamma=1))
    assert not found["certified"]
    assert not all(condition["holds"] for condition in found["conditions"])
    assert re.match(
        r"Not certified: gamma = 1 is 3.99 times its limit y/L_g, .* and gamma = 1 is 5.47", found["verdict"]
    )
    assert found["verdict"].endswith("so the theorem does not apply; there is no bound at these values.")
    older = answer(capsys, "theory", "bound", "nonconvex", *arguments(gamma=1), "--theorem-version", "corrected")
    assert re.match(r"Not certified: gamma eta = 1 is 13.2 times its limit 1/\(2 I L_g\) and gamma", older["verdict"])
    assert "✗" in run(capsys, "theory", "bound", "nonconvex", *arguments(gamma=1))


def test_an_infinite_gap_gives_an_infinite_bound(capsys: Capture) -> None:
    text = run(capsys, "theory", "bound", "nonconvex", *arguments(F="inf"), "--json")
    assert '"total": 1e999' in text
    assert json.loads(text)["terms"][0]["share"] == 1


def test_values_come_from_a_file_and_arguments_override_them(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    entries: dict[str, Any] = {**VALUES, "L_h": {"value": 0.4, "kind": "sample", "low": 0.3, "method": "seen"}}
    entries |= {"x_star": {"value": [1, 2], "kind": "exact"}, "f_star": {"value": None}, "mu": -3, "varphi": 1.3}
    file.write_text(json.dumps(entries))
    found = answer(capsys, "theory", "bound", "nonconvex", "--values", str(file))
    assert found["total"] == evaluate("nonconvex", **VALUES).total
    assert (found["kinds"]["L_h"], found["certified"]) == ("sample", False)
    assert found["verdict"].startswith("Plug-in: every condition holds, but L_h is a sample value")
    found = answer(capsys, "theory", "bound", "nonconvex", "L_h=0.5", "--values", str(file))
    assert (found["kinds"]["L_h"], found["certified"], found["values"]["L_h"]) == ("exact", True, 0.5)


def test_a_certificate_says_that_it_takes_typed_numbers_as_exact(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "_width", 300)
    chosen = {"I", "R", "N", "M", "gamma", "eta", "beta", "tau", "beta2"}
    constants = {name: value for name, value in VALUES.items() if name not in chosen}
    known, plain = tmp_path / "known.json", tmp_path / "plain.json"
    known.write_text(json.dumps({name: {"value": value, "kind": "upper"} for name, value in constants.items()}))
    plain.write_text(json.dumps(constants))
    settings, trusting = arguments(*constants), "It takes the numbers given as exact."
    assert trusting in run(capsys, "theory", "bound", "nonconvex", *arguments())
    assert trusting in run(capsys, "theory", "bound", "nonconvex", *settings, "--values", str(plain))
    assert trusting in run(capsys, "theory", "bound", "nonconvex", *settings, "L_h=0.1", "--values", str(known))
    measured = run(capsys, "theory", "bound", "nonconvex", *settings, "--values", str(known))
    assert "Certified: " in measured
    assert trusting not in measured
    # A rate beyond its limit certifies nothing, whatever the numbers are.
    assert trusting not in run(capsys, "theory", "bound", "nonconvex", *arguments(gamma=1))


def test_roots_are_squared_where_only_they_are_given(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps({"sigma": {"value": 3.0, "kind": "upper"}, "zeta": 2, "zeta2": 5}))
    found = answer(capsys, "theory", "bound", "nonconvex", *arguments("sigma2", "zeta2"), "--values", str(file))
    assert (found["values"]["sigma2"], found["kinds"]["sigma2"]) == (9, "upper")
    assert found["values"]["zeta2"] == 5
    found = answer(
        capsys, "theory", "bound", "nonconvex", *arguments("sigma2", "zeta2"), "zeta=1", "--values", str(file)
    )
    assert found["values"]["zeta2"] == 1


def test_the_output_of_constants_feeds_a_bound(capsys: Capture, tmp_path: Path) -> None:
    """L_h is then the tight one, which Theorem A.2 only takes together with a bound on L_h_rms."""
    federation, file = tmp_path / "fed.json", tmp_path / "constants.json"
    run(capsys, "theory", "generate", str(federation), "--workers", "4", "--dim", "5", "--shape", "mean-convex")
    file.write_text(run(capsys, "theory", "constants", str(federation), "--json"))
    constants = json.loads(file.read_text())
    found = answer(capsys, "theory", "bound", "quadratic", "I=4", "R=9", "gamma=0.01", "--values", str(file))
    assert found["values"]["L_h_rms"] == constants["L_h_paper"]["value"] > found["values"]["L_h"]
    assert constants["zeta"]["kind"] == found["kinds"]["zeta2"] == "lower"
    assert not found["certified"]
    assert answer(capsys, "theory", "bound", "strongly-convex", "I=4", "R=9", "gamma=0.001", "--values", str(file))[
        "admissible"
    ]
    run(capsys, "theory", "generate", str(federation), "--hessian-spread", "0", "--force")
    file.write_text(run(capsys, "theory", "constants", str(federation), "--json"))
    assert answer(capsys, "theory", "bound", "equal-hessians", "I=4", "R=9", "gamma=0.1", "--values", str(file))[
        "certified"
    ]


def test_the_printed_version_is_not_trusted_where_it_is_wrong(capsys: Capture) -> None:
    changes = {"M": 48, "N": 48, "gamma": 1e-3, "eta": 3000, "I": 1, "L_g": 1, "L_h": 0, "sigma2": 0, "zeta2": 0}
    found = answer(capsys, "theory", "bound", "partial", *arguments(**changes), "--theorem-version", "printed")
    assert found["verdict"].startswith(
        "As printed only: the printed conditions hold, but the printed formula had to be corrected"
    )
    assert found["certified"] is False
    assert found["versions"]["corrected"]["admissible"] is False


def test_missing_symbols_of_another_version_are_named(capsys: Capture) -> None:
    found = answer(capsys, "theory", "bound", "nonconvex", *arguments("L_tilde"))
    assert found["versions"]["prior"] == {"total": None, "admissible": None, "gamma_max": None, "missing": ["L_tilde"]}
    assert "needs L_tilde" in run(capsys, "theory", "bound", "nonconvex", *arguments("L_tilde"))


def test_list(capsys: Capture) -> None:
    listed = json.loads(run(capsys, "theory", "bound", "--list", "--json"))
    assert [item["theorem"] for item in listed] == list(THEOREMS)
    assert listed[0]["needs"] == ["F", "I", "R", "N", "sigma2", "zeta2", "L_g", "L_h", "gamma"]
    said = run(capsys, "theory", "bound", "--list")
    for theorem in THEOREMS.values():
        assert theorem.name in said
        assert theorem.locator in said


MISTAKES: list[tuple[list[str], str]] = [
    (["bound"], "bound needs a theorem; choose one of nonconvex, partial"),
    (["bound", "nonconvx"], "There is no theorem nonconvx; did you mean nonconvex?"),
    (["bound", "nonconvex", *arguments("L_h")], "lacks L_h; it needs F, I, R, N, sigma2, zeta2, L_g, L_h, gamma and"),
    (["bound", "nonconvex", *arguments("L_h"), "L_hh=1"], "no symbol L_hh (nonconvex needs F, I,"),
    (["bound", "nonconvex", *arguments("L_h"), "L_hh=1"], "did you mean L_h?"),
    (["bound", "nonconvex", *arguments(L_g=-1)], "L_g must be a finite number of at least 0, not -1."),
    (["bound", "nonconvex", *arguments("sigma2"), "sigma=-1"], "sigma must be a finite number of at least 0, not -1."),
    (["bound", "nonconvex", *arguments(R=0)], "R must be a whole number of at least 1, not 0."),
    (["bound", "nonconvex", *arguments(I=2.5)], "I must be a whole number of at least 1, not 2.5."),
    (["bound", "partial", *arguments(M=9)], "M must be at most N, not M = 9 of N = 8"),
    (["bound", "nonconvex", *arguments(zeta2="nan")], "zeta2 must be a finite number of at least 0, not nan."),
    (["bound", "momentum", *arguments(beta=0.5), "--theorem-version", "sharp"], "has no version 'sharp'; choose one"),
    (["bound", "nonconvex", "gamma"], "An argument must be NAME=VALUE, as in gamma=0.01, not 'gamma'."),
    (["bound", "nonconvex", "=1"], "An argument must be NAME=VALUE"),
    (["bound", "nonconvex", "gamma=fast"], "gamma must be a number, not 'fast'."),
    (["bound", "nonconvex", *arguments("sigma2"), "sigma=" + "9" * 400], "sigma must be a finite number of at least 0"),
    (["bound", "nonconvex", "gamma=1", "gamma=2"], "gamma is given twice; give it once."),
    (["bound", "nonconvex", "--values", "no-such.json"], "Cannot read no-such.json: No such file or directory"),
    (["bound", "nonconvex", "--values", "."], "Cannot read .: Is a directory"),
    (["tune"], "tune needs a theorem"),
    (["tune", "nonconvex", *arguments()], "gamma is what is being tuned; leave it out"),
    (["tune", "nonconvex", *arguments("gamma"), "--free-eta"], "L_h with them, drops out of the bound; fix eta or"),
    (["tune", "nonconvex", *arguments("gamma", eta=2), "--free-eta"], "eta is given and --free-eta asks to choose it"),
    (["tune", "nonconvex", *arguments("gamma"), "--total-cost", "9"], "I is chosen under the budget; leave it out."),
    (["tune", "nonconvex", *arguments("gamma", "I", "R"), "--total-cost", "0"], "--total-cost must be a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "sentence"), MISTAKES, ids=[case[1][:50] for case in MISTAKES])
def test_mistake(command: list[str], sentence: str, capsys: Capture) -> None:
    said = run(capsys, "theory", *command, status=2)
    assert sentence in said
    assert said.startswith("fedgauge: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not valid JSON (Expecting property name"),
        ("[1]", "must hold a JSON object"),
        ('"text"', "must hold a JSON object"),
        ('{"L_hh": 1}', "There is no symbol L_hh (nonconvex needs"),
        ('{"L_h": "big"}', "L_h must be a number or"),
        ('{"L_h": true}', "L_h must be a number or"),
        ('{"L_h": {"kind": "exact"}}', "L_h must be a number or"),
        ('{"L_h": {"value": 1, "kind": "guess"}}', "The kind of L_h must be one of exact, upper, lower, sample"),
        ('{"L_h": NaN}', "L_h must be a finite number of at least 0, not nan."),
        ('{"L_h": 1' + "0" * 400 + "}", "L_h must be a finite number of at least 0, not inf."),
        ("\xff", "is not text"),
    ],
)
def test_bad_file(content: str, sentence: str, capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_bytes(content.encode("latin-1"))
    said = run(capsys, "theory", "bound", "nonconvex", *arguments("L_h"), "--values", str(file), status=2)
    assert sentence in said
    assert said.count("\n") == 1


def test_tune_gives_the_best_gamma_and_the_bound_there(capsys: Capture) -> None:
    given = {name: value for name, value in VALUES.items() if name != "gamma"}
    found = answer(capsys, "theory", "tune", "nonconvex", *arguments("gamma"))
    best = best_gamma("nonconvex", **given)
    assert (found["values"]["gamma"], found["total"]) == (best.gamma, best.bound.total)
    assert found["chosen"] == ["gamma"]
    assert "Smallest within the conditions at gamma = " in run(
        capsys, "theory", "tune", "nonconvex", *arguments("gamma")
    )


def test_tune_chooses_the_local_steps_under_a_budget(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(VALUES))  # what it holds of I, R and gamma is what is sought
    found = answer(
        capsys, "theory", "tune", "nonconvex", "--values", str(file), "--total-cost", "500", "--communication", "9"
    )
    given = {name: value for name, value in VALUES.items() if name not in ("gamma", "I", "R")}
    best = best_local_steps("nonconvex", budget=500, communication=9, **given)
    assert (found["values"]["I"], found["values"]["R"], found["total"]) == (best.I, best.R, best.bound.total)


def test_tune_frees_eta_above_a_floor(capsys: Capture) -> None:
    found = answer(capsys, "theory", "tune", "nonconvex", *arguments("gamma"), "--free-eta", "--gamma-min", "0.001")
    assert found["values"]["gamma"] == 0.001
    assert found["values"]["eta"] != 1
    assert found["admissible"]


@pytest.mark.parametrize("command", ["bound", "tune", "region"])
def test_help_has_an_example(command: str, capsys: Capture) -> None:
    assert f"Example: fedgauge theory {command} " in run(capsys, "theory", command, "--help")


def test_weights_give_the_effective_number_of_workers(capsys: Capture, tmp_path: Path) -> None:
    found = answer(capsys, "theory", "bound", "nonconvex", *arguments("N"), "--weights", "2,1,1")
    assert found["values"]["N"] == pytest.approx(8 / 3)
    assert found["total"] == pytest.approx(float(evaluate("nonconvex", **{**VALUES, "N": 8 / 3}).total))
    tuned = answer(capsys, "theory", "tune", "nonconvex", *arguments("N", "gamma"), "--weights", "2,1,1")
    assert tuned["values"]["N"] == found["values"]["N"]
    equal = answer(capsys, "theory", "bound", "partial", *arguments("N"), "--weights", "1,1,1,1")
    assert equal["values"]["N"] == 4
    for words, line in (
        (
            "N is given and --weights says what it is",
            ["theory", "bound", "nonconvex", *arguments(), "--weights", "2,1,1"],
        ),
        (
            "partial is about workers with equal weights",
            ["theory", "bound", "partial", *arguments("N"), "--weights", "2,1,1,1"],
        ),
        (
            "must be numbers separated by commas",
            ["theory", "bound", "nonconvex", *arguments("N"), "--weights", "2,one"],
        ),
    ):
        assert words in " ".join(run(capsys, *line, status=2).split())
    file = tmp_path / "measure.json"
    file.write_text(json.dumps({"constants": {"L_h": 0.4}, "settings": {"weights": [0.5, 0.25, 0.25]}}))
    fits = ["theory", "bound", "nonconvex", *arguments("N", "L_h"), "--values", str(file)]
    assert answer(capsys, *fits, "--weights", "2,1,1")["total"] == found["total"]
    for weights in ([], ["--weights", "1,1,2"]):
        numbers = ["N=3"] if not weights else []
        assert "measured with other weights" in " ".join(run(capsys, *fits, *numbers, *weights, status=2).split())
