"""CONTRIBUTING.md is true: what it says to add is added to a copy of the sources, and works there.

It works from Python and as a command, and the tests that go through every thing of its kind take it up. The changes
themselves are in ``tests/additions``.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedgauge as fg
from size import entered_files
from tests.additions.changes import (
    ADDITIONS,
    ALGORITHM,
    DATA_SET,
    FAST_PATH,
    INTEGRATION,
    MEASURE,
    SECTION,
    THEOREM,
    Addition,
)

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("planning", "papers/*", "verification", "explorer", "inspection", "integrations/*")
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
every_addition = pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.folder)

PRELUDE = """
import contextlib, io, json, pathlib, sys
import numpy as np
import torch
import fedgauge as fg
from fedgauge.cli import main

def command(line):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main(line.split())
    assert status == 0, line
    return said.getvalue()

found = {"source": fg.__file__}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what an addition changes."""
    root = tmp_path / "tree"
    # Compiled files are copied with the dates of their sources, so that nothing is compiled again.
    for name in ("src", "tests", "docs/reference", "integrations/datasets/src", "integrations/datasets/tests"):
        shutil.copytree(ROOT / name, root / name)
    beside = (
        path
        for each in ("planning", "papers", "verification", "explorer", "inspection", "integrations")
        for path in (ROOT / each).rglob("pyproject.toml")
    )
    single = (
        ROOT / name for name in ("docs/theory/table.md", "conftest.py", "Makefile", "pyproject.toml", "constraints.txt")
    )
    for path in (*single, *beside):
        (root / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to(ROOT))
    return root


def environment(*places: Path) -> dict[str, str]:
    """This environment, in which modules are first looked for at some places."""
    before = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, places), *before]), "OMP_NUM_THREADS": "1"}


def run(tree: Path, *arguments: str, places: tuple[Path, ...] = ()) -> str:
    """The output of a Python process for which the copy's sources come first."""
    made = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment(tree / "src", *places),
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    return made.stdout


def tried(tree: Path, code: str, *places: Path) -> dict[str, Any]:
    """What a piece of code puts into ``found`` where the copy's sources come first."""
    code = f"{PRELUDE}{code}\nprint(json.dumps(found))"
    found: dict[str, Any] = json.loads(run(tree, "-c", code, places=places).splitlines()[-1])
    assert Path(found["source"]).is_relative_to(tree)
    return found


def installed(place: Path) -> Path:
    """Where Python finds the entry points of a distribution: what pip writes, without installing anything."""
    made = tomllib.loads((place / "pyproject.toml").read_text("utf-8"))["project"]
    facts = place / "installed" / f"{made['name'].replace('-', '_')}-{made['version']}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {made['name']}\nVersion: {made['version']}\n")
    entries = configparser.ConfigParser()
    entries.read_dict(made["entry-points"])
    with (facts / "entry_points.txt").open("w") as file:
        entries.write(file)
    return facts.parent


TAKEN_UP: dict[str, tuple[int, list[str]]] = {
    "algorithm": (
        11,
        [
            *("tests/contract/test_algorithms.py", "tests/algorithms/test_limits.py", "tests/test_layers.py"),
            *("-k", "fedexp or every_public_name"),
        ],
    ),
    "theorem": (
        6,
        ["tests/contract/test_theorems.py", "tests/theory/test_oracle.py", "-k", "minibatch-average or both_know"],
    ),
    "list of theorems": (4, ["--doctest-modules", "src/fedgauge/theory/__init__.py"]),
    "measure": (1, ["--doctest-modules", "src/fedgauge/measurement/conflict.py"]),
    "section": (1, ["tests/report/test_sections.py", "-k", "duration"]),
    "fast path": (8, ["tests/contract/test_kernels.py", "-k", "linear or names_differ"]),
}
"""The least number of tests that take each addition up, and how pytest is called for them."""

PYTEST = """
import json, sys
import pytest

class Passed:
    number = 0

    def pytest_runtest_logreport(self, report):
        self.number += report.when == "call" and report.passed

found = {}
for name, arguments in json.loads(sys.argv[1]).items():
    passed = Passed()
    status = pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", ".", *arguments], plugins=[passed])
    assert status == 0, name
    found[name] = passed.number
print(json.dumps(found))
"""


def test_what_goes_through_every_thing_of_a_kind_takes_up_what_is_added(tree: Path) -> None:
    """All in one copy and one process, as most of the time goes into imports."""
    for addition in ADDITIONS:
        addition.make(tree)
    calls = json.dumps({name: arguments for name, (_, arguments) in TAKEN_UP.items()})
    found = json.loads(run(tree, "-c", PYTEST, calls).splitlines()[-1])
    assert all(found[name] >= least for name, (least, _) in TAKEN_UP.items()), found


