"""Notebooks as pages, with the outputs that they were kept with.

A notebook is translated into Markdown when it is read: text as it is, code as a block, and below it what the code
showed. Nothing is run here, and nothing is needed but the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_FENCE = "``````"
_STYLE = re.compile(r'<div class="table"><table[^>]*>')
"""A table of ours, which gets the look and the scrolling of the pages' own tables."""


def markdown(notebook: dict[str, Any]) -> str:
    """The page of a notebook.

    >>> cells = [{"cell_type": "markdown", "source": ["# Title"]}]
    >>> print(markdown({"cells": cells}))
    # Title
    """
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"{_FENCE}python\n{source}\n{_FENCE}"
    for output in cell["outputs"]:
        yield _shown(output)


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"{_FENCE}text\n{''.join(output['text']).rstrip()}\n{_FENCE}"
    if output["output_type"] == "error":
        raise ValueError(f"A notebook was kept with an error: {output['evalue']}")
    data = {kind: "".join(content) for kind, content in output["data"].items()}
    if "text/html" not in data:
        return f"{_FENCE}text\n{data['text/plain']}\n{_FENCE}"
    html = _STYLE.sub('<div class="table-wrapper"><table class="docutils">', data["text/html"])
    return f'{_FENCE}{{raw}} html\n<div class="shown">{html}</div>\n{_FENCE}'


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    if str(app.env.doc2path(docname)).endswith(".ipynb"):
        source[0] = markdown(json.loads(source[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
