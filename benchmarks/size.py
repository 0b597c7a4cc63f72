"""How large the library is, and how much of it one call passes through.

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
    """The files and functions of a package that a call enters, once what it imports has been imported."""
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
    inside = {code for code in codes if Path(code.co_filename).is_relative_to(package) and code.co_name[0] != "<"}
    return {"files": len({code.co_filename for code in inside}), "functions": len(inside)}


def calls(place: Path) -> dict[str, Callable[[], Any]]:
    """What a user calls most, each on the smallest task that is real."""
    import fedgauge as fg
    from fedgauge.cli import main

    run = str(place / "run")
    main(["simulate", "digits", "--gamma", "0.1", "--rounds", "3", "--processes", "1", "--out", run, "--json"])
    federation = fg.random_quadratics(4, 3)
    gauge = ["gauge", "digits", "--gamma", "0.1", "--rounds", "20", "--processes", "1", "--json"]
    generated = str(place / "quadratics.json")
    theory = ["theory"] if "theory" in _commands() else []
    main([*theory, "generate", generated, "--workers", "4", "--dim", "3"])
    # A bound needs a region where the loss is bounded, which a start at the origin has.
    bound = [*theory, "bound", generated, "--gamma", "0.001", "--local-steps", "5", "--rounds", "100", "--json"]
    return {
        "simulate": lambda: fg.simulate(federation, fg.fedavg(gamma=0.1), local_steps=5, rounds=20),
        "gauge digits": lambda: main(gauge),
        "theory bound": lambda: main(bound),
        "report": lambda: main(["report", run, "--out", str(place / "report.html")]),
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


if __name__ == "__main__":
    main()
