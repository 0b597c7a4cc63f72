"""The ledger as a page: a grid of verdicts on one screen, and behind it every table and figure, each folded."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fedgauge_wang2024 import glance, printed_sizes
from fedgauge_wang2024.glance import SIGNS, Block, Line, Row, standing
from fedgauge_wang2024.results import PrintedSizes
from fedgauge_wang2024.studies import CURVES, STUDIES, title

_ABOUT = """
*Reproduced* requires sizes within a factor of two where the paper prints any, and an order that is not due to chance:
a curve is better than another by more than the sum of their deviations over seeds; a constant is below another with
every seed; and a constant that grows with X has a mean that never falls, and rises overall by more than the sum of the
deviations at both ends. *In order but not in size* means that only the order holds. With two seeds, chance alone
produces such a gap between curves in one comparison out of nine, so verdicts with two seeds are weak; with one seed
there is no deviation: a verdict is about single runs, and whether a constant stays the same is left to a result with
more seeds. Curves are compared over the seeds that all of them have; beside a claim stands the fewest behind it.

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

The scale is the value of `--effort` (what each changes is listed under choices), and a verdict is about that setting;
where there are results of several scales, the largest that has the claim decides. Time is the sum over the
runs of a panel, each on one core, or over the rows of Table 1, each on all cores (two here).
"""

_CHOICES = """
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

_CLASSES = dict(zip(SIGNS, ("reproduced", "in-order", "not-reproduced", "not-decided", "not-run"), strict=True))
"""The names under which the site's style sheet knows the verdicts."""
_TITLES = {
    "fig1": "Figure 1: two workers drift apart",
    "table2": "Table 2: rounds on quadratics with one Hessian",
    "sampling": "Theorem 4.5: partial participation",
}


class Kept(NamedTuple):
    """A result that lies beside the page.

    Attributes:
        place: its directory, as seen from the page.
        scale: at which it was made; empty where there is one only.
        picture: the file name of its picture; empty if it has none.
    """

    place: str
    scale: str
    picture: str


def page(
    made: Sequence[Row],
    kept: Mapping[str, Sequence[Kept]],
    remark: str = "",
    sizes: Sequence[PrintedSizes] = (),
) -> str:
    """The ledger as Markdown, with HTML where a plain git host shows it too.

    Args:
        made: its rows.
        kept: the results beside the page, by the name of the table or figure.
        remark: a paragraph about these results, from their notes.
        sizes: how the sizes that Table 1 prints agree with what is measured.
    """
    names = dict.fromkeys(row["result"] for row in made)
    anchors = {id(row): f"{name}-{number}" for name in names for number, row in enumerate(_of(made, name), 1)}
    parts = ["# Ledger of the paper's claims", f"{_grid(made, anchors)}", glance.summary(made)]
    parts += [
        "A sign is a claim: point at it for what the paper says and what we find, or follow it to the numbers, the"
        " reason and the picture. `fedgauge paper ledger DIR` makes this page from the JSON results in DIR, and from"
        " nothing else; reasons behind *because* and remarks about data are written by hand (`notes.json`).",
        "## Table by table, figure by figure",
    ]
    parts += [part for name in names for part in _exhibit(name, _of(made, name), kept.get(name, ()), anchors)]
    if sizes:
        parts += [
            "## The sizes that Table 1 prints",
            _symbols(printed_sizes.conclusion(sizes)),
            _sizes(sizes),
        ]
    parts += ["## What the verdicts mean", *_folded("Reproduced, in order, not reproduced, not decided", _ABOUT)]
    parts += ["## Choices", *_folded("What the paper leaves open, and what the smaller scales change", _CHOICES)]
    return "\n\n".join([*parts, *([remark] if remark else [])]) + "\n"


