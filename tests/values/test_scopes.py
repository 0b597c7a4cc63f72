"""The one place that decides whether a constant belongs to what a bound speaks about."""

from __future__ import annotations

import pytest

from fedgauge.values import Constants, Estimate, Scope, Subject
from fedgauge.values.estimates import misfit

OWN = Scope("fed", start="x0", seed=0)


@pytest.mark.parametrize(
    ("symbol", "scope", "subject", "why"),
    [
        ("L_g", None, Subject("fed", start="x0"), None),  # typed
        ("L_g", Scope("fed"), Subject("fed", start="x1"), None),
        ("L_g", Scope("fed"), Subject(), None),
        ("L_g", Scope("other"), Subject("fed"), "belongs to another federation"),
        ("L_g", Scope(), Subject("fed"), "does not say to which federation it belongs"),
        ("L_g", Scope("fed"), Subject(""), "belongs to another federation"),  # a run that does not say its own
        ("F", OWN, Subject("fed", start="x0"), None),
        ("F", OWN, Subject("fed", seed=0), None),
        ("F", OWN, Subject("fed"), None),
        ("F", OWN, Subject("fed", start="x1"), "belongs to another first model"),
        ("F", OWN, Subject("fed", start="x1", seed=0), "belongs to another first model"),
        ("F", OWN, Subject("fed", seed=3), "belongs to another first model"),
        ("d0", Scope("fed", start="x0"), Subject("fed", seed=0), "belongs to another first model"),
        ("d0", Scope("fed", seed=2), Subject("fed", seed=2), None),
        ("d0", Scope("fed", seed=2), Subject("fed", start="x0"), "belongs to another first model"),
        ("F", Scope("fed"), Subject("fed"), "does not say to which first model it belongs"),
        ("G", Scope("fed", "x0", radius=0.5), Subject("fed", "x0", travel=0.5), None),
        ("G", Scope("fed", "x0", radius=0.5), Subject("fed", "x1", travel=0.1), "belongs to another first model"),
        ("G", OWN, Subject("fed", "x0", travel=0.1), "does not say for which models it holds"),
        (
            "G",
            Scope("fed", "x0", radius=0.5),
            Subject("fed", "x0"),
            "holds only for models within 0.5 of the first one, which a run may leave",
        ),
        (
            "G",
            Scope("fed", "x0", radius=0.5),
            Subject("fed", "x0", travel=0.6),
            "holds only for models within 0.5 of the first one, which a run may leave",
        ),
    ],
)
def test_a_constant_belongs_or_the_reason_is_said(
    symbol: str, scope: Scope | None, subject: Subject, why: str | None
) -> None:
    assert misfit(symbol, scope, subject) == why


def test_only_a_safe_constant_can_step_down() -> None:
    guess = Estimate("F", 1.0, 0.0, 2.0, "sample", "guessed", scope=Scope("other", start="x0"))
    found, notes = Constants((guess,)).fitted(Subject("fed", start="x0"))
    assert (found["F"].kind, notes) == ("sample", ())


def test_a_scope_survives_json_and_an_estimate_without_one_is_written_as_before() -> None:
    plain = Estimate.exact("F", 1.0, "given")
    assert "scope" not in plain.to_json()
    scoped = Constants((plain,)).within(OWN)["F"]
    assert scoped.to_json()["scope"] == {"federation": "fed", "start": "x0", "seed": 0}
    assert Estimate.from_json(scoped.to_json()) == scoped
    assert Estimate.from_json(plain.to_json()) == plain
