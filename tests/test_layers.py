"""Nothing to the left imports anything to its right (design, section 1)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedgauge

ROOT = Path(fedgauge.__file__).parent

# From left to right; a package stands for its modules, which may import each other.
LAYERS = (
    "errors",
    "symbols",
    "randomness",
    "codec",
    "system",
    "values",
    "data",
    "federation",
    "algorithms",
    "pace",
    "runs",
    "simulation",
    "experiment",
    "measurement",
    "theory",
    "exact",
    "falsify",
    "planning",
    "results",
    "web",
    "explore",
    "audit",
    "report",
    "reproduce",
    "demo",
    "flower",
    "cli",
    "__main__",
)
# What reads results, evaluates theory or answers a command's help does not wait for torch.
WITHOUT_TORCH = (
    "data.loading",
    "data.schemes",
    "algorithms",
    "pace.adaptive",
    "runs.reader",
    "runs.export",
    "experiment.config",
    "experiment.sweep",
    "theory.answer",
    "theory.search",
    "exact.expectation",
    "exact.region",
    "falsify.campaign",
    "planning.by_theory",
    "planning.plan",
    "explore.page",
    "report.page.build",
    "report.terminal.console",
    "cli",
)


def layer(module: str) -> str:
    return module.removeprefix("fedgauge.").split(".")[0]


def imports(path: Path, everywhere: bool = True) -> set[str]:
    """The modules that a file imports; ``everywhere`` counts those inside functions and for type checking too."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_left(path: Path) -> None:
    own = layer(str(path.relative_to(ROOT).with_suffix("")).replace("/", "."))
    assert own in LAYERS, f"{own} has no place in the order; add it to LAYERS"
    for module in imports(path):
        if module.startswith("fedgauge.") and layer(module) in LAYERS:
            assert LAYERS.index(layer(module)) <= LAYERS.index(own), f"{own} imports {module}, which is to its right"


def test_what_reads_and_evaluates_does_not_import_torch() -> None:
    code = "import importlib, sys\n" + "\n".join(
        f"importlib.import_module('fedgauge.{name}'); assert 'torch' not in sys.modules, '{name} imports torch'"
        for name in WITHOUT_TORCH
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ray_is_imported_by_one_module_when_it_is_asked_for() -> None:
    importing = {path.stem for path in FILES if "ray" in {name.split(".")[0] for name in imports(path)}}
    assert importing == {"ray_cluster"}
    assert "ray" not in {
        name.split(".")[0] for name in imports(ROOT / "simulation" / "engines" / "ray_cluster.py", everywhere=False)
    }
    code = (
        "import sys, fedgauge as fg;"
        "fg.simulate(fg.random_quadratics(3, 2), fg.fedavg(0.1), local_steps=2, rounds=2);"
        "import fedgauge.experiment.sweep, fedgauge.planning.pilots, fedgauge.simulation.engines.on_ray;"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_flower_is_imported_by_its_own_package_alone(path: Path) -> None:
    if path.parent != ROOT / "flower":
        assert not {"flwr", "flwr_datasets"} & {module.split(".")[0] for module in imports(path)}


# What computes: a renderer that imports one of these would no longer only read. Types of values are not among them.
COMPUTING_MODULES = (
    "simulation",
    "federation",
    "experiment.prepare",
    "data.loading",
    "data.schemes",
    "data.sharing",
    "theory.tune",
    "results.background.background_of",
    "results.comparison.compare",
    "theory.answer.answer",
    "theory.evaluate",
    "exact.expectation.expect",
    "exact.region.compute",
)
COMPUTING_METHODS = {"evaluate", "share_out", "minimiser"}


@pytest.mark.parametrize("path", sorted((ROOT / "report").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_renderers_only_read(path: Path) -> None:
    """A report neither simulates nor shares out data nor evaluates a theorem: it is handed all that it shows."""
    for module in imports(path):
        name = module.removeprefix("fedgauge.")
        computing = [each for each in COMPUTING_MODULES if name == each or name.startswith(f"{each}.")]
        assert not module.startswith("fedgauge.") or not computing, f"{path.name} imports {module}"
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    assert not called & COMPUTING_METHODS, f"{path.name} computes"


def test_theory_knows_nothing_of_torch() -> None:
    for path in (ROOT / "theory").glob("*.py"):
        assert "torch" not in {name.split(".")[0] for name in imports(path)}, f"{path.name} imports torch"


def test_constants_expectations_and_regions_run_without_torch() -> None:
    code = (
        "import sys, fedgauge as fg;"
        "f = fg.random_quadratics(3, 2); f.constants(); f.minimiser();"
        "fg.expect(f, fg.fedavg(0.1), local_steps=2, rounds=2);"
        "from fedgauge.exact import region as r;"
        "r.compute(r.make_axis('sigma', points=2), r.make_axis('I', points=2));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_data_is_loaded_and_shared_out_without_torch() -> None:
    code = (
        "import sys, fedgauge as fg;"
        "fg.make_partition(fg.standardise(fg.load_dataset('digits')), 'paper', 10);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_found_where_the_package_says() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(fedgauge.__all__)
    for name in fedgauge.__all__:
        assert getattr(fedgauge, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        fedgauge.no_such_name  # type: ignore[attr-defined]  # noqa: B018