def _sizes(sizes: Sequence[PrintedSizes]) -> str:
    heads = [_symbols(head) for head in printed_sizes.HEADS]
    rows = [heads, ["---"] * len(heads), *printed_sizes.lines(sizes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _of(made: Sequence[Row], result: str) -> list[Row]:
    return [row for row in made if row["result"] == result]


def _folded(summary: str, text: str, name: str = "") -> list[str]:
    where = f' id="{name}"' if name else ""
    return [f"<details{where}>\n<summary>{summary}</summary>", text.strip(), "</details>"]


# -- the grid ----------------------------------------------------------------------------------------------------------


def _grid(made: Sequence[Row], anchors: Mapping[int, str]) -> str:
    """One table for each block; without an empty line, at which Markdown would end the HTML."""
    key = " ".join(
        f"<span>{_sign(name)} {number} {glance.BRIEF.get(name, name)}</span>"
        for name, number in glance.counted(made).items()
    )
    lines = ['<div class="ledger">', f'<p class="key">{key}</p>']
    for block in glance.blocks(made):
        lines += [*_block(block, anchors)]
    return "\n".join([*lines, "</div>"])


def _block(block: Block, anchors: Mapping[int, str]) -> Iterator[str]:
    said = f"<b>{block.title}.</b> The paper: {_symbols(block.statement)}."
    if len(block.rows) == 1:
        (row,) = block.rows
        yield f"<p>{_sign(row['verdict'], row, anchors[id(row)])} {said} Here: {row['verdict']}.</p>"
        return
    yield f"<table><caption>{said} Here: {glance.tally(block.rows)}.</caption>"
    heads = "".join(f"<th>{_symbols(head)}</th>" for head in block.heads)
    yield f"<tr><th></th>{heads}</tr>"
    for line in block.lines:
        yield f"<tr><th>{_label(block, line)}</th>"
        yield from (f"<td>{_sign(row['verdict'], row, anchors[id(row)])}</td>" for row in line.rows)
        yield "</tr>"
    yield "</table>"


def _label(block: Block, line: Line) -> str:
    """The name of a line; a phone leaves out the data, and the block's title needs no repeating."""
    model, *others = line.about.split(", ")
    data = "".join(f"<i>, {each}</i>" for each in others[:1])
    percent = "".join(f", {each}" for each in others[1:])
    number = line.where.replace("Figures", "Fig.").replace("Figure", "Fig.")
    where = f"<small>{number}</small> " if line.where != block.title else ""
    return f"{where}{model}{data}{percent}"


def _sign(verdict: str, row: Row | None = None, anchor: str = "") -> str:
    """The sign of a verdict; that of a claim leads to it."""
    name, sign = _CLASSES[standing(verdict)], SIGNS[standing(verdict)]
    if row is None:
        return f'<b class="{name}">{sign}</b>'
    label, told = (html.escape(text, quote=True) for text in (f"{row['short']}: {standing(verdict)}", _told(row)))
    return f'<a class="{name}" href="#{anchor}" aria-label="{label}" title="{told}">{sign}</a>'


def _told(row: Row) -> str:
    """What a visitor is told who points at a claim."""
    told = ", ".join(filter(None, (row["verdict"], row["reason"])))
    return f"{row['claim']} ({row['where']}). Paper: {row['paper']}. Ours: {row['ours']}. {told[0].upper()}{told[1:]}."


def _symbols(text: str) -> str:
    """Text with the paper's symbols, as HTML.

    >>> _symbols("L_h < L_tilde")
    'L<sub>h</sub> &lt; L̃'
    """
    return re.sub(r"L_([gh])", r"L<sub>\1</sub>", html.escape(text).replace("L_tilde", "L̃"))


# -- behind it ---------------------------------------------------------------------------------------------------------


def _exhibit(name: str, rows: Sequence[Row], kept: Sequence[Kept], anchors: Mapping[int, str]) -> list[str]:
    """A table or figure, folded: its pictures, each of which leads to its numbers, and its claims."""
    signs = "".join(_sign(row["verdict"]) for row in rows)
    scales = {row["scale"] for row in rows}
    deciding = [each for each in kept if len(kept) == 1 or each.scale in scales]
    text = []
    for each in deciding:
        where = ", ".join(filter(None, (_title(name), each.scale)))
        inside = f"![{where}]({each.place}/{each.picture})" if each.picture else f"{where}: numbers"
        text.append(f"[{inside}]({each.place}/result.json)")
    if others := [f"[{each.scale}]({each.place}/result.json)" for each in kept if each not in deciding]:
        text.append(f"Also kept, and decides nothing: {', '.join(others)}.")
    commands = dict.fromkeys(row["command"] for row in rows)
    text += ["\n".join(f"    {command}" for command in commands)]
    text += ["\n".join(_claim(row, anchors[id(row)]) for row in rows)]
    return _folded(f'<span class="ledger">{signs}</span> {_title(name)}', "\n\n".join(text), name)


def _title(name: str) -> str:
    """What a result shows.

    >>> _title("table1-cnn")
    'Table 1: CNN, CIFAR-10'
    """
    if name in CURVES:
        return f"Figure {name.removeprefix('fig')}: {title(name)}"
    return _TITLES.get(name) or f"Table 1: {STUDIES[name.partition('-')[2] or 'mlp'].title}"


def _claim(row: Row, anchor: str) -> str:
    seeds = "" if row["seeds"] is None else f", {row['seeds']} seed{'s' * (row['seeds'] != 1)}"
    time = "" if row["seconds"] is None else f", {_time(row['seconds'])}"
    how = "" if row["verdict"] == "not run" else f" ({row['scale']}{seeds}{time})"
    lines = [
        f'- <a id="{anchor}"></a>{SIGNS[standing(row["verdict"])]} **{row["claim"]}** ({row["where"]})',
        f"  - paper: {row['paper']}",
        f"  - ours: {row['ours']}",
        f"  - {row['verdict']}{how}{', ' * bool(row['reason'])}{row['reason']}",
    ]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
