"""Plans against the folk rule, the adaptive tau rule and exhaustive search."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plans.federations import CASES, COSTS, make_parts
from plans.truth import Truth


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--only", nargs="*")
    p.add_argument("--jobs", type=int)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    if a.data:
        make_parts(a.data, a.out)
    for name, case in CASES.items():
        if a.only and name not in a.only:
            continue
        began = time.time()
        truth = Truth(case, a.out)
        truth.run(truth.candidates, a.jobs)
        for cname, cost in COSTS.items():
            cost = cost.completed(truth.federation)
            times = {c.name: truth.time(truth.curves(c, cost)) for c in truth.candidates}
            best = sorted(times.items(), key=lambda kv: kv[1])[:4]
            print(
                name,
                cname,
                f"{time.time() - began:.0f}s",
                [(n, round(t, 2)) for n, t in best],
                sum(t < 1e300 for t in times.values()),
                flush=True,
            )


if __name__ == "__main__":
    main()
