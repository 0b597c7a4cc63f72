"""Federations that were made alike in zeta_rms, as a value that is read without torch, and its view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedgauge.base.files import make_directories, write_atomically, write_json
from fedgauge.show.charts import Row, RowChart
from fedgauge.show.views.view import Table, View, number, view
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.values import Result, Value
from fedgauge.values.answer import StepEfficiency
from fedgauge.values.display import Displayed, counted


@dataclass(frozen=True)
class Designed(Value):
    """One federation of a design.

    Attributes:
        kind: its kind of heterogeneity.
        strength: from 0 to 1.
        zeta_rms: over the models at which federations were made alike.
        reached: whether that is the wanted value, up to the tolerance.
        zeta_first: zeta_rms at the first model.
        zeta_own: zeta_rms over models along the federation's own pooled run.
        L_h_seen: the ratio in one round of local steps from the middle of its own pooled run.
        L_h: from the Hessians there; None if they were not wanted.
        L_tilde: as L_h.
        efficiency: of the local steps, by the gauge.
        experiment: the sections of its experiment.
    """

    kind: str
    strength: float
    zeta_rms: float
    reached: bool
    zeta_first: float
    zeta_own: float
    L_h_seen: float | None
    L_h: float | None
    L_tilde: float | None
    efficiency: StepEfficiency
    experiment: Mapping[str, Any]

    def to_toml(self) -> str:
        """The text of its experiment file."""
        return Experiment.from_json(self.experiment).to_toml()


@dataclass(frozen=True)
class Design(Result, Displayed):
    """Federations that were made alike in zeta_rms.

    Attributes:
        settings: the experiment without the kinds, and how the federations were searched.
        zeta: the wanted zeta_rms.
        plain: zeta_rms of the experiment without any of the kinds, over the same models.
        local_steps: I, of the gauge and of the L_h measured in rounds.
        federations: one for each kind.
    """

    kind: ClassVar[str] = "design"
    written_by: ClassVar[str] = "data design --out"
    file: ClassVar[str] = "design"

    settings: Mapping[str, Any]
    zeta: float
    plain: float
    local_steps: int
    federations: tuple[Designed, ...]

    def write(self, directory: Path) -> list[Path]:
        """Write the design, and an experiment file for every federation that has the wanted zeta_rms."""
        make_directories(directory)
        paths = [directory / "design.json"]
        write_json(paths[0], self.to_json())
        for each in self.federations:
            if each.reached:
                paths.append(directory / f"{each.kind}.toml")
                write_atomically(paths[-1], each.to_toml().encode())
        return paths


@view.register
def view_of_design(design: Design) -> View:
    """Federations of equal zeta_rms side by side."""
    along = {"common": "at models common to all", "own": "along each one's own pooled run"}
    where = along.get(design.settings.get("along", ""), "")
    heads = ("kind", "strength", "zeta_rms", "first", "own run", "L_h", "L_h measured", "L_tilde", "E")
    rows = []
    for each in design.federations:
        numbers = (each.zeta_rms, each.zeta_first, each.zeta_own, each.L_h, each.L_h_seen, each.L_tilde)
        rows.append((each.kind, each.strength, *numbers, each.efficiency.share))
    steps = counted(design.local_steps, "local step")
    notes = [
        f"Without these kinds zeta_rms is {number(design.plain)}. Beside it: zeta_rms at the first model and along each"
        " one's own pooled run, and L_h, L_h measured and L_tilde in the middle of that run. E is the efficiency of"
        f" {steps} per round, by the gauge."
    ]
    notes += [
        f"{each.kind} does not have this zeta_rms: the nearest is {number(each.zeta_rms)}, at strength"
        f" {each.strength:.4g}."
        for each in design.federations
        if not each.reached
    ]
    zetas = [Row(each.kind, "zeta_rms", each.zeta_rms, each.zeta_rms, each.zeta_rms) for each in design.federations]
    shares = [(each.kind, each.efficiency.value) for each in design.federations]
    effects = [Row(kind, "efficiency", value, value, value, 4) for kind, value in shares]
    title = f"Federations of zeta_rms {number(design.zeta)}"
    charts = [
        RowChart("zeta", zetas, f"{title}, which was wanted", "zeta_rms", bars=True),
        RowChart("efficiency", effects, f"Efficiency of {steps}", "efficiency", bars=True),
    ]
    sentence = f"{counted(len(design.federations), 'federation')} of zeta_rms {number(design.zeta)}, {where}."
    return View((sentence,), tables=(Table(heads, rows, title),), charts=charts, notes=notes)
