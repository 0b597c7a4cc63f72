"""Constants that are proved; imported only where there are some, because they come with torch."""

from __future__ import annotations

import math

from fedgauge.measurement.certification import Certified
from fedgauge.show.views.measurements import estimates_chart
from fedgauge.show.views.view import View, estimates_table, view
from fedgauge.values.display import counted, short


@view.register
def view_of_certified(found: Certified) -> View:
    """What is certified, and how near its model is to the minimiser."""
    near = f"at most {short(found.gap)} above" if math.isfinite(found.gap) else "no known distance above"
    sentence = (
        f"Constants of {counted(found.num_workers, 'worker')}, proved from the data. At the model that is saved,"
        f" f = {short(found.loss)}, {near} its minimum."
    )
    held = found.constants.values()
    charts = (estimates_chart(held, "certified constants"),)
    return View((sentence,), tables=(estimates_table(held),), charts=charts)
