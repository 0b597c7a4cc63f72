"""The constants of a federation that were proved, and how they are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauge.show.views.measurements import estimates_chart
from fedgauge.show.views.view import View, estimates_table, view
from fedgauge.values import Constants, Kind, Subject, Value
from fedgauge.values.display import Displayed, counted, short


@dataclass(frozen=True, eq=False)
class Certified(Value, Displayed):
    """The certified constants of a federation, and a model near the minimiser of f.

    Attributes:
        num_workers: the number N of workers.
        constants: the constants, each with its interval; ``value`` is the safe end.
        model: a flat model near the minimiser.
        loss: the value of f at that model.
        gap: an upper bound on how far that value is above the minimum f*; infinite if none is known.
    """

    num_workers: int
    constants: Constants
    model: npt.NDArray[np.float64]
    loss: float
    gap: float

    def theorem_values(self, travel: float | None = None) -> tuple[dict[str, Any], dict[str, Kind]]:
        """The values and their kinds by the names that the theorems use; mu is left out unless it is above 0.

        zeta2 is the square of ``zeta_rms``: the theorems only need a mean over workers, each at its own model. They
        are about runs of this federation from the first model that was certified.

        Args:
            travel: how far any entry of a model can get from that of the first model, as
                :meth:`fedgauge.theory.Theorem.travel` says. Without it, or beyond G's radius, G counts as assumed.
        """
        values: dict[str, Any] = {"N": self.num_workers}
        kinds: dict[str, Kind] = {"N": "exact"}
        spelled = {"sigma": "sigma2", "zeta_rms": "zeta2"}
        known = (*spelled, "L_tilde", "L_g", "L_h", "L_h_rms", "mu", "kappa", "F", "d0", "G")
        fitted, _ = self.constants.fitted(Subject(travel=travel))
        for estimate in fitted.values():
            if estimate.symbol in known and (estimate.symbol != "mu" or estimate.value > 0):
                name = spelled.get(estimate.symbol, estimate.symbol)
                values[name] = estimate.value**2 if estimate.symbol in spelled else estimate.value
                kinds[name] = estimate.kind
        return values, kinds


@view.register
def view_of_certified(certified: Certified) -> View:
    """What is certified, and how near its model is to the minimiser."""
    near = f"at most {short(certified.gap)} above" if math.isfinite(certified.gap) else "no known distance above"
    sentence = (
        f"Constants of {counted(certified.num_workers, 'worker')}, proved from the data. At the model that is saved,"
        f" f = {short(certified.loss)}, {near} its minimum."
    )
    held = certified.constants.values()
    charts = (estimates_chart(held, "certified constants"),)
    return View((sentence,), tables=(estimates_table(held),), charts=charts)
