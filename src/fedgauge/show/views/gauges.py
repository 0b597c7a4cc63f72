"""The gauge: the answer, why local steps are lost, and what it holds for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.charts import LineChart
from fedgauge.show.views.answers import choice_chart, efficiency_chart, view_of_answer
from fedgauge.show.views.view import Deferred, View, view

_AROUND = 100.0
"""Best local steps are drawn for bandwidths up to so many times as large and as small as the user's."""


@view.register
def view_of_gauge(gauged: GaugeResult, using: int | None = None) -> View:
    """The answer, and what else the gauge knows; a run's own local steps are marked, if they are given."""
    gauged = replace(gauged, answer=replace(gauged.answer, using=using))
    shown = view_of_answer(gauged.answer)
    holds = (
        f"It holds for this federation at this rate, from f = {gauged.losses[0]:.4g} to {gauged.goal:.4g}."
        f" {gauged.compared_with}"
    )
    if gauged.complete:
        shown = replace(shown, charts=Deferred(lambda: gauge_charts([gauged])))
    return replace(shown, notes=[*([gauged.cause.sentence] if gauged.cause else []), *shown.notes, holds])


def gauge_chart(results: Sequence[GaugeResult]) -> LineChart:
    """The efficiency at one rate, or at several."""
    if len(results) == 1:
        return efficiency_chart([("efficiency", results[0].answer)])
    rates = [(each.settings.get("algorithm") or {}).get("gamma") for each in results]
    return efficiency_chart([(f"gamma {rate:g}", each.answer) for rate, each in zip(rates, results, strict=True)])


def gauge_charts(results: Sequence[GaugeResult]) -> list[LineChart]:
    """The efficiency at one rate, or at several; for one rate also the best local steps for other costs."""
    chart = gauge_chart(results)
    if len(results) > 1 or not results[0].complete:
        return [chart]
    gauged, bandwidths = results[0], _bandwidths(results[0])
    return [
        chart,
        choice_chart(gauged.answer, bandwidths, gauged.cost.bandwidth if bandwidths and gauged.cost else 0.0),
    ]


def _bandwidths(gauged: GaugeResult) -> list[tuple[float, float]]:
    """Bandwidths around the user's own, and what a round costs with them; none where no bandwidth was given."""
    cost = gauged.cost
    if cost is None or not cost.step or not math.isfinite(cost.bandwidth) or cost.bytes is None:
        return []
    around = cost.bandwidth * np.geomspace(_AROUND**-1, _AROUND, 61)
    costs = [replace(cost, bandwidth=float(each)).communication(gauged.participants) / cost.step for each in around]
    return list(zip(around.tolist(), costs, strict=True))
