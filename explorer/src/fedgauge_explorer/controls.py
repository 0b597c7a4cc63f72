"""The sliders: what each starts at, how far it reaches, and what its number box accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedgauge.base.symbols import symbol
from fedgauge.theory.arguments import read_object, read_values
from fedgauge.theory.inputs import COUNTS, FRACTIONS, MAY_BE_INFINITE, POSITIVE, rule
from fedgauge.values import Kind
from fedgauge_explorer.run_settings import own_gap, own_theorem, own_values

SQUARED = {"sigma": "sigma2", "zeta": "zeta2"}
"""What a slider shows, and how the theorems spell its square."""


@dataclass(frozen=True)
class Control:
    """One slider with its number box.

    Attributes:
        name: the symbol.
        start: the value at first; None where the symbol follows L_h until it is set.
        low: the slider's lower end.
        high: the slider's upper end; the number box accepts more.
        log: whether the slider is logarithmic.
        zero: whether a logarithmic slider has 0 at its lower end.
    """

    name: str
    start: float | None
    low: float
    high: float
    log: bool = True
    zero: bool = False

    @property
    def theorems_name(self) -> str:
        """How the theorems spell it, or its square."""
        return SQUARED.get(self.name, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return what the page needs to make the slider and to check its box."""
        name = self.theorems_name
        fraction, kappa = name in FRACTIONS, name == "kappa"
        slack = 1e-9 if kappa else 0  # eigenvalues carry rounding, which the theorems forgive
        return {
            "name": self.name,
            "start": self.start,
            "low": self.low,
            "high": self.high,
            "log": self.log,
            "zero": self.zero,
            "whole": name in COUNTS,
            "rule": rule(name, np.zeros(()))[0],
            "least": 1 if name in COUNTS else -slack,
            "above": name in POSITIVE,
            "most": 1 if fraction else 2 + slack if kappa else 1e5 if name == "I" else None,
            "below": fraction,
            "infinite": name in MAY_BE_INFINITE,
            "constant": self.name in CONSTANTS,
        }


GROUPS: Mapping[str, tuple[Control, ...]] = {
    "Rounds": (
        Control("N", 10, 1, 10_000),
        Control("M", 5, 1, 10_000),
        Control("I", 4, 1, 1024),
        Control("R", 500, 1, 1_000_000),
    ),
    "Rates": (
        Control("gamma", 0.003, 1e-7, 10),
        Control("eta", 1, 1e-3, 1e3),
        Control("beta", 0.5, 0, 0.99, log=False),
        Control("beta1", 0, 0, 0.99, log=False),
        Control("beta2", 0.99, 0, 0.999, log=False),
        Control("tau", 1, 1e-6, 100),
    ),
    "Curvature": (
        Control("L_g", 1, 1e-3, 1e3),
        Control("L_h", 0.3, 1e-4, 1e3, zero=True),
        Control("L_h_rms", None, 1e-4, 1e3, zero=True),
        Control("L_tilde", 1.2, 1e-3, 1e3),
        Control("mu", 0.1, 1e-6, 1e3),
        Control("kappa", 0.9, 0, 2, log=False),
    ),
    "Gradients": (
        Control("zeta", 10, 1e-3, 1e3, zero=True),
        Control("sigma", 0.1, 1e-3, 1e3, zero=True),
        Control("G", 0.1, 1e-4, 1e3, zero=True),
    ),
    "Start": (
        Control("F", 1, 1e-3, 1e4, zero=True),
        Control("d0", 1, 1e-3, 1e4, zero=True),
    ),
}
CONTROLS: dict[str, Control] = {control.name: control for group in GROUPS.values() for control in group}
CONSTANTS = tuple(control.name for title in ("Curvature", "Gradients", "Start") for control in GROUPS[title])
"""What is measured of a federation, as opposed to what its user chooses."""


@dataclass(frozen=True)
class Start:
    """Where the sliders start.

    Attributes:
        values: a number for each slider; None where L_h_rms follows L_h.
        kinds: the kind of each constant that came from a file, and ``assumed`` for those that it does not have.
        labels: how each that came from the file was obtained, as it says.
        source: the file's name.
        own: the counts and rates of the run that the constants were measured for, as far as the file says.
        theorem: the theorem to show first; None for the first of all.
    """

    values: Mapping[str, float | None]
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    own: Mapping[str, float] = field(default_factory=dict)
    theorem: str | None = None

    def spelled(self) -> dict[str, float]:
        """Return the values as the theorems spell them.

        >>> start().spelled()["N"]
        10
        """
        found: dict[str, float] = {}
        for name, value in self.values.items():
            if value is not None:
                found[CONTROLS[name].theorems_name] = value * value if name in SQUARED else value
        return found

    def theorem_kinds(self) -> dict[str, Kind]:
        """Return the kinds as the theorems spell their symbols."""
        return {CONTROLS[name].theorems_name: kind for name, kind in self.kinds.items()}


def start(path: Path | None = None) -> Start:
    """Return where the sliders start: at the usual values, or at those of a file of constants and of its run.

    The counts and rates are those of the run that the constants were measured for, and F is f(x0) minus the least that
    f can be, where the file or the run directory says them.

    >>> start().values["gamma"]
    0.003
    """
    values = {name: control.start for name, control in CONTROLS.items()}
    if path is None:
        return Start(values)
    found, notes = read_values(path)
    raw = read_object(path)
    inner = raw.get("constants")
    entries = inner if isinstance(inner, Mapping) else raw
    kinds: dict[str, Kind] = {}
    labels: dict[str, str] = {}
    for name, control in CONTROLS.items():
        if control.theorems_name not in found:
            if name in CONSTANTS and control.start is not None:
                kinds[name] = "assumed"  # the slider's default is not a fact about this federation
            continue
        value, kinds[name] = found[control.theorems_name]
        values[name] = math.sqrt(value) if name in SQUARED else value
        sources = (control.theorems_name, name, "L_h_paper" if name == "L_h_rms" else name)
        entry = next((entries[source] for source in sources if source in entries), None)
        why = next((note for note in notes if note.startswith(f"{name} ")), "")
        method = str(entry.get("method", "")) if isinstance(entry, Mapping) else ""
        labels[name] = why or method
    own = own_values(raw)
    for name, value in own.items():
        if name not in found:
            values[name] = value
    # An F that does not say to which first model it belongs counts for less than that of the run.
    gap = own_gap(path, raw) if kinds.get("F") == "assumed" else None
    if gap is not None:
        values["F"], kinds["F"], labels["F"] = gap.value, gap.kind, gap.method
    if (values["M"] or 1) > (values["N"] or 1):
        values["M"] = values["N"]  # no more workers can be sampled than there are
    return Start(values, kinds, labels, path.name, own, own_theorem(raw))


def meaning(name: str) -> str:
    """Return what a slider's symbol means."""
    return symbol(name).meaning
