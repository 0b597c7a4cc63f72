"""The page about eigenvalues says what the kept measurements say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedgauge import Measurement

RESULTS = Path(__file__).parents[1] / "results"
PAGE = (RESULTS / "eigenvalues.md").read_text(encoding="utf-8")
READINGS = {"steps": "trajectory", "eigenvalues": "curvature"}


def _rows(title: str) -> dict[str, list[str]]:
    """The cells of a network's rows, by the way to look."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")]
    return {row[1]: row[2:] for row in cells if row[0].startswith(title)}


@pytest.mark.parametrize(("name", "title"), [("cnn", "CNN"), ("vgg16", "VGG-16")])
def test_the_table_is_that_of_the_kept_measurements(name: str, title: str) -> None:
    text = (RESULTS / "eigenvalues" / f"{name}.json").read_text(encoding="utf-8")
    measured: Any = Measurement.from_json(json.loads(text))
    assert measured.complete
    rows = _rows(title)
    for way, reading in READINGS.items():
        found = measured.reading(reading).constants
        said = [f"{found[s].value:.3g} ({found[s].low:.3g} to {found[s].high:.3g})" for s in ("L_h", "L_g", "L_tilde")]
        L_h, L_g, L_tilde = (found[symbol].value for symbol in ("L_h", "L_g", "L_tilde"))
        assert rows[way] == [*said, f"{L_g / L_tilde:.2f}", f"{(L_g + L_h) / L_tilde:.2f}"]
    # What the page says in words.
    largest = measured.reading("curvature").constants
    assert largest["L_g"].high < largest["L_tilde"].low
    assert largest["L_g"].low + largest["L_h"].low < largest["L_tilde"].high
    along = measured.reading("trajectory").constants
    assert along["L_g"].value > along["L_tilde"].value


def test_the_commands_have_the_settings_of_the_measurement() -> None:
    kept = json.loads((RESULTS / "eigenvalues" / "vgg16.json").read_text(encoding="utf-8"))["settings"]["experiment"]
    command = PAGE[PAGE.index("$ fedgauge measure") :]
    options = dict(re.findall(r"--([\w-]+) ([\w.=]+)", command[: command.index("--at")].replace("\\\n", "")))
    assert options["model-option"] == f"narrow={kept['model']['narrow']}"
    assert float(options["gamma"]) == kept["algorithm"]["gamma"]
    assert int(options["local-steps"]) == kept["run"]["local_steps"]
    assert int(options["batch-size"]) == kept["run"]["batch_size"]
    assert int(options["labels-per-worker"]) == kept["data"]["labels_per_worker"]
    assert int(options["per-worker"]) == kept["data"]["per_worker"]
