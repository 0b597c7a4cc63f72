"""The README and the first page show what the demo says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedgauge.cli.demo import digits

ROOT = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("show_demo", ROOT / "scripts" / "show_demo.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_page_has_the_answer_of_the_file(page: str) -> None:
    demo = script()
    assert demo.marked(page) == demo.block(demo.kept(), demo.PAGES[page])
    assert demo.kept().sentence in demo.marked(page)


def test_the_picture_is_of_the_answer_of_the_file() -> None:
    demo = script()
    with Image.open(demo.PLACE / "card.png") as picture:
        assert picture.info["answer"] == " ".join(demo.sentences(demo.kept()))


@pytest.mark.slow
def test_the_file_has_the_answer_of_the_demo(tmp_path: Path) -> None:
    """The same bits on every machine of one kind; others may round the last digits in another way."""
    found, kept = digits.gauge(tmp_path, lambda what, done, total: None), script().kept()
    assert found.sentence.split("(")[0] == kept.sentence.split("(")[0]
    assert [each.local_steps for each in found.efficiency] == [each.local_steps for each in kept.efficiency]
    assert [each.value for each in found.efficiency] == pytest.approx(
        [each.value for each in kept.efficiency], rel=0.02
    )
