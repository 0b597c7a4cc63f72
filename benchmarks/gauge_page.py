"""The numbers and tables of docs/results/gauge.md, from what gauge.py and gauge_cifar.py finished.

    python benchmarks/gauge_page.py                       # the page's tables, from docs/results/gauge/numbers.json
    python benchmarks/gauge_page.py --out gauged          # take in what gauged/ and gauged/cifar10/ have first

Sets of federations that were gauged again take the place of the earlier ones, and the others stay. What a set says in
sum is computed from its predictions each time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.base.files import write_json
from gauge import summary

NUMBERS = Path(__file__).parents[1] / "docs" / "results" / "gauge" / "numbers.json"
CIFAR = "short, CIFAR-10"
TABLES = (("developed", "fresh"), ("short, developed", "short, fresh", CIFAR))
"""The sets that the columns of the page's tables are about."""
TAU = "Kendall's tau"


def taken_in(numbers: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The numbers with the finished sets of a directory in place of the same ones."""
    found = dict(numbers)
    if (out / "result.json").exists():
        found |= json.loads((out / "result.json").read_text())
    if (out / "cifar10" / "result.json").exists():
        found[CIFAR] = json.loads((out / "cifar10" / "result.json").read_text())
    return {name: {**part, "summary": summary(part["cells"])} for name, part in found.items()}


def lines(numbers: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """A table of some sets, one to a column."""
    columns = [_column(numbers[name]) for name in names]
    rows = [f"| {head} | {' | '.join(column[head] for column in columns)} |" for head in columns[0]]
    return [f"| | {' | '.join(names)} |", f"| {' | '.join(['---'] * (1 + len(names)))} |", *rows]


def _column(part: Mapping[str, Any]) -> dict[str, str]:
    found = summary(part["cells"])
    return {
        "predictions, of which without a number": f"{found['cells']}, {found['without a number']}",
        "median error of the slowdown": _percent(found["median error"]),
        "nine of ten within": _percent(found["nine of ten within"]),
        "largest error": _percent(found["largest error"]),
        TAU: f"{found[TAU]:.2f}",
        "intervals of 90% that hold the truth": f"{found['intervals that hold the truth']:.0%}",
        "steps in all, in runs": _runs(found["spent, in runs"]),
    }


def _runs(value: float) -> str:
    """Two digits.

    >>> _runs(0.96), _runs(3.0)
    ('0.96', '3.0')
    """
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _percent(value: float) -> str:
    """Two digits.

    >>> _percent(0.0476), _percent(0.1147)
    ('4.8%', '11%')
    """
    return f"{100 * value:.1f}%" if value < 0.0995 else f"{value:.0%}"


def main() -> None:
    """Take sets in, if there are any, and print the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory in which gauge.py keeps finished parts")
    parser.add_argument("--numbers", type=Path, default=NUMBERS, help="the file that they are taken into")
    options = parser.parse_args()
    numbers = json.loads(options.numbers.read_text())
    if options.out:
        if not (options.out / "result.json").exists():
            parser.error(f"there is no result.json in {options.out}; name the directory that gauge.py wrote")
        numbers = taken_in(numbers, options.out)
        write_json(options.numbers, numbers)
    print("\n\n".join("\n".join(lines(numbers, names)) for names in TABLES))


if __name__ == "__main__":
    main()
