r"""Formulas as MathML, written while the pages are built: they need neither a script nor the network to be read.

docutils translates LaTeX. What its translator reads otherwise than TeX does is rewritten first.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_LOG = logging.getLogger(__name__)
_TAG = re.compile(r"\\tag\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dt]?frac(?![a-z])")
# A bar that neither opens nor closes is set like a sign between two numbers, and as tall as the row.
_BARS = {
    '<mo class="mathopen">|</mo>': '<mo form="prefix" stretchy="false" lspace="0" rspace="0">|</mo>',
    "<mo>|</mo>": '<mo form="postfix" stretchy="false" lspace="0" rspace="0">|</mo>',
}
_SIGN = re.compile("<m[ion][ >]")
_LONG = 20
"""Signs that fit beside each other on a phone."""
_MARKS = re.compile(r"[,.;:)]+")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\?.")
_REWRITTEN = (
    (re.compile(r"\\dots(?![a-z])"), r"\\ldots"),
    # The translator wants a style at the beginning of a group.
    (re.compile(r"\\textstyle\s*\\sum"), r"{\\textstyle\\sum}"),
    # TeX takes one digit, the translator the whole number: x^23 is x²3.
    (re.compile(r"(\\sqrt|[\^_])\s*([0-9])"), r"\1{\2}"),
)


def braced(formula: str) -> str:
    r"""The same formula, with braces where TeX can do without and the translator cannot.

    >>> print(braced(r"\frac12+\tfrac1{\frac34}+x^23"))
    \frac{1}{2}+\tfrac{1}{\frac{3}{4}}+x^{2}3
    """
    for pattern, replacement in _REWRITTEN:
        formula = pattern.sub(replacement, formula)
    return _fractions(formula)


def _fractions(formula: str) -> str:
    match = _FRACTION.search(formula)
    if not match:
        return formula
    above, rest = _argument(formula[match.end() :])
    below, rest = _argument(rest)
    return f"{formula[: match.end()]}{{{_fractions(above)}}}{{{_fractions(below)}}}{_fractions(rest)}"


def _argument(text: str) -> tuple[str, str]:
    """What TeX takes as a command's next argument, and what follows it."""
    text = text.lstrip()
    if not text.startswith("{"):
        token = _TOKEN.match(text)
        end = token.end() if token else 0
        return text[:end], text[end:]
    depth = 0
    for end, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[1:end], text[end + 1 :]
    return text[1:], ""


def _mathml(node: nodes.Element, block: bool) -> str:
    formula = _TAG.sub("", node.astext()).strip()
    try:
        made = str(tex2mathml(braced(formula), as_block=block))
    except MathError as error:
        _LOG.warning("this formula cannot be translated: %s (%s)", formula, error, location=node)
        return ""
    for bar, better in _BARS.items():
        made = made.replace(bar, better)
    return made


def _keep_together(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """A comma after a formula goes with it, or browsers would begin a line with the comma."""
    for formula in doctree.findall(nodes.math):
        following = formula.next_node(descend=False, siblings=True)
        if isinstance(following, nodes.Text) and following.parent is formula.parent:
            mark = _MARKS.match(following)
            if mark:
                formula["after"] = mark[0]
                following.parent.replace(following, nodes.Text(following[mark.end() :]))


def _inline(writer: Any, node: nodes.math) -> None:
    made = _mathml(node, block=False)
    # Browsers do not break formulas into lines; docs.css gives a long one a line of its own where the page is narrow.
    long = ' long" tabindex="0' if len(_SIGN.findall(made)) > _LONG else ""
    writer.body.append(f'<span class="math{long}">{made}{node.get("after", "")}</span>')
    raise nodes.SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:
    tag = _TAG.search(node.astext())
    number = f'<span class="eqno">({tag[1]})</span>' if tag else ""
    # A formula that is wider than a phone is scrolled, by the keyboard too.
    writer.body.append(f'<div class="math" tabindex="0">{_mathml(node, block=True)}{number}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer that conf.py names."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.connect("doctree-resolved", _keep_together)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
