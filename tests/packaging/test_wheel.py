"""The wheel: what is in it, and how a user's program is checked against it once it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as ``make dist`` builds it, with the build backend of this environment: nothing is downloaded."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    answer = subprocess.run(build, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (made,) = out.glob("*.whl")
    return made


def test_it_has_every_file_of_the_package_and_the_version_of_the_project(wheel: Path) -> None:
    package = ROOT / "src" / "fedgauge"
    files = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # Scripts, styles, pages and the Flower project's template are data, which a build may leave out.
    assert {Path(name).suffix for name in files} >= {".py", ".js", ".css", ".html", ".txt", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert packed == files
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert wheel.name == f"fedgauge-{version}-py3-none-any.whl"


def test_the_readme_of_the_package_index_leads_to_files_that_exist(wheel: Path) -> None:
    """Nothing but the README is on the index, so that every link and picture has to be absolute."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(name).decode()
    where = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    links = re.findall(r"(!?)\[[^\[\]]*\]\(([^)\s]+)\)", metadata)
    assert len(links) > 20
    for is_picture, link in links:
        base = where["files" if is_picture else "pages"]
        assert link.startswith(f"{base}/"), link
        assert (ROOT / link.removeprefix(f"{base}/").partition("#")[0]).is_file(), link


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, which borrows everything else from the one that runs this."""
    home = tmp_path_factory.mktemp("user") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    # A directory that is named by a .pth file has its own .pth files ignored: this clone's editable install is one.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def check(python: Path, *programs: Path) -> subprocess.CompletedProcess[str]:
    """Type-check programs with mypy, strictly, as their author would: in another directory, without our settings."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--python-executable", str(python)]
    cache = ROOT / ".mypy_cache" / "installed"
    names = [program.name for program in programs]
    return subprocess.run(
        [*command, "--cache-dir", str(cache), *names],
        cwd=programs[0].parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_users_program_is_checked_against_the_types_of_the_installed_package(installed: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(Path(__file__).with_name("user_program.py").read_text())
    # Had the package no types, everything would pass.
    wrong.write_text(right.read_text().replace("num_workers: int", "num_workers: str"))
    answer = check(installed, right, wrong)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    *mistakes, summary = answer.stdout.splitlines()
    assert [line.split(":")[0] for line in mistakes] == ["wrong.py"] * len(mistakes)
    assert 'Argument 1 to "random_quadratics" has incompatible type "str"' in mistakes[0]
    assert summary.endswith("in 1 file (checked 2 source files)")
