"""The ledger: claim by claim, what the paper says, what we find, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.errors import InputError
from fedgauge.report.terminal import console
from fedgauge.reproduce.claims import CLAIMS, Claim, Found, ResultCost, ResultData

_ABOUT = """# Ledger: the paper's claims, one by one

    fedgauge reproduce ledger DIR

This command makes the page from the JSON results in DIR, and from nothing else. *Reproduced* requires sizes within a
factor of two where the paper prints any, and an order that is not due to chance: a curve ends better than another by
more than the sum of their deviations over seeds; a constant is below another with every seed; and a constant that grows
with X has a mean that never falls, and rises overall by more than the sum of the deviations at both ends. *In order but
not in size* means that only the order holds. With two seeds, chance alone produces such a gap between curves in one
comparison out of nine, so verdicts with two seeds are weak.

Scale is the value of `--scale`: `laptop` takes fewer rounds, seeds and examples, and VGG at an eighth of its width with
GroupNorm (all listed under [choices](#choices)), so its verdicts are about that setting. Time is the sum over all
runs, one core each.
"""

_CHOICES = """## Choices

What the paper leaves open and is chosen here, and what the laptop scale changes:

- **Images** are divided by 255, without augmentation; a batch is drawn with replacement.
- **Local steps** of the curves: 1, 5, 10, 20, 40 for the MLP, 1, 5, 20, 80 for the CNN (the paper names only the
  largest), 1, 5, 20 for VGG.
- **"Close to convergence"** in Table 1 is where f falls by less than 1% in ten rounds, or, at the laptop scale, after
  at most 10 rounds of training; I = 10 while measuring, with the rates of the model's figure.
- **VGG** has no BatchNorm, because with it F_i is not a function of the model. At the laptop scale it has GroupNorm and
  an eighth of the width: plain VGG does not leave its first plateau in the available rounds.
- **Laptop**: the CNN has 16 filters, 200 examples per worker and 10 rounds (for Table 1: 10 workers, all taking
  part, 3 rounds measured); VGG has 100 examples per worker and 20 rounds; two seeds each; tests use the first 1,000
  and 500 examples. The MLP on MNIST and all of Table 2 have the paper's size at every scale except smoke.
- **VGG-16 on CIFAR-100**: at 100% the ten workers together hold ten of the hundred labels, and at 50% nearly all of
  them, so f itself changes with X, and whether L_g depends on X cannot be decided there.
- **Close to convergence** is not reached by VGG and the CNN at the laptop scale: after 10 rounds the loss is
  near the first one.
- Claims without data, and those that were only run at the scale `smoke`, are marked as not run.
"""


def read(directory: Path) -> dict[str, ResultData]:
    """The results that the claims are about, by name, each in a directory of its own in ``directory``."""
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name the one that 'fedgauge reproduce all' wrote.")
    results: dict[str, ResultData] = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        path = directory / name / "result.json"
        if not path.exists():
            continue
        try:
            results[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{path} is not a JSON result; run its command again, or move the file away.") from None
    if not results:
        raise InputError(
            f"There is no result in {directory}; 'fedgauge reproduce all --out {directory}' writes them, each to a"
            " directory of its own."
        )
    return results


def rows(results: Mapping[str, ResultData]) -> list[dict[str, Any]]:
    """One row per claim."""
    made = []
    for claim in CLAIMS:
        try:
            found = claim.found(results)
            cost = claim.cost(results[claim.result]) if found.verdict != "not run" else ResultCost("–", None, None)
            if cost.scale == "smoke":  # which shows that a command works, and says nothing about the claim
                found, cost = Found("not run", "–"), ResultCost("–", None, None)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"The result {claim.result} is damaged, or another version wrote it; write it again with"
                f" 'fedgauge reproduce {claim.result}'."
            ) from None
        made.append(
            {
                "claim": claim.text,
                "where": claim.where,
                "paper": claim.paper,
                "ours": found.ours,
                **cost._asdict(),
                "verdict": found.verdict,
                "command": command(claim, cost),
            }
        )
    return made


def command(claim: Claim, cost: ResultCost) -> str:
    """The command that computes the result again."""
    name = claim.result.partition("-")[0]
    scale = f"--scale {cost.scale}" if cost.scale in ("smoke", "laptop") else ""
    return " ".join(part for part in ("fedgauge reproduce", name, claim.options, scale) if part)


def counts(made: list[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict."""
    return dict(Counter(row["verdict"] for row in made))


def page(made: list[dict[str, Any]], pictures: Mapping[str, str] | None = None) -> str:
    """The ledger as Markdown.

    Args:
        made: its rows.
        pictures: titles of pictures by their paths, as seen from the page.
    """
    head = ("claim", "in", "paper", "ours", "scale", "seeds", "time", "verdict", "command")
    lines = [_ABOUT, ", ".join(f"**{number}** {verdict}" for verdict, number in counts(made).items()) + ".", ""]
    lines += ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for row in made:
        seeds = "–" if row["seeds"] is None else str(row["seeds"])
        verdict = row["verdict"] if row["verdict"] in ("reproduced", "not run") else f"**{row['verdict']}**"
        cells = (row["claim"], row["where"], row["paper"], row["ours"], row["scale"], seeds, _time(row["seconds"]))
        lines.append("| " + " | ".join((*cells, verdict, f"`{row['command']}`")) + " |")
    lines += ["", _CHOICES]
    if pictures:
        lines += ["## Pictures", ""]
        for path, title in pictures.items():
            lines += [f"![{title}]({path})", ""]
    return "\n".join(lines).rstrip() + "\n"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def pictures_in(directory: Path) -> dict[str, str]:
    """The pictures of the results in a directory: their names by path, seen from there."""
    found = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        path = directory / name / f"{name.partition('-')[0]}.png"
        if path.exists():
            found[f"{name}/{path.name}"] = name
    return found


def show(made: list[dict[str, Any]]) -> None:
    """Print the ledger."""
    cells = [(row["where"], row["claim"], row["paper"], row["ours"], row["verdict"]) for row in made]
    caption = ", ".join(f"{number} {verdict}" for verdict, number in counts(made).items())
    console.table("The paper's claims", ("in", "claim", "paper", "ours", "verdict"), cells, caption)
