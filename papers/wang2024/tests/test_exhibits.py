"""Pictures of stored results are drawn again without running anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from matplotlib.image import imread

from fedgauge.base.errors import InputError
from fedgauge_wang2024.exhibits import draw_stored

ROOT = Path(__file__).parents[3]
PAPER, DOCS = ROOT / "papers/wang2024/results", ROOT / "docs/results"
STORED = {"mnist/result.json": PAPER, "plan/plan.json": DOCS, "sampling/result.json": PAPER}
SCREENS = {ROOT / "docs" / "results" / "demo" / f"{name}.png" for name in ("card", "report", "explorer")}
"""Pictures of light pages, which bring their own background."""
PICTURES = sorted({*(ROOT / "docs").rglob("*.png"), *PAPER.rglob("*.png")} - SCREENS)


def test_sweeps_and_plans_are_drawn_beside_the_papers_figures(tmp_path: Path) -> None:
    for name, place in STORED.items():
        (tmp_path / name).parent.mkdir()
        shutil.copy(place / name, tmp_path / name)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/result.json").write_text('{"a": 1}', encoding="utf-8")
    drawn = {str(path.relative_to(tmp_path)) for path in draw_stored(tmp_path)}
    assert drawn == {
        *("mnist/percent=50.png", "mnist/percent=75.png"),
        *("plan/plan.png", "plan/theory.png", "sampling/sampling.png"),
    }
    # The same size as on the pages: what is stored there was drawn by this command.
    for name in drawn:
        place = DOCS if name.startswith("plan/") else PAPER
        assert imread(tmp_path / name).shape == imread(place / name).shape


@pytest.mark.parametrize("name", ["mnist/result.json", "plan/plan.json"])
def test_a_damaged_result_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir()
    whole = (STORED[name] / name).read_text(encoding="utf-8")
    kind = json.loads(whole)["kind"]
    for damaged in (whole[: len(whole) // 2], json.dumps({"kind": kind, "version": 1, "combinations": 3, "race": 3})):
        (tmp_path / name).write_text(damaged, encoding="utf-8")
        with pytest.raises(InputError, match="is damaged, or another version wrote it"):
            list(draw_stored(tmp_path))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_picture_of_the_pages_can_be_read_on_dark_pages(picture: Path) -> None:
    """It has no background of its own; its corner is transparent."""
    image = imread(picture)
    assert image.shape[2] == 4
    assert image[0, 0, 3] == 0