def section_of(kind: str) -> str:
    """The text below a heading of CONTRIBUTING.md, up to the next one."""
    found = re.search(rf"^### {kind}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no heading {kind}"
    return found[1]


def test_the_page_walks_through_the_files_that_the_call_enters() -> None:
    walk = PAGE.partition("\n## One call, file by file\n")[2].partition("\nBack in ")[0]
    call = re.search(r"^    trace = (.*)$", walk, re.MULTILINE)
    assert call
    named = set(re.findall(r"`(\w+/[\w/]+\.py)`", walk)) - {"federation/supervised.py"}
    federation = fg.random_quadratics(4, 3)
    package = Path(fg.__file__).parent
    compiled = compile(call[1], "the call", "eval")
    files = entered_files(lambda: eval(compiled, {"fg": fg, "federation": federation}), package)
    assert named == {path for path in files if not path.startswith("base/")}


@every_addition
def test_the_page_names_the_files_that_an_addition_touches(addition: Addition) -> None:
    items = re.findall(r"^- `([^`]+)`", section_of(addition.kind), re.MULTILINE)
    assert sorted(items) == sorted(addition.touched)


def test_the_page_has_a_heading_for_every_kind_of_addition() -> None:
    below = PAGE.partition("## What to touch to add")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", below, re.MULTILINE) == [addition.kind for addition in ADDITIONS]


@pytest.mark.parametrize("path", sorted({*re.findall(r"`((?:src|tests|docs|papers|benchmarks)/[\w./]+)`", PAGE)}))
def test_every_place_that_the_page_names_is_there(path: str) -> None:
    assert "NAME" in path or (ROOT / path).exists()


@every_addition
def test_what_is_added_is_not_there_already(addition: Addition) -> None:
    for path in addition.files:
        assert not (ROOT / path).exists()
    for path, added in addition.lines.items():
        assert not any(line in (ROOT / path).read_text("utf-8") for _, line in added)


def test_an_algorithm(tree: Path) -> None:
    ALGORITHM.make(tree)
    found = tried(
        tree,
        """
federation = fg.random_quadratics(5, 3, linear_spread=3.0, seed=1)
trace = fg.simulate(federation, fg.fedexp(gamma=0.1), local_steps=4, rounds=1)
found["model"] = trace.model.tolist()
x, ends = federation.first_model, []
for A, b in zip(federation.hessians, federation.linear):
    y = x.copy()
    for _ in range(4):
        y = y - 0.1 * (A @ y + b)
    ends.append(y)
deltas = [x - y for y in ends]
delta = np.mean(deltas, axis=0)
eta = np.mean([d @ d for d in deltas]) / (2 * (delta @ delta))
found["eta"], found["by hand"] = eta, (x - max(eta, 1.0) * delta).tolist()
federation.write(pathlib.Path("federation.json"))
line = "simulate federation.json --algorithm fedexp --gamma 0.1 --local-steps 4"
found["command"] = json.loads(command(line + " --rounds 1 --json"))
found["listed"] = json.loads(command("theory algorithms --json"))["fedexp"]["parameters"]
""",
    )
    assert found["model"] == pytest.approx(found["by hand"], rel=1e-12)
    assert found["eta"] > 1, "otherwise it would be FedAvg"
    assert found["command"]["model"] == found["model"]
    assert found["listed"] == ["gamma"]


def test_a_theorem(tree: Path) -> None:
    THEOREM.make(tree)
    found = tried(
        tree,
        """
from fedgauge.theory import evaluate
values = dict(F=1.0, I=10, R=10, N=4, sigma2=8.0, L_g=1.0, gamma=1.0)
found["total"] = evaluate("minibatch-average", **values).total
line = "theory bound minibatch-average F=1 I=10 R=10 N=4 sigma2=8 L_g=1 gamma=1 --json"
found["command"] = json.loads(command(line))
command("theory explore --out explorer.html")
found["explored"] = 'id="panel-minibatch-average"' in pathlib.Path("explorer.html").read_text()
""",
    )
    assert found["total"] == pytest.approx(0.4, rel=1e-15)
    assert found["command"]["total"] == found["total"]
    assert found["command"]["certified"] is True
    assert found["explored"]


def test_a_measure(tree: Path) -> None:
    MEASURE.make(tree)
    found = tried(
        tree,
        """
federation = fg.random_quadratics(9, 3, linear_spread=30.0, seed=1)
options = fg.MeasureOptions(("conflict",))
measured = fg.measure(federation, fg.fedavg(0.1), model=federation.start(0), options=options)
found["value"] = measured.constants["conflict"].value
gradients = federation.hessians @ federation.first_model + federation.linear
found["by hand"] = float((gradients @ gradients.mean(axis=0) < 0).mean())
federation.write(pathlib.Path("federation.json"))
command("simulate federation.json --gamma 0.1 --rounds 2 --out run")
found["said"] = command("measure run --readings conflict --at run --out measured")
found["command"] = json.loads(pathlib.Path("measured/measure.json").read_text())["readings"][0]
command("report measured --out page.html")
found["page"] = pathlib.Path("page.html").read_text()
""",
    )
    assert found["value"] == pytest.approx(found["by hand"], rel=1e-12)
    assert 0 < found["value"] < 1
    (estimate,) = found["command"]["estimates"]
    assert (found["command"]["name"], estimate["symbol"]) == ("conflict", "conflict")
    assert "conflict" in found["said"]
    assert f"{estimate['value']:.4g}" in found["page"]


def test_a_report_section(tree: Path) -> None:
    SECTION.make(tree)
    found = tried(
        tree,
        """
fg.random_quadratics(5, 3, linear_spread=3.0, seed=1).write(pathlib.Path("federation.json"))
command("simulate federation.json --gamma 0.1 --rounds 2 --out run")
found["sections"] = json.loads(command("report run --out page.html --json"))["sections"]
found["page"] = pathlib.Path("page.html").read_text()
""",
    )
    assert "duration" in found["sections"]
    assert '<a href="#duration">How long it took</a>' in found["page"]
    assert "seconds per round" in found["page"]


def test_a_fast_path(tree: Path) -> None:
    FAST_PATH.make(tree)
    found = tried(
        tree,
        """
from fedgauge.federation.kernels.base import squared_error
rng = np.random.default_rng(0)
shards = [(rng.standard_normal((20, 6)), rng.standard_normal((20, 3))) for _ in range(4)]
torch.manual_seed(0)
module = torch.nn.Linear(6, 3).double()
models = {}
for path in ("auto", "plain"):
    federation = fg.federate(module, squared_error, shards, path=path)
    found[path] = federation.path
    models[path] = fg.simulate(federation, fg.fedavg(0.1), local_steps=3, rounds=4).model
found["gap"] = float(np.abs(models["auto"] - models["plain"]).max())
np.savez("data.npz", x=rng.standard_normal((100, 6)).astype("float32"), y=rng.standard_normal(100).astype("float32"))
line = "simulate data.npz --model linear --targets values --workers 4 --gamma 0.01 --rounds 2 --scheme iid --json"
import logging
heard = found["heard"] = []
handler = logging.Handler(logging.INFO)
handler.emit = lambda record: heard.append(record.getMessage())
logging.getLogger("fedgauge").setLevel("INFO")
logging.getLogger("fedgauge").addHandler(handler)
with contextlib.redirect_stderr(io.StringIO()):
    command(line)
""",
    )
    assert (found["auto"], found["plain"]) == ("linear", "plain")
    assert 0 < found["gap"] < 1e-12, "another order of sums, and the same numbers otherwise"
    assert any(said.startswith("path linear: ") for said in found["heard"])


def test_a_data_set(tree: Path) -> None:
    DATA_SET.make(tree)
    place = tree / "integrations" / "datasets"
    found = tried(
        tree,
        """
from integrations.datasets.tests import made
arrays = made.mnist(pathlib.Path("files/KMNIST/raw"))
read = fg.load_dataset("kmnist", "files").train_inputs[:, 0]
found["right"] = bool((read == arrays["train-images-idx3-ubyte"]).all())
found["listed"] = json.loads(command("data list --data files --json"))["datasets"]
found["counts"] = json.loads(command("data partition kmnist --data files --workers 2 --json"))["sizes"]
""",
        installed(place),
        place / "src",
    )
    assert found["right"]
    assert {each["name"]: each["state"] for each in found["listed"]}["kmnist"] == "other"
    assert found["counts"] == [20, 20]


def test_an_integration(tree: Path) -> None:
    INTEGRATION.make(tree)
    place = tree / "integrations" / "markdown"
    found = tried(
        tree,
        """
fg.random_quadratics(5, 3, linear_spread=3.0, seed=1).write(pathlib.Path("federation.json"))
command("simulate federation.json --gamma 0.1 --rounds 2 --out run")
found["said"] = command("markdown run")
found["losses"] = [record.loss for record in fg.read_run("run").rounds]
found["help"] = command("--help")
""",
        installed(place),
        place / "src",
    )
    head, _, *rows = found["said"].splitlines()
    assert head == "| round | loss | squared gradient norm |"
    assert [row.split(" | ")[1] for row in rows] == [f"{loss:.6g}" for loss in found["losses"]]
    assert re.search(r"\bmarkdown\b.*Markdown table", found["help"])
    # The Makefile installs it, and finds its sources where another clone's environment is used.
    make = ["make", "--dry-run", "setup", "VENV=.venv"]
    plan = subprocess.run(make, cwd=tree, capture_output=True, text=True, check=True).stdout
    assert "--editable 'integrations/markdown'" in plan
    assert (
        str(place.relative_to(tree) / "src")
        in tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["mypy"]["mypy_path"]
    )
