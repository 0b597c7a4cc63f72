"""The public names as the reference shows them.

A type in a signature links to its public name: ``fedgauge.values.Trace`` is on these pages as ``fedgauge.Trace``, and
``fedgauge_planning.goal.Goal`` as ``fedgauge_planning.Goal``.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import fedgauge
import fedgauge_inspection
import fedgauge_planning
import fedgauge_verification

_PACKAGES = (fedgauge, fedgauge_inspection, fedgauge_planning, fedgauge_verification)


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> nodes.Node | None:
    if node.get("refdomain") != "py":
        return None
    parts = node["reftarget"].split(".")
    target = ""
    for package in _PACKAGES:
        if parts[0] == package.__name__:
            # A method's class stands before its name.
            own = next((place for place in range(len(parts) - 1, 0, -1) if parts[place] in package.__all__), None)
            target = ".".join([package.__name__, *parts[own:]]) if own else ""
        elif parts[0] in package.__all__:
            target = f"{package.__name__}.{node['reftarget']}"
    if not target or target == node["reftarget"]:
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


_SYMBOL = re.compile(r"^(\s*(?::\w+ \w+: )?)([A-Za-z])\.$")
_SENTENCES: dict[str, list[str]] = {}


def _keep(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    if what in ("attribute", "data", "property"):
        _SENTENCES[name] = list(lines)


def _restore(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in a property's first line for its type; ours are sentences."""
    if name in _SENTENCES:
        lines[:] = _SENTENCES.pop(name)
    # A symbol with a full stop is a whole sentence here, and the first letter of a list to docutils.
    lines[:] = [_SYMBOL.sub(r"\1\\\2.", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Be asked about references that Sphinx cannot resolve, and see docstrings before and after napoleon."""
    app.connect("autodoc-process-docstring", _keep, priority=400)
    app.connect("autodoc-process-docstring", _restore, priority=600)
    app.connect("missing-reference", _resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
