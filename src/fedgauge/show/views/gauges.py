"""The gauge: the answer, why local steps are lost, and what it holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedgauge.measurement.gauge.result import GaugeResult
from fedgauge.show.charts import LineChart
from fedgauge.show.views.answers import efficiency_chart, view_of_answer
from fedgauge.show.views.view import View, view


@view.register
def view_of_gauge(found: GaugeResult, using: int | None = None) -> View:
    """The answer, and what else the gauge knows; a run's own local steps are marked, if they are given."""
    shown = view_of_answer(replace(found.answer, using=using))
    holds = (
        f"It holds for this federation at this rate, from f = {found.losses[0]:.4g} to {found.goal:.4g}."
        f" {found.compared_with}"
    )
    return replace(shown, notes=[*([found.cause.sentence] if found.cause else []), *shown.notes, holds])


def gauge_chart(results: Sequence[GaugeResult]) -> LineChart:
    """The efficiency at one rate, or at several."""
    if len(results) == 1:
        return efficiency_chart([("efficiency", results[0].answer)])
    rates = [(each.settings.get("algorithm") or {}).get("gamma") for each in results]
    return efficiency_chart([(f"gamma {rate:g}", each.answer) for rate, each in zip(rates, results, strict=True)])
