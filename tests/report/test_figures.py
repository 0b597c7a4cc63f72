"""Pictures have the colours of the pages, and can be read on white and on dark pages alike."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedgauge.show import pictures
from fedgauge.show.charts import LineChart, Series
from fedgauge.show.web.writing import resource


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_colours_are_those_of_the_pages() -> None:
    css = resource("palette.css")
    for number, colour in enumerate(pictures.COLOURS):
        light, dark = re.findall(rf"--t{number}: (#[0-9a-f]{{6}})", css)[:2]
        for at in (1, 3, 5):
            low, high = sorted(int(each[at : at + 2], 16) for each in (light, dark))
            assert low <= int(colour[at : at + 2], 16) <= high


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117", "#14171a"])
def test_text_can_be_read_on_white_and_on_dark(page: str) -> None:
    assert contrast(pictures.INK, page) > 3.4


def test_a_picture_has_no_background(tmp_path: Path) -> None:
    pictures.draw([LineChart("a", [Series("a", range(3), [1, 2, 3])], "", "x", "y")], tmp_path / "a.png")
    picture = Image.open(tmp_path / "a.png").convert("RGBA")
    assert picture.getpixel((1, 1))[3] == 0  # type: ignore[index]
    middle = [picture.getpixel((x, picture.height // 2))[3] for x in range(picture.width)]  # type: ignore[index]
    assert min(middle) == 0
    assert max(middle) > 0


def test_labels_of_many_lines_stand_beside_them() -> None:
    series = [Series(str(k), range(3), [k, k + 1, k + 2], k) for k in range(1, 6)]
    sheet = pictures.Sheet()
    pictures.draw([LineChart("a", series, "", "", "")], sheet)
    sheet.figure.canvas.draw()
    (axes,) = sheet.figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_losses_below_0_are_drawn_whole() -> None:
    falling = Series("f", range(3), [1.0, -1.0, -2.0])
    banded = Series("f", [0, 1], [-1.0, -2.0], 0, "line", [-1.0, -2.0], [-1.0, -2.0])
    sheet = pictures.Sheet()
    pictures.draw([LineChart("a", [falling], "", "", ""), LineChart("b", [banded], "", "", "")], sheet)
    left, right = sheet.figure.axes
    assert left.get_yscale() == right.get_yscale() == "linear"
    (band,) = right.collections
    # Without a deviation, a band has no height: it is not filled up to half of the mean.
    (path,) = band.get_paths()
    assert np.asarray(path.vertices)[:, 1].max() == -1.0
