"""Run the notebooks of the documentation again, and keep what they show.

    python scripts/run_notebooks.py

The pages show the outputs that are kept; a test runs every notebook and compares.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PLACE = Path(__file__).resolve().parent.parent / "docs" / "notebooks"


def read(path: Path) -> Any:
    """A notebook as it is kept."""
    return nbformat.read(path, as_version=4)


def run(path: Path) -> Any:
    """A notebook with its outputs, run in a directory of its own."""
    notebook = read(path)
    with tempfile.TemporaryDirectory() as directory:
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": directory}}
        )
        client.execute()
    for cell in notebook.cells:
        # Times of a run and widgets of a bar say nothing to a reader.
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if not is_a_bar(output)])
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs of which neighbouring pieces of text are one."""
    found: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and found and found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def is_a_bar(output: Any) -> bool:
    """Whether an output is a bar of progress, which is empty in the end, or a warning of the kernel."""
    if output.output_type == "stream":
        return bool(output.name == "stderr")
    return not output.data.get("text/html", "shown")


def main() -> None:
    """Run every notebook, or those that are named."""
    named = [Path(name) for name in sys.argv[1:]] or sorted(PLACE.glob("*.ipynb"))
    for path in named:
        nbformat.write(run(path), path)


if __name__ == "__main__":
    main()
