"""A million points of a bound in one call, compared with bare numpy arithmetic of the same formula.

    python benchmarks/theory.py [--turns 9] [--json]

The bound is ``nonconvex`` (Theorem 4.3, corrected), for 1,000 numbers I of local steps and 1,000 rates gamma: every
term, condition and limit, then the total and whether it is certified. The bare arithmetic adds the five terms and
compares the three limits; it checks and keeps nothing. They take turns, so that a busy moment of the machine affects
all; the median counts. ``star``, whose sums over local steps are recursions, is timed too, for I up to 64.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from fedgauge.theory import evaluate

STEPS = np.arange(1.0, 1001.0)[:, None]
RATES = np.geomspace(1e-6, 1e-1, 1000)[None, :]
VALUES: dict[str, Any] = {"F": 1.0, "R": 500.0, "N": 10.0, "sigma2": 1.0, "zeta2": 4.0, "L_g": 1.0, "L_h": 0.1}


def ours() -> float:
    """The package's bound at every point."""
    bound = evaluate("nonconvex", version="corrected", I=STEPS, gamma=RATES, **VALUES)
    return float(np.where(bound.certified, bound.total, np.inf).min())


def star() -> float:
    """The sharper bound for as many points, with 1 to 64 local steps."""
    bound = evaluate("nonconvex", version="star", I=np.ceil(STEPS * 64 / STEPS.size), gamma=RATES, **VALUES)
    return float(np.where(bound.certified, bound.total, np.inf).min())


def bare() -> float:
    """The same formula, written out for a single use."""
    F, R, N, s2, z2, Lg, Lh = (VALUES[name] for name in ("F", "R", "N", "sigma2", "zeta2", "L_g", "L_h"))
    I, g, J = STEPS, RATES, STEPS - 1  # noqa: E741
    total = 4 * F / (g * I * R) + 4 * g * Lg * s2 / N + 20 * g**2 * Lg**2 * J * s2 / N
    total = total + 24 * g**2 * Lh**2 * J * s2 + 72 * g**2 * Lh**2 * J**2 * z2
    fine = (g <= 1 / (2 * I * Lg)) & (g <= 1 / (2 * 30**0.5 * I * Lg)) & (g <= 1 / ((6 * (Lh**2 + Lg**2)) ** 0.5 * I))
    return float(np.where(fine, total, np.inf).min())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    assert abs(ours() / bare() - 1) < 1e-12, "the two disagree"
    seconds: dict[str, list[float]] = {"fedgauge": [], "numpy": [], "star": []}
    for _ in range(options.turns):
        for name, run in (("fedgauge", ours), ("numpy", bare), ("star", star)):
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    points = STEPS.size * RATES.size
    median = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "points": points,
        "turns": options.turns,
        "seconds": median["fedgauge"],
        "slowest": max(seconds["fedgauge"]),
        "points_per_second": points / median["fedgauge"],
        "numpy_seconds": median["numpy"],
        "fedgauge_time_over_numpy": median["fedgauge"] / median["numpy"],
        "star_seconds": median["star"],
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{points:,} points of nonconvex in one call, median of {options.turns}")
    print(f"fedgauge     {result['seconds']:8.4f} s {result['points_per_second']:14,.0f} points/s")
    print(f"bare numpy   {result['numpy_seconds']:8.4f} s   ratio {result['fedgauge_time_over_numpy']:.2f}")
    print(f"star, I <= 64 {result['star_seconds']:7.4f} s")


if __name__ == "__main__":
    main()
