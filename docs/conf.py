"""How the documentation is built: from the pages here, the docstrings and the command's help, without network."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]

project = "fedgauge"
author = "The fedgauge developers"
copyright = "The fedgauge developers, Apache-2.0"
release = version = installed_version("fedgauge")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "accessible",
    "beside",
    "cards",
    "commands",
    "formulas",
    "notebooks",
    "public_names",
]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = ["_build", "extensions"]
# Whatever the machine's time zone and language, the same pages.
html_last_updated_fmt = None
language = "en"
# Dashes only: the prime of x'Ax is no quotation mark.
smartquotes_action = "D"

# The pages are read on a plain git host too, so that they use little beyond what such hosts know.
myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Every reference must lead somewhere, except those that lead out of these pages: intersphinx would need the network.
nitpicky = True
_HOMES = (
    "algorithms\\.adaptive_pace|base\\.randomness|federation\\.(participation|protocols|shards)"
    "|simulation|theory|values\\.results"
)
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|numpy|np|npt|collections|pathlib|typing|nn)(\..*)?"),
    # Names of types, which Python resolves before Sphinx sees them, or cannot resolve at all.
    (
        r"py:class",
        r"Indices|Floats|Labels|Array|Tensors|Loss|Progress|Observer|Evaluator|Engine|Passes|Path|optional"
        r"|int \| tuple\[int",
    ),
    # Parts of values that are described where the values are.
    (r"py:class", rf"Shards|fedgauge_planning\..*|fedgauge\.({_HOMES}|measurement\.(lanczos|local|parts))(\..*)?"),
    (
        r"py:(data|mod|meth)",
        r"LENSES|SCHEMES|to_json|fedgauge\.(data\.schemes|federation\.kernels|theory\.search|base\.symbols)(\..*)?",
    ),
]

html_theme = "furo"
html_title = f"fedgauge {release}"
# The pages' own font for formulas is the one of the report and the explorer.
html_static_path = ["_static", "../src/fedgauge/show/web/fonts"]
html_css_files = ["docs.css", "ledger.css"]
html_copy_source = False
html_show_sphinx = False
# Formulas are MathML, which browsers set by themselves: no page asks anybody for a script.
html_math_renderer = "mathml"
