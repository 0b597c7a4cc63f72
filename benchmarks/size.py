"""How large the library is, how much of it one call passes through, and what it takes to add to it.

    python benchmarks/size.py                  # this clone; another clone's source with --root DIR
    python benchmarks/size.py --json

Code lines are those that hold a token other than a comment, without docstrings. A call's files and functions are those
of the library that the interpreter enters while the call runs, imports aside, in this process and thread.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    r"""The lines that hold code, which docstrings and comments are not.

    >>> code_lines('def one():\n    "Say one."\n    # why\n    return 1\n')
    2
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        # A text that stands by itself is a docstring, of an attribute too.
        body = node.body if isinstance(node, holders) else []
        for each in body:
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                lines.difference_update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return len(lines)


def sizes(package: Path) -> dict[str, int]:
    """Lines, code lines, modules and top-level units of a package."""
    files = sorted(package.rglob("*.py"))
    sources = [path.read_text(encoding="utf-8") for path in files]
    units = {path.relative_to(package).parts[0].removesuffix(".py") for path in files}
    return {
        "lines": sum(len(source.splitlines()) for source in sources),
        "code lines": sum(code_lines(source) for source in sources),
        "modules": len(files),
        "modules of at most 60 lines": sum(len(source.splitlines()) <= 60 for source in sources),
        "top-level units": len({unit for unit in units if not unit.startswith("__")}),
    }


def entered(call: Callable[[], Any], package: Path) -> dict[str, int]:
    """How many files and functions of a package a call enters, once what it imports has been imported."""
    inside = _entered(call, package)
    return {"files": len({code.co_filename for code in inside}), "functions": len(inside)}


def entered_files(call: Callable[[], Any], package: Path) -> set[str]:
    """The files of a package that a call enters."""
    return {str(Path(code.co_filename).relative_to(package)) for code in _entered(call, package)}


def _entered(call: Callable[[], Any], package: Path) -> set[CodeType]:
    # The first call imports; only the second is counted.
    with contextlib.redirect_stdout(io.StringIO()):
        call()
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
    return {code for code in codes if Path(code.co_filename).is_relative_to(package) and code.co_name[0] != "<"}


def calls(place: Path) -> dict[str, Callable[[], Any]]:
    """What a user calls most, each on the smallest task that is real."""
    import fedgauge as fg
    from fedgauge.cli import main

    run = str(place / "run")

    def command(line: str) -> None:
        if main(line.split()) != 0:
            raise SystemExit(f"'fedgauge {line}' failed, so that nothing about it can be counted.")

    command(f"simulate digits --gamma 0.1 --rounds 3 --processes 1 --out {run} --json")
    federation = fg.random_quadratics(4, 3)
    theory = "theory " if "theory" in _commands() else ""
    numbers = "F=1 I=8 R=500 N=10 sigma2=1 zeta2=4 L_g=1 L_h=0.1 L_tilde=1.2 gamma=0.01"
    return {
        "simulate": lambda: fg.simulate(federation, fg.fedavg(gamma=0.1), local_steps=5, rounds=20),
        "gauge digits": lambda: command("gauge digits --gamma 0.1 --rounds 20 --processes 1 --json"),
        "theory bound": lambda: command(f"{theory}bound nonconvex {numbers} --json"),
        "report": lambda: command(f"report {run} --out {place / 'report.html'}"),
    }


def _commands() -> set[str]:
    from fedgauge.cli import app

    return {
        group.name or str(group.typer_instance and group.typer_instance.info.name) for group in app.registered_groups
    }


def help_lines(command: str) -> int:
    """The lines of a command's help on a terminal of 80 columns."""
    run = subprocess.run(
        [sys.executable, "-m", "fedgauge", *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "80", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    return len(run.stdout.strip().splitlines())


def touched(root: Path) -> dict[str, dict[str, int]]:
    """How many files are new, and how many change, to add one thing of each kind, by the clone's own examples.

    Those examples are what ``tests/test_contributing.py`` adds to a copy of the sources, so that none can be missing.
    """
    if not (root / "tests" / "additions" / "changes.py").exists():
        return {}
    sys.path.insert(0, str(root))
    from tests.additions.changes import ADDITIONS

    found = {}
    for addition in ADDITIONS:
        changed = {path: "tests" if path.startswith("tests/") else "library" for path in addition.lines}
        changed |= {path: "docs" for path in addition.lines if path.startswith("docs/")}
        places = list(changed.values())
        found[addition.kind] = {"new": len(addition.files), **{name: places.count(name) for name in _PLACES}}
    return found


_PLACES = ("library", "docs", "tests")
"""Where the files are that change where something is added; the library's own set-up is with it."""


def measure(root: Path) -> dict[str, Any]:
    """Everything that this page counts, for the clone in ``root``."""
    package = root / "src" / "fedgauge"
    sys.path.insert(0, str(root / "src"))
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        through = {name: entered(call, package) for name, call in calls(Path(place)).items()}
    return {
        "library": sizes(package),
        "a call passes through": through,
        "lines of simulate --help": help_lines("simulate"),
        "files touched to add": touched(root),
    }


def main() -> None:
    """Count, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the clone to count")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.root.resolve())
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, value in result["library"].items():
        print(f"{name:30}{value:>10,}")
    for name, value in result["a call passes through"].items():
        print(f"{name:30}{value['files']:>4} files, {value['functions']:>4} functions")
    print(f"{'lines of simulate --help':30}{result['lines of simulate --help']:>10,}")
    for kind, value in result["files touched to add"].items():
        changed = ", ".join(f"{value[name]} of {name}" for name in _PLACES if value[name])
        print(f"to add {kind[0].lower()}{kind[1:]:22}{value['new']:>4} new, changed: {changed}")


if __name__ == "__main__":
    main()
