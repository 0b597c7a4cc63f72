"""How pages mark what a bound is worth."""

from __future__ import annotations

STANDINGS = {
    "certified": ("✓", "Certified", "every condition holds and every constant is exact or safe"),
    "as printed": ("≈", "As printed only", "the printed conditions hold, but the printed formula had to be corrected"),
    "plug-in": ("≈", "Plug-in", "every condition holds, but a constant may be on the unsafe side"),
    "contradicted": ("✗", "Contradicted by the run", "the constants cannot be those of what was run"),
    "not certified": ("✗", "Not certified", "a condition fails, so the theorem does not apply"),
}
