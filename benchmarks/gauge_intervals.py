"""How often the gauge's intervals of 90% hold the truth, on quadratics where the truth is known exactly.

    python benchmarks/gauge_intervals.py [--seeds 20]        # about two minutes

For a quadratic federation, ``fg.expect`` gives the expected loss after every round in closed form. The truth is the
number of steps in which the expected loss of a run with I local steps reaches that of the base run's end, over that of
the base run. The gauge sees one seed at a time and knows nothing of it. The federations differ in how far Hessians and
linear terms are spread, in noise and in their rate; none was used while the gauge was made, which was on digits.

On quadratics drift hardly slows a run down until it ends it: below the level that drift adds, the goal is out of reach.
There the truth is an efficiency of 0, and an answer holds it only if it gives no number.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from typing import Any

from fedgauge import GaugeOptions, QuadraticFederation, expect, fedavg, gauge, random_quadratics
from fedgauge.measurement.gauge.curves import crossing

LOCAL_STEPS = (4, 16, 64)
STEPS, LIMIT = 800, 6.0
FEDERATIONS: dict[str, tuple[dict[str, Any], float]] = {
    "Hessians spread by 0": ({"hessian_spread": 0.0, "linear_spread": 2.0, "sigma2": 0.05, "seed": 21}, 0.03),
    "Hessians spread by 0.3": ({"hessian_spread": 0.3, "linear_spread": 2.0, "sigma2": 0.05, "seed": 23}, 0.033),
    "Hessians spread by 0.4": ({"hessian_spread": 0.4, "linear_spread": 2.0, "sigma2": 1.0, "seed": 27}, 0.04),
    "Hessians spread by 0.6": ({"hessian_spread": 0.6, "linear_spread": 1.0, "sigma2": 0.01, "seed": 29}, 0.04),
    "Hessians spread by 0.8": ({"hessian_spread": 0.8, "linear_spread": 2.0, "sigma2": 0.02, "seed": 25}, 0.0275),
    "no noise": ({"hessian_spread": 0.8, "linear_spread": 1.0, "sigma2": 0.0, "seed": 26}, 0.0275),
}


def true_slowdown(federation: QuadraticFederation, gamma: float, local_steps: int) -> float:
    """The slowdown of the expected losses; infinite beyond twice the limit."""
    base = expect(federation, fedavg(gamma=gamma), local_steps=1, rounds=STEPS).loss
    rounds = math.ceil(2 * LIMIT * STEPS / local_steps)
    losses = expect(federation, fedavg(gamma=gamma), local_steps=local_steps, rounds=rounds).loss
    steps = crossing([local_steps * number for number in range(rounds + 1)], list(losses), base[-1])
    return steps / STEPS


def main() -> None:
    """Print, for every federation and I, the truth, the median of what the gauge says, and how often it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds of the gauge")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (spreads, gamma) in FEDERATIONS.items():
        federation = random_quadratics(8, 10, **spreads)
        truth = {steps: true_slowdown(federation, gamma, steps) for steps in LOCAL_STEPS}
        chosen = GaugeOptions(steps=STEPS, local_steps=LOCAL_STEPS)
        found = [gauge(federation, fedavg(gamma=gamma), options=chosen, seed=seed) for seed in range(options.seeds)]
        for steps in LOCAL_STEPS:
            seen = [each for result in found for each in result.efficiency if each.local_steps == steps]
            out_of_reach = truth[steps] >= LIMIT
            held = sum(
                each.value is None if out_of_reach else each.low <= 1 / truth[steps] <= each.high for each in seen
            )
            known = [1 / each.value for each in seen if each.value]
            middle = statistics.median(known) if known else None
            row = {"federation": name, "I": steps, "truth": None if out_of_reach else truth[steps], "median": middle}
            rows.append({**row, "held": held, "intervals": len(seen)})
            if not options.json:
                shown = "none" if middle is None else f"{middle:.2f}"
                print(f"{name:<24} I {steps:>3}  truth {truth[steps]:5.2f}  median {shown:>5}  {held}/{len(seen)}")
    result: dict[str, Any] = {"rows": rows}
    for kind in ("within reach", "out of reach"):
        chosen_rows = [row for row in rows if (row["truth"] is None) == (kind == "out of reach")]
        held, number = (sum(row[name] for row in chosen_rows) for name in ("held", "intervals"))
        result[kind] = held / max(number, 1)
        if not options.json:
            print(f"{kind}: {held} of {number} answers hold the truth, {held / max(number, 1):.0%}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
