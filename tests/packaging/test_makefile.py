"""The Makefile installs packages into this clone's own environment only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("planning", "papers/*", "verification", "explorer", "inspection", "integrations/*")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone as far as ``make setup`` looks at it."""
    place = tmp_path / "clone"
    place.mkdir()
    beside = [path.relative_to(ROOT) for each in BESIDE for path in ROOT.glob(f"{each}/pyproject.toml")]
    for name in (Path("Makefile"), Path("pyproject.toml"), Path("constraints.txt"), Path("torch.txt"), *beside):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    return place


def planned(clone: Path, *arguments: str) -> str:
    """What make would run."""
    command = ["make", "--dry-run", *arguments]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout


def test_it_sets_up_its_own_environment_where_there_is_none_or_an_old_one(clone: Path) -> None:
    assert "pip install" in planned(clone, "setup")
    assert "pip install" in planned(clone, "setup", "VENV=../new")
    (clone / ".venv").mkdir()
    assert "pip install" in planned(clone, "setup")
    (clone / ".venv" / ".ready").write_text(f"{clone}\n")
    assert "pip install" not in planned(clone, "setup")


def test_it_never_installs_into_or_removes_the_environment_of_another_clone(clone: Path) -> None:
    other = clone.parent / "other"
    (other / ".venv" / "bin").mkdir(parents=True)
    (other / ".venv" / ".ready").write_text(f"{other}\n")
    (clone / ".venv").symlink_to(other / ".venv")
    for arguments in (("docs", "VENV=../other/.venv"), ("docs", f"VENV={other}/.venv"), ("docs",)):
        plan = planned(clone, *arguments)
        assert "pip install" not in plan
        assert "is not this clone's own environment" in plan
        assert "sphinx" in plan
    assert "other" not in planned(clone, "clean", f"VENV={other}/.venv")


def test_an_environment_elsewhere_that_it_made_itself_is_its_own(clone: Path) -> None:
    made = clone.parent / "elsewhere"
    made.mkdir()
    assert "pip install" not in planned(clone, "setup", f"VENV={made}")
    (made / ".ready").write_text(f"{clone}\n")
    os.utime(made / ".ready", (0, 0))  # older than what it installs
    assert "pip install" in planned(clone, "setup", f"VENV={made}")
