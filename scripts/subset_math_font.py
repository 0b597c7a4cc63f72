"""Make the math font that pages bring along: STIX Two Math, reduced to what formulas use.

    npm pack @fontsource/stix-two-math && tar xzf fontsource-stix-two-math-*.tgz
    python scripts/subset_math_font.py package/files/stix-two-math-latin-400-normal.woff

It needs the packages fonttools and brotli; the committed font was made from version 5.3.0 of that package. The font's
table MATH stays, and with it the larger and the stretchy variants of each sign, without which a root does not reach
over a fraction. Its licence, the SIL Open Font License 1.1, is beside it, and has to stay there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools import subset

PLACE = Path(__file__).parents[1] / "src" / "fedgauge" / "show" / "web" / "fonts" / "math.woff2"
SIGNS = "¯·×÷‖†′…ℓℎℱℝ←→↦∀∂∃∇∈∉∏∑−∓∗∘√∝∞∣∥∧∨∩∪∫∼≈≔≠≡≤≥≪≫⊂⊆⊙⊤⊥⌈⌉⌊⌋⋅⋯⟨⟩ˆ˜ˉ\u0302\u0303\u0304\u0305"
LETTERS = [
    *range(0x20, 0x7F),  # Latin, digits and signs
    *range(0x391, 0x3CA),  # Greek
    *(0x3D1, 0x3D5, 0x3F1, 0x3F5),
    *range(0x1D434, 0x1D468),  # italic Latin, as which browsers draw a single letter
    *range(0x1D6E2, 0x1D71C),  # italic Greek
    *range(0x1D49C, 0x1D4B6),  # script capitals
]


def main(source: str) -> None:
    """Write the font.

    Args:
        source: the whole font.
    """
    options = subset.Options(flavor="woff2", layout_features=["ssty"], hinting=False, drop_tables=["GPOS", "GDEF"])
    options.name_IDs = [0, 1, 2, 5, 13, 14]
    font = subset.load_font(source, options)
    chosen = subset.Subsetter(options)
    chosen.populate(unicodes=[*LETTERS, *map(ord, SIGNS)])
    chosen.subset(font)
    subset.save_font(font, str(PLACE), options)
    print(f"{PLACE}: {PLACE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
