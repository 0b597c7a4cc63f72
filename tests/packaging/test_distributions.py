"""What is published together: the library and what stands beside it, a container, and the versions that were tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tests.packaging import try_container

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("planning", "papers/*", "verification", "explorer", "inspection", "integrations/*")
BESIDE = sorted(path.parent for each in PLACES for path in ROOT.glob(f"{each}/pyproject.toml"))
NAMES = [str(path.relative_to(ROOT)) for path in BESIDE]


def project(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    return found


def test_make_builds_all_of_them() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    beside = re.search(r"^BESIDE := (.*)$", makefile, re.MULTILINE)
    built = re.search(r"^DISTRIBUTIONS := \. \$\(PLACES\) (.*)$", makefile, re.MULTILINE)
    assert beside
    assert built
    assert sorted(re.sub(r"\[.*?\]", "", f"{beside[1]} {built[1]}").split()) == NAMES


@pytest.mark.parametrize("place", BESIDE, ids=NAMES)
def test_they_share_version_licence_and_pythons(place: Path) -> None:
    library, own = project(ROOT), project(place)
    for key in ("version", "license", "license-files", "requires-python", "authors", "classifiers"):
        assert own[key] == library[key], key
    assert f"fedgauge=={library['version']}" in [re.sub(r"\[.*\]", "", each) for each in own["dependencies"]]
    assert (place / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert list(place.glob("src/*/py.typed")), "It says that it is typed."
    assert (place / own["readme"]).read_text().startswith(f"# {own['name']}\n")


def test_the_lock_has_every_package_that_the_tests_need() -> None:
    locked = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#")
    locked = {re.sub("[-_.]+", "-", name).lower(): version for name, version in locked.items()}
    needed = [*project(ROOT)["dependencies"], *project(ROOT)["optional-dependencies"]["dev"]]
    needed += [each for place in BESIDE if place.name != "nvflare" for each in project(place)["dependencies"]]
    for requirement in map(Requirement, needed):
        if not requirement.name.startswith("fedgauge"):
            version = locked[re.sub("[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(version), f"{requirement} against {version}"
    assert f"torch=={locked['torch']}" in (ROOT / "torch.txt").read_text()


def test_the_container_installs_what_is_there() -> None:
    """``make test-container`` runs the steps; here, that they name what exists and are all understood."""
    steps = try_container.instructions(ROOT / "Containerfile")
    known = {"FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in steps} == known
    (copied,) = (value.split()[1] for name, value in steps if name == "COPY")
    named = [each for name, value in steps if name == "RUN" for each in re.findall(rf"{copied}/([\w./]+)", value)]
    assert sorted(named) == sorted({*named})
    assert len(named) == 7
    assert all((ROOT / each).exists() for each in named)


def test_the_workflow_runs_make_test_on_a_python_that_the_metadata_names() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert "- run: make test\n" in text
    pythons = set(re.findall(r'"(3\.\d+)"', text))
    claimed = {each.rsplit(" ", 1)[1] for each in project(ROOT)["classifiers"] if re.search(r":: 3\.\d", each)}
    assert pythons == claimed
