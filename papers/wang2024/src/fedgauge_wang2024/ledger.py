"""The ledger: claim by claim, what the paper says, what we find, and the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgauge.base.errors import InputError
from fedgauge.show import console
from fedgauge_wang2024 import glance
from fedgauge_wang2024.claims import CLAIMS
from fedgauge_wang2024.notes import Notes, read_notes
from fedgauge_wang2024.studies import SCALES
from fedgauge_wang2024.verdicts import Claim, ResultCost, ResultData

_TITLE = """# Ledger: the paper's claims, one by one

    fedgauge paper ledger DIR

This command makes the page from the JSON results in DIR, and from nothing else; reasons behind "because" and remarks
about data are written by hand (`notes.json`).
"""

_ABOUT = """## What the verdicts mean

*Reproduced* requires sizes within a factor of two where the paper prints any, and an order that is not due to chance:
a curve is better than another by more than the sum of their deviations over seeds; a constant is below another with
every seed; and a constant that grows with X has a mean that never falls, and rises overall by more than the sum of the
deviations at both ends. *In order but not in size* means that only the order holds. With two seeds, chance alone
produces such a gap between curves in one comparison out of nine, so verdicts with two seeds are weak; with one seed
there is no deviation: a verdict is about single runs, and whether a constant stays the same is left to a result with
more seeds. Curves are compared over the seeds that all of them have; the column *seeds* has the fewest behind a claim.

*Converges faster* means: after a quarter, half and all of the rounds, a curve with more local steps is never worse
than the one with the next fewer, and better at least once. Curves that have met at a plateau, at the beginning or at
the end, do not count against it.

*Not decided* means that nothing was learned, so that the numbers say nothing about the claim: one local step (or, for
Table 1, a model at which the constants were measured) has a training loss that is not a tenth below that of the best
constant guess, which is log 10 = 2.30 for ten labels that are equally many. To have fallen by a tenth of the first loss
would be a weaker rule: VGG at the laptop scale meets it, because it begins above a constant guess. The rule
was chosen after the laptop results had been seen, and before any of the scale workstation. Where the models of Table 1
learned at three of the four X, these three decide and the fourth is left out, which is said beside the numbers; that
was added when two of the workstation's rows had been measured, both of trained models. One or two rows can refute a
claim about every X and not confirm it.

