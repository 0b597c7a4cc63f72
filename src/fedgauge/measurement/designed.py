"""What a design found, as values that are read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedgauge.base.codec import Value
from fedgauge.measurement.gauge.result import Efficiency
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.values.display import Displayed
from fedgauge.values.results import Result


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
    efficiency: Efficiency
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
        local_steps: I, of the gauge and of L_h seen.
        federations: one for each kind.
    """

    kind: ClassVar[str] = "design"
    written_by: ClassVar[str] = "data design --out"

    settings: Mapping[str, Any]
    zeta: float
    plain: float
    local_steps: int
    federations: tuple[Designed, ...]
