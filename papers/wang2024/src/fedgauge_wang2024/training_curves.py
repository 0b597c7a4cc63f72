"""Figures 2 to 9: training loss and test accuracy against rounds, for several local steps, at 50% and 75% of one label.

Figures share runs: the accuracy in Figure 3 is that of Figure 2's runs. Each run is kept, so that the same command
resumes after an interruption, and can be repeated with more seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.progress import silent
from fedgauge.base.types import Progress
from fedgauge.show import console, pictures
from fedgauge.show.charts import LineChart
from fedgauge.simulation.options import HERE, Compute
from fedgauge_planning.sweep import SeedCurve, Sweep, run_sweep, shown
from fedgauge_planning.sweep_views import band
from fedgauge_wang2024.earlier import known_runs, without_place
from fedgauge_wang2024.places import spelling
from fedgauge_wang2024.results import CurvesFigure
from fedgauge_wang2024.studies import CURVES, QUANTITIES, STUDIES, Panel, Scale, title

"""Called with what is run, how many of its rounds are done, and how many there are."""


class CurvePart(NamedTuple):
    """The part of a figure that is run; empty for all.

    Attributes:
        models: names of studies.
        percents: X.
        seeds: how many; None for the scale's own.
        finished: run nothing, and take what has finished.
    """

    models: tuple[str, ...] = ()
    percents: tuple[int, ...] = ()
    seeds: int | None = None
    finished: bool = False

    def panels(self, name: str) -> list[Panel]:
        """The panels of a figure that belong to it.

        >>> {(panel.study, panel.percent) for panel in CurvePart(("cnn",), (50,)).panels("fig2")}
        {('cnn', 50)}
        """
        panels = CURVES[name]
        studies = list(dict.fromkeys(panel.study for panel in panels))
        percents = list(dict.fromkeys(panel.percent for panel in panels))
        for given in self.models:
            if given not in studies:
                raise InputError(f"{spelling(name).capitalize()} has no model {given!r}; {nearest(given, studies)}")
        for percent in self.percents:
            if percent not in percents:
                has = " and ".join(f"{known}%" for known in percents)
                raise InputError(
                    f"{spelling(name).capitalize()} has no panel at {percent}%; it has {has}, or leave percent out."
                )
        return [
            panel
            for panel in panels
            if panel.study in (self.models or studies) and panel.percent in (self.percents or percents)
        ]

    def sweeps(self, name: str, scale: Scale, **keys: Any) -> dict[str, Sweep]:
        """The runs of the part, as one sweep for each study; further keys are those of the experiment."""
        made = {}
        panels = self.panels(name)
        for key in dict.fromkeys(panel.study for panel in panels):
            study, size = STUDIES[key], STUDIES[key].sizes[scale]
            percents = [float(p) for p in dict.fromkeys(panel.percent for panel in panels if panel.study == key)]
            made[key] = Sweep(
                study.experiment(scale, percent=percents[0], **keys),
                {"local_steps": size.local_steps, "percent": percents},
                self.seeds or size.seeds,
            )
        return made


ALL = CurvePart()


def run(
    name: str,
    scale: Scale,
    runs: Path,
    part: CurvePart = ALL,
    *,
    data: str | None = None,
    compute: Compute = HERE,
    progress: Progress = silent,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Run a part of what a figure shows, and show all of it that has finished, each curve with all its seeds.

    Args:
        name: of the figure.
        scale: how large.
        runs: directory that keeps the runs; each study and scale has a directory of its own in it.
        part: which of its panels, and with how many seeds.
        data: directory of data.
        compute: where the work is done, and how many processes at once.
        progress: called with what is run, the rounds done and all rounds.
        earlier: a result of the same figure; its runs are not run again, wherever they are.

    Returns:
        ``None`` if it was interrupted.
    """
    where = {"data": data, "engine": compute.engine, "address": compute.address}
    chosen = part.sweeps(name, scale, **where)
    if earlier is not None and earlier["scale"] != scale:
        earlier = None
    found = {}
    for key, whole in CurvePart(seeds=part.seeds).sweeps(name, scale, **where).items():
        place, known = runs / f"{key}-{scale}", known_runs(earlier, key, whole.experiment.to_json())
        # Seeds that an earlier result has are kept, also where fewer are asked for now.
        seeds = max([whole.seeds, *(run["seed"] + 1 - whole.experiment.run.seed for run in known.values())])
        if not part.finished and key in chosen:
            cells = len(chosen[key].cells)

            def tell(done: int, total: int, ended: int, cells: int = cells, what: str = STUDIES[key].title) -> None:
                progress(f"{what}, {ended} of {cells} runs, rounds", done, total)

            if run_sweep(chosen[key], place, compute.processes, tell, known=known) is None:
                return None
        made = run_sweep(replace(whole, seeds=seeds), place, only_finished=True, known=known)
        if made is None:
            return None
        if made.combinations:
            found[key] = replace(made, experiment=without_place(made.experiment)).to_json()
    if not found:
        raise InputError(f"No run of {spelling(name)} in {runs} has finished at the scale {scale}; run some first.")
    return CurvesFigure.from_json({"figure": name, "title": title(name), "scale": scale, "studies": found}).to_json()


def of(result: Mapping[str, Any], panel: Panel) -> dict[int, Mapping[str, Any]]:
    """A panel's curves by local steps; none where its study was not run."""
    study = result["studies"].get(panel.study)
    return {
        each["values"]["local_steps"]: each
        for each in (study["combinations"] if study else ())
        if each["values"]["percent"] == panel.percent
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the last round's numbers, panel by panel."""
    rows = []
    for panel in CURVES[result["figure"]]:
        study = result["studies"].get(panel.study)
        for steps, each in of(result, panel).items():
            rows.append(
                (
                    STUDIES[panel.study].title,
                    f"{panel.percent}%",
                    str(steps),
                    str(each["rounds"][-1]) if each["rounds"] else "–",
                    panel.quantity,
                    last(each, panel.quantity, len(each.get("runs", ())) or study["seeds"]),
                )
            )
    head = ("study", "X", "I", "round", "quantity", "mean ± deviation")
    console.table(f"{spelling(result['figure']).capitalize()}, effort {result['scale']}", head, rows)


def last(each: Mapping[str, Any], quantity: str, seeds: int) -> str:
    """The last value of a curve, with its deviation over seeds where it has several."""
    curve = each[quantity]
    if not curve or not curve["mean"]:
        return "–"
    value = console.number(curve["mean"][-1])
    return f"{value} ± {curve['deviation'][-1]:.2g}" if seeds > 1 else value


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Picture the panels."""
    panels = [panel for panel in CURVES[result["figure"]] if of(result, panel)]
    charts = []
    for panel in panels:
        y_label, log = QUANTITIES[panel.quantity]
        series = [
            band(f"I = {shown(steps)}", each["rounds"], SeedCurve.from_json(each[panel.quantity]), number)
            for number, (steps, each) in enumerate(of(result, panel).items())
            if each[panel.quantity]
        ]
        title = f"{STUDIES[panel.study].title}, {panel.percent}%"
        charts.append(LineChart(panel.study, series, title, "round", y_label, log=bool(log)))
    pictures.draw(charts, path)
