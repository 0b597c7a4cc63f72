"""Nothing to the left imports anything to its right (design, section 1)."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedgauge

ROOT = Path(fedgauge.__file__).parent

# From left to right; a package stands for its modules, which may import each other.
LAYERS = (
    "base",
    "values",
    "data",
    "federation",
    "algorithms",
    "simulation",
    "measurement",
    "theory",
    "show",
    "cli",
    "__main__",
)
# What reads results, evaluates theory or answers a command's help does not wait for torch.
WITHOUT_TORCH = (
    "data.loader",
    "data.schemes",
    "algorithms",
    "algorithms.adaptive_pace",
    "simulation.runs.reader",
    "simulation.runs.export",
    "simulation.experiment.config",
    "theory.answer",
    "theory.search",
    "theory.expectation",
    "show.page.build",
    "show.console",
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_imports_nothing_that_stands_beside_it(path: Path) -> None:
    modules = {module.split(".")[0] for module in imports(path)}
    theirs = ("flwr", "flwr_datasets", "ray")
    assert not {module for module in modules if module in theirs or module.startswith("fedgauge_")}


# What computes: a renderer that imports one of these would no longer only read. Types of values are not among them.
COMPUTING_MODULES = (
    "simulation.loop",
    "simulation.rounds",
    "simulation.workers",
    "simulation.engines",
    "simulation.experiment.prepare",
    "federation",
    "data.loader",
    "data.schemes",
    *(f"theory.search.{name}" for name in ("solve", "best_gamma", "best_local_steps")),
    "show.results.background.background_of",
    "theory.comparison.compare",
    "theory.answer.bound",
    "theory.evaluate",
    "theory.expectation.expect",
)
COMPUTING_METHODS = {"evaluate", "share_out", "minimiser"}
# What renders; results are made ready for reports by evaluating theorems.
RENDERERS = [path for path in FILES if path.is_relative_to(ROOT / "show")]
RENDERERS = [path for path in RENDERERS if path.relative_to(ROOT / "show").parts[0] != "results"]


def computing(path: Path) -> set[str]:
    """What a file imports of what computes."""
    names = {module.removeprefix("fedgauge.") for module in imports(path) if module.startswith("fedgauge.")}
    return {name for name in names for each in COMPUTING_MODULES if name == each or name.startswith(f"{each}.")}


def exists(name: str) -> bool:
    """Whether a dotted name of the library leads to a module, or to something that a module holds."""
    try:
        pkgutil.resolve_name(f"fedgauge.{name}")
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("name", sorted({*LAYERS, *WITHOUT_TORCH, *COMPUTING_MODULES} - {"__main__"}))
def test_every_listed_name_exists(name: str) -> None:
    assert exists(name)


def test_a_renderer_that_evaluates_a_theorem_is_refused(tmp_path: Path) -> None:
    (tmp_path / "section.py").write_text("from fedgauge.theory.answer import bound\n")
    assert computing(tmp_path / "section.py") == {"theory.answer.bound"}
    (tmp_path / "section.py").write_text("from fedgauge.theory.answer import TheoremAnswer\n")
    assert not computing(tmp_path / "section.py")


@pytest.mark.parametrize("path", RENDERERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_renderers_only_read(path: Path) -> None:
    """A report neither simulates nor shares out data nor evaluates a theorem: it is handed all that it shows."""
    assert not computing(path)
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    assert not called & COMPUTING_METHODS, f"{path.name} computes"


def test_theory_knows_nothing_of_torch() -> None:
    for path in (ROOT / "theory").glob("*.py"):
        assert "torch" not in {name.split(".")[0] for name in imports(path)}, f"{path.name} imports torch"


def test_constants_and_expectations_run_without_torch() -> None:
    code = (
        "import sys, fedgauge as fg;"
        "f = fg.random_quadratics(3, 2); f.constants(); f.minimiser();"
        "fg.expect(f, fg.fedavg(0.1), local_steps=2, rounds=2);"
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
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    typed = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(fedgauge.__all__)
    for name in fedgauge.__all__:
        assert getattr(fedgauge, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        fedgauge.no_such_name  # type: ignore[attr-defined]  # noqa: B018
