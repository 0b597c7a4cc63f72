"""Write results as files in a directory, with their pictures."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from fedgauge.base.files import make_directories, write_atomically, write_json
from fedgauge.measurement.values import Measurement
from fedgauge.show.charts import HeatMap
from fedgauge.show.pictures import draw
from fedgauge.show.views import view
from fedgauge.values import Result


def write(result: Result, directory: Path) -> Path:
    """Write a result as JSON alone; return the file."""
    make_directories(directory)
    path = directory / f"{result.file}.json"
    write_json(path, result.to_json())
    return path


def draw_result(result: Result, directory: Path) -> Path:
    """Draw a result beside its file; return the picture."""
    path, shown = directory / f"{result.file}.png", view(result)
    draw(shown.charts, path, shown.columns)
    return path


@functools.singledispatch
def save(result: Result, directory: Path) -> list[Path]:
    """Write a result and its picture; return the files."""
    return [write(result, directory), draw_result(result, directory)]


@save.register
def _(measurement: Measurement, directory: Path) -> list[Path]:
    """With where the constants come from as a picture of its own, and the worst directions."""
    from safetensors.numpy import save as save_tensors

    shown = view(measurement)
    parts = [chart for chart in shown.charts if isinstance(chart, HeatMap)]
    others = [chart for chart in shown.charts if not isinstance(chart, HeatMap)]
    paths = [write(measurement, directory)]
    for name, charts in (("measure.png", others), ("parts.png", parts)):
        if charts:
            paths.append(directory / name)
            draw(charts, paths[-1], shown.columns)
    worst = {
        f"{reading.name}.{name}": np.ascontiguousarray(vector)
        for reading in measurement.readings
        for name, vector in reading.directions.items()
    }
    if worst:
        paths.append(directory / "directions.safetensors")
        write_atomically(paths[-1], save_tensors(worst))
    return paths