Scale is the value of `--effort` (what each changes is listed under [choices](#choices)), and a verdict is about that
setting; where there are results of several scales, the largest that has the claim decides. Time is the sum over the
runs of a panel, each on one core, or over the rows of Table 1, each on all cores (two here).
"""

_CHOICES = """## Choices

What the paper leaves open and is chosen here, and what the smaller scales change:

- **Images** of MNIST are divided by 255. Those of CIFAR and CINIC are also centred and divided by their published
  deviations. There is no augmentation; a batch is drawn with replacement.
- **First models**: VGG's convolutions are drawn as He et al. draw them (by outputs, biases 0), everything else as
  torch draws it. With torch's own draws VGG stays on its first plateau at the paper's rates; the CNN trains with
  them.
- **Local steps** of the curves: 1, 5, 10, 20, 40 for the MLP, 1, 5, 20, 80 for the CNN (the paper names only the
  largest), 1, 5, 20 for VGG.
- **"Close to convergence"** in Table 1 is where f, having fallen by a tenth, falls by less than 1% in ten rounds, or,
  at the laptop scale, after at most 10 rounds of training. At the workstation scale it is after the same number of
  rounds at every X: 100 for VGG-11, 200 for the others. There the rule was used at first, but the loss of a sample now
  and then stands still by chance: training ended after 40 rounds for VGG-11 at 75%, after 100 for the CNN at 100%, and
  after 170 and 180 for VGG-16 at 50% and 75%. These rows had been seen when the rule was given up, and were measured
  again. I = 10, with the rates and the participation of the model's figure. All workers take part while constants are
  measured.
- **VGG** has no BatchNorm, because with it F_i is not a function of the model. GroupNorm is an option, which only the
  laptop scale uses.
- **Workstation**: all of CIFAR-10; N, M, batch sizes and rates as printed; as many rounds as one local step is
  expected to need to train: 200 for the CNN, 250 for VGG-11, 1,200 for VGG-16. The CNN is whole, VGG-11 has half of
  its width and VGG-16 an eighth, without GroupNorm. Every tenth round (VGG-16: fiftieth) is recorded: the loss of a
  fixed sample of 2,000 to 2,400 training images (24 or 200 per worker; the same for all curves of a seed) and the
  accuracy on the first 2,000 test images. Constants are measured over three rounds, exactly, with all examples (VGG-11:
  every fifth of each worker's); the CNN has 10 workers there, all taking part: in a pilot of 20 rounds at 100%, ten
  workers drawn from a hundred did not lower the loss.
- **Pilots**: scaling, first models, widths and rounds of the workstation scale were chosen by looking at the training
  loss of plain SGD and of I = 1, a few variants each with one or two seeds. No curve of this scale with more local
  steps was looked at; Table 1's pilot has I = 10.
- **Laptop**: the CNN has 16 filters, 200 examples per worker and 10 rounds (for Table 1: 10 workers, all taking part,
  3 rounds measured); VGG has an eighth of its width with GroupNorm, 100 examples per worker and 20 rounds; two seeds
  each; tests use the first 1,000 and 500 examples. The MLP on MNIST and all of Table 2 have the paper's size at every
  scale except smoke.
- **VGG-16 on CIFAR-100**: ten workers share a hundred labels, and a worker's part of the data is ten times what there
  is of one label. So from the workstation scale on each worker has ten labels of its own. At the laptop scale it has
  one, and few examples: at 100% the ten workers together hold ten of the hundred labels, and at 50% nearly all of
  them, so f itself changes with X, and whether L_g depends on X cannot be decided there.
- Claims without data, and those that were only run at the scale `smoke`, are marked as not run.
"""


def places(name: str) -> tuple[str, ...]:
    """The directories in which a result may lie: one of its own name, and one for each scale.

    >>> places("fig2")[:2]
    ('fig2', 'fig2-smoke')
    """
    return name, *(f"{name}-{scale}" for scale in SCALES)


def read(directory: Path) -> dict[str, list[ResultData]]:
    """The results that the claims are about, by name, those of the largest scale first."""
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory}; name the one that 'fedgauge paper all' wrote.")
    results: dict[str, list[ResultData]] = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        found = [_load(path) for place in places(name) if (path := directory / place / "result.json").exists()]
        if found:
            results[name] = sorted(found, key=_size, reverse=True)
    if not results:
        raise InputError(
            f"There is no result in {directory}; 'fedgauge paper all --out {directory}' writes them, each to a"
            " directory of its own."
        )
    return results


def _load(path: Path) -> ResultData:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError
    except (OSError, ValueError):
        raise InputError(f"{path} is not a JSON result; run its command again, or move the file away.") from None
    return found


def _size(result: ResultData) -> int:
    """How large the scale of a result is; results without a scale are alone."""
    settings = result.get("settings")
    scale = result.get("scale", settings.get("scale") if isinstance(settings, dict) else None)
    return SCALES.index(scale) if scale in SCALES else len(SCALES)


def rows(results: Mapping[str, Sequence[ResultData]], notes: Notes | None = None) -> list[dict[str, Any]]:
    """One row per claim."""
    notes = notes or Notes()
    made = []
    for claim in CLAIMS:
        try:
            found, cost = claim.judged(results)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"The result {claim.result} is damaged, or another version wrote it; write it again with"
                f" 'fedgauge paper {claim.result}'."
            ) from None
        remark = notes.remark(claim.text) if found.verdict != "not run" else ""
        made.append(
            {
                "claim": claim.text,
                "where": claim.where,
                "paper": claim.paper,
                "ours": f"{found.ours} ({remark})" if remark else found.ours,
                **cost._asdict(),
                "verdict": found.verdict,
                "command": command(claim, cost),
                "reason": notes.reason(claim.text, cost.scale, found.verdict),
            }
        )
    return made


def notes_in(directory: Path) -> Notes:
    """What was written down by hand beside the results in a directory."""
    return read_notes(directory, [claim.text for claim in CLAIMS])


def command(claim: Claim, cost: ResultCost) -> str:
    """The command that computes the result again."""
    name = claim.result.partition("-")[0]
    # Table 2 has one size.
    scale = f"--effort {cost.scale}" if cost.scale in SCALES and name != "table2" else ""
    return " ".join(part for part in ("fedgauge paper", name, claim.options, scale) if part)


def counts(made: list[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict."""
    return dict(Counter(row["verdict"] for row in made))


def page(made: list[dict[str, Any]], pictures: Mapping[str, str] | None = None, remark: str = "") -> str:
    """The ledger as Markdown.

    Args:
        made: its rows.
        pictures: titles of pictures by their paths, as seen from the page.
        remark: a paragraph about these results, from their notes.
    """
    head = ("claim", "in", "paper", "ours", "scale", "seeds", "time", "verdict", "command")
    counted = ", ".join(f"**{number}** {verdict}" for verdict, number in counts(made).items())
    lines = [_TITLE, f"{counted}. {glance.summary(made)}", "", *_head(glance.HEAD)]
    lines += ["| " + " | ".join(line.cells) + " |" for line in glance.lines(made)]
    lines += ["", _ABOUT, *([remark, ""] if remark else []), "## Claims", "", *_head(head)]
    for row in made:
        seeds = "–" if row["seeds"] is None else str(row["seeds"])
        verdict = row["verdict"] if row["verdict"] in ("reproduced", "not run") else f"**{row['verdict']}**"
        verdict += f", {row['reason']}" if row["reason"] else ""
        cells = (row["claim"], row["where"], row["paper"], row["ours"], row["scale"], seeds, _time(row["seconds"]))
        lines.append("| " + " | ".join((*cells, verdict, f"`{row['command']}`")) + " |")
    lines += ["", _CHOICES]
    if pictures:
        lines += ["## Pictures", ""]
        for path, title in pictures.items():
            lines += [f"![{title}]({path})", ""]
    return "\n".join(lines).rstrip() + "\n"


def _head(names: Sequence[str]) -> tuple[str, str]:
    return "| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def pictures_in(directory: Path) -> dict[str, str]:
    """The pictures of the results in a directory: their names by path, seen from there."""
    found = {}
    for name in dict.fromkeys(claim.result for claim in CLAIMS):
        for place in places(name):
            path = directory / place / f"{name.partition('-')[0]}.png"
            if path.exists():
                found[f"{place}/{path.name}"] = place
    return found


def show(made: list[dict[str, Any]]) -> None:
    """Print the ledger."""
    cells = [
        (
            row["where"],
            row["claim"],
            row["paper"],
            row["ours"],
            ", ".join(filter(None, (row["verdict"], row["reason"]))),
        )
        for row in made
    ]
    console.table("The paper's claims", ("in", "claim", "paper", "ours", "verdict"), cells)
    caption = ", ".join(f"{number} {verdict}" for verdict, number in counts(made).items())
    lines = [(", ".join(filter(None, (line.where, line.about))), *line.counts) for line in glance.lines(made)]
    heads = ("in", *(name.replace(" ", "\n") for name in glance.COUNTS))  # no wider than a word
    console.table("At a glance", heads, lines, f"{caption}. {glance.summary(made)}", padding=0)
