"""Formulas are recorded whole or not at all, and set without losing a symbol."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from fedgauge.show.web.mathml import math
from fedgauge.theory import THEOREMS
from fedgauge_explorer.recording import Recorded, RecordedLines


def recorded(name: str = "v.x") -> Any:
    return Recorded(name, RecordedLines())


def test_a_formula_that_branches_on_a_value_is_refused() -> None:
    with pytest.raises(TypeError, match=r"use np\.where"):
        bool(recorded() > 1)


def test_a_function_without_javascript_is_refused_with_the_remedy() -> None:
    with pytest.raises(NotImplementedError, match="arctan has no JavaScript; add it"):
        np.arctan(recorded())
    with pytest.raises(NotImplementedError, match="call it plainly"):
        np.add.reduce(recorded())


def test_a_negative_constant_keeps_its_brackets() -> None:
    lines = RecordedLines()
    x: Any = Recorded("v.x", lines)
    np.subtract(x, -2.0)
    assert str(lines) == "const a0=v.x-(-2);"


FORMULAS = sorted(
    {
        part
        for theorem in THEOREMS.values()
        for version in theorem.versions
        for said in [
            theorem.statement(
                version, {name: np.asarray(0.5) for name in (*theorem.needed(version), *theorem.optional)}
            )
        ]
        for text in [t.formula for t in said.terms] + [f"{c.name} <= {c.formula}" for c in said.conditions]
        for part in text.split(", ")
    }
)


@pytest.mark.parametrize("text", FORMULAS)
def test_every_formula_is_set_with_all_its_numbers_and_powers(text: str) -> None:
    tree = ET.fromstring(math(text))
    shown = "".join(tree.itertext())
    numbers = re.findall(r"(?<![A-Za-z_\d.])\d+(?:\.\d+)?", text)
    # sigma2, zeta2 and d0 have a square of their own, beta1 and beta2 an index, and d0 the 0 of the first model.
    own = {"sigma2": ["2"], "zeta2": ["2"], "beta1": ["1"], "beta2": ["2"], "d0": ["0", "2"]}
    extra = [digit for name in re.findall(r"[A-Za-z]+\d", text) for digit in own[name]]
    extra += ["1", "2"] * text.count("L_h_rms")
    assert sorted(re.findall(r"\d+(?:\.\d+)?", " ".join(tree.itertext()))) == sorted(numbers + extra)
    for letter, name in {"γ": "gamma", "ζ": "zeta", "σ": "sigma", "τ": "tau"}.items():
        assert shown.count(letter) == text.count(name)
