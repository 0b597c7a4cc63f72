"""The ledger: claim by claim, what the paper says, what we find, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.errors import InputError
from fedgauge.report.terminal import console
from fedgauge.reproduce.claims import CLAIMS, Claim, Effort, Found, Result

_ABOUT = """# Ledger: the paper's claims, one by one

    fedgauge reproduce ledger DIR

Made by this command from the JSON results in DIR, and from nothing else. *Reproduced* needs sizes within a factor of
two where the paper prints any, and an order that holds not by chance: a curve ends better than another by more than
their deviations over seeds together, a constant is below another with every seed, and one that grows with X never
falls in the mean and rises in all by more than the deviations of its ends. *In order but not in size* has the order
alone. With two seeds such a gap between curves comes about by chance in one comparison of nine, so that their verdicts
are weak.

Scale is that of `--scale`: `laptop` takes fewer rounds, seeds and examples, and VGG at an eighth of its width with
GroupNorm (all of it listed under [choices](#choices)), so that its verdicts speak of that setting. Time is that of all
runs together, one core each.
"""

_CHOICES = """## Choices

What the paper leaves open, chosen here, and what a laptop's scale changes:

- **Images** are divided by 255, without augmentation; a batch is drawn with replacement.
- **Local steps** of the curves: 1, 5, 10, 20, 40 for the MLP, 1, 5, 20, 80 for the CNN (the paper names the largest
  alone), 1, 5, 20 for VGG.
- **"Close to convergence"** in Table 1 is where f falls by less than 1% in ten rounds, or, at the laptop's scale, after
  10 rounds of training at the most; I = 10 while measuring, with the rates of the model's figure.
- **VGG** has no BatchNorm, under which F_i is no function of the model. At the laptop's scale it has GroupNorm and an
  eighth of the width: the plain one does not leave its first plateau within the rounds that there is time for.
- **Laptop**: the CNN has 16 filters, 200 examples a worker and 10 rounds (for Table 1: 10 workers, all taking
  part, 3 rounds measured); VGG 100 a worker and 20 rounds; two seeds each; tests on the first 1,000 and 500
  examples. The MLP on MNIST and all of Table 2 are whole at every scale but smoke.
- **VGG-16 on CIFAR-100**: at 100% ten workers hold ten of the hundred labels between them, and nearly all of them at
  50%, so that f itself is another with each X: whether L_g depends on X cannot be told there.
- **Close to convergence** is not reached by VGG and the CNN at the laptop's scale: 10 rounds end near the first loss.
- What there is no data for, and what was run at the scale `smoke` alone, is marked as not run.
"""


def read(directory: Path) -> dict[str, Result]:
    """The results in the directories of one that the claims speak of, by name."""
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name the one that 'fedgauge reproduce all' wrote.")
    results: dict[str, Result] = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        path = directory / name / "result.json"
        if not path.exists():
            continue
        try:
            results[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{path} is not a JSON result; make it again or move it away.") from None
    if not results:
        raise InputError(
            f"There is no result in {directory}; 'fedgauge reproduce all --out {directory}' makes them, each in a"
            " directory of its own."
        )
    return results


def rows(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """One row a claim."""
    made = []
    for claim in CLAIMS:
        try:
            found = claim.found(results)
            effort = claim.effort(results[claim.result]) if found.verdict != "not run" else Effort("–", None, None)
            if effort.scale == "smoke":  # which shows that a command works, and nothing of the claim
                found, effort = Found("not run", "–"), Effort("–", None, None)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"The result {claim.result} is not of this version, or damaged; make it again with"
                f" 'fedgauge reproduce {claim.result}'."
            ) from None
        made.append(
            {
                "claim": claim.text,
                "where": claim.where,
                "paper": claim.paper,
                "ours": found.ours,
                **effort._asdict(),
                "verdict": found.verdict,
                "command": command(claim, effort),
            }
        )
    return made


def command(claim: Claim, effort: Effort) -> str:
    """What makes the result again."""
    name = claim.result.partition("-")[0]
    scale = f"--scale {effort.scale}" if effort.scale in ("smoke", "laptop") else ""
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
    """The pictures of the results in a directory, by their paths from there."""
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
