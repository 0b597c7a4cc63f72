"""The notebooks run, show what the pages show, and stay short."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MOST_WORDS = 1200
# Numbers may differ in their last digits between machines, and with them how sure an answer is.
NUMBER = re.compile(r"\d[\d,.]*(?:e[+-]\d+)?%?")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "scripts" / "run_notebooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: Any) -> list[list[str]]:
    """What each cell shows, without numbers: the kinds of its outputs and its text."""
    return [[_shown(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _shown(output: Any) -> str:
    return NUMBER.sub("#", output.text) if output.output_type == "stream" else str(sorted(output.data))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_was_kept_with(path: Path) -> None:
    kept, found = script().read(path), script().run(path)
    assert shown(found) == shown(kept)
    # Results are pictures in the page, without magic.
    assert any("data:image/png" in str(output) for cell in found.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short(path: Path) -> None:
    words = [word for cell in script().read(path).cells for word in cell.source.split()]
    assert len(words) <= MOST_WORDS


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3
