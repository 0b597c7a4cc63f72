"""The attack on certificates sees many of them, finds none false, and finds the mistakes that it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fedgauge.theory.answer
import fedgauge.theory.comparison
import fedgauge.values.bounds
import fedgauge.values.estimates
from fedgauge.cli import main
from fedgauge_verification.audit import campaign, run

Capture = pytest.CaptureFixture[str]

TRIALS = 14


def _blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare no digests; and let no report compare its run with the constants, which notices most of what follows."""
    monkeypatch.setattr(fedgauge.values.estimates, "misfit", lambda *_: None)
    monkeypatch.setattr(fedgauge.theory.comparison, "refuted", lambda *_: ())
    monkeypatch.setattr(fedgauge.theory.comparison, "_surpassed", lambda *_: ())


def test_certificates_are_many_and_true() -> None:
    found = run(trials=TRIALS, data=False)
    assert found.complete
    assert found.certified >= 10
    assert found.stepped_down > 0
    assert found.recomputed > 0
    assert not found.contradictions


def test_constants_that_fit_everything_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison of digests, a bound with the F of one first model is certified for a run from another."""
    _blind(monkeypatch)
    found = run(trials=TRIALS, data=False)
    assert found.contradictions
    worst = found.contradictions[0]
    assert worst.truth > worst.bound
    assert worst.about != worst.measured


def test_settings_that_are_only_bounds_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """If R may be an upper bound, a certificate for a thousand times the rounds is given to a short run."""

    def lenient(name: str, kind: str) -> bool:
        return kind in ("exact", "lower" if name == "mu" else "upper")

    for module in (fedgauge.values.estimates, fedgauge.values.bounds, fedgauge.theory.answer):
        monkeypatch.setattr(module, "is_safe", lenient)
    found = run(trials=TRIALS, data=False)
    assert {each.tampered for each in found.contradictions} == {"setting as a bound"}


def test_a_trial_is_the_same_whatever_came_before_it() -> None:
    first, more = run(trials=3, seed=5, data=False), run(trials=5, seed=5, data=False)
    assert more.statements >= first.statements
    assert run(trials=3, seed=5, data=False).to_json() | {"seconds": 0} == first.to_json() | {"seconds": 0}


def test_it_ends_in_time_with_what_it_found() -> None:
    found = run(trials=10_000, spend=0.5, data=False)
    assert not found.complete
    assert 0 < found.trials < 10_000


def test_digits_are_attacked_too() -> None:
    """The first trial on digits, with its own cases; the quadratics in between are left out to save time."""
    found = run(trials=1, seed=_seed_with_data())
    assert found.trials == 1
    assert not found.contradictions


def _seed_with_data() -> int:
    """A seed whose first trial is on digits."""
    from fedgauge.base.randomness import Purpose, Streams

    share = campaign._DATA_SHARE
    return next(seed for seed in range(100) if Streams(seed, Purpose.FALSIFY).at(0, copy=2).random() < share)


# -- the command -----------------------------------------------------------------------------------------------------


def test_command(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(campaign, "_DATA_SHARE", 0.0)
    monkeypatch.chdir(tmp_path)
    assert main(["falsify", "--certificates", "--trials", "8", "--json", "--out", "found"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 8
    assert found["certified"] > 0
    assert found["contradictions"] == []
    assert json.loads((tmp_path / "found" / "result.json").read_text()) == found
    assert main(["falsify", "--certificates", "--trials", "2"]) == 0
    assert "certified and compared with a run" in " ".join(capsys.readouterr().out.split())
    assert main(["falsify", "nonconvex", "--certificates"]) == 2
    assert main(["falsify", "--certificates", "--spend", "soon"]) == 2


def test_a_contradiction_is_shown_and_is_the_exit_status(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    _blind(monkeypatch)
    monkeypatch.setattr(campaign, "_DATA_SHARE", 0.0)
    assert main(["falsify", "--certificates", "--trials", str(TRIALS)]) == 1
    assert "Certificates that a run contradicts" in capsys.readouterr().out
