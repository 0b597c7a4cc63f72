"""The paper's claims about its experiments, and what our results say about each of them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from fedgauge_wang2024.curve_claims import curve_claims
from fedgauge_wang2024.table1_claims import seconds_of, table1_claims
from fedgauge_wang2024.verdicts import Claim, Found, ResultCost, ResultData, verdict

_RATIO = 0.1
"""The relative error that is allowed between a ratio of rounds and the paper's."""


def _rounds(result: ResultData, **column: Any) -> dict[tuple[int, int], list[int]]:
    """Rounds of one column of Table 2, by number of workers and problem."""
    place = next(
        index
        for index, each in enumerate(result["columns"])
        if all(each[key] == value for key, value in column.items())
    )
    return {(cell["workers"], cell["problem"]): cell["rounds"][place] for cell in result["cells"]}


def _ratio(steps: int) -> Callable[[ResultData], Found | None]:
    def judge(result: ResultData) -> Found:
        one = _rounds(result, half="steps", local_steps=1, batch=1)
        many = _rounds(result, half="steps", local_steps=steps, batch=1)
        ratios = [median(one[key]) / median(many[key]) for key in one]
        order = all(abs(ratio / steps - 1) <= _RATIO for ratio in ratios)
        ours_text = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} problems"
        return Found(verdict(order), ours_text)

    return judge


def _product(result: ResultData) -> Found:
    """Rates with the same product take the same number of rounds, give or take one."""
    columns = [_rounds(result, half="rates", eta=each["eta"]) for each in result["columns"] if each["half"] == "rates"]
    apart = max(
        abs(a - b) for column in columns for key in column for a, b in zip(column[key], columns[0][key], strict=True)
    )
    low, high = (pick(r for cell in columns[0].values() for r in cell) for pick in (min, max))
    return Found(verdict(apart <= 1), f"at most {apart} round apart, of {low} to {high}")


def _mini_batch(result: ResultData) -> Found:
    """With equally many gradients per round, local steps take fewer rounds than mini-batches."""
    local, batch = (_rounds(result, half="steps", local_steps=steps, batch=size) for steps, size in ((5, 1), (1, 5)))
    ratios = [median(batch[key]) / median(local[key]) for key in local]
    return Found(verdict(min(ratios) > 1), f"mini-batches take {min(ratios):.2f} to {max(ratios):.2f} times the rounds")


def _table2_cost(result: ResultData) -> ResultCost:
    # A smaller scale has fewer problems, each of the paper's size.
    return ResultCost("paper", result["settings"]["seeds"], seconds_of(result["cells"]))


def _stays(result: ResultData) -> Found:
    near, far = result["panels"]
    ours_text = f"{near['gap']:.2g} of a drift of {near['drift']:.2g} at L_h = {near['L_h']:.2g}"
    ours_text += f"; {far['gap']:.2g} of {far['drift']:.2g} at {far['L_h']:.2g}"
    return Found(verdict(near["gap"] < near["drift"] / 10 < far["gap"]), ours_text)


def _adds(result: ResultData) -> Found:
    """At L_h = 0 nothing is left if all workers take part, and the fewer take part, the more is left."""
    least = min(line["L_h"] for line in result["lines"])
    left = {line["M"]: line["left"] for line in result["lines"] if line["L_h"] == least}
    everyone, *fewer = (left[M] for M in sorted(left, reverse=True))
    order = least == 0 and everyone < 1e-12 * min(fewer) and fewer == sorted(fewer)
    return Found(verdict(order), "; ".join(f"M = {M}: {left[M]:.2g}" for M in sorted(left, reverse=True)))


def _no_cost(result: ResultData) -> ResultCost:
    return ResultCost("exact", None, None)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Local models may drift far apart while their average stays near the centralised model, if L_h is small",
        "average stays",
        "Figure 1",
        "a sketch",
        "fig1",
        _stays,
        _no_cost,
    ),
    *table1_claims(),
    Claim(
        "Five local steps take a fifth of the rounds, L_h = 0",
        "I = 5: 1/5",
        "Table 2",
        "927 : 187",
        "table2",
        _ratio(5),
        _table2_cost,
    ),
    Claim(
        "Ten local steps take a tenth of the rounds, L_h = 0",
        "I = 10: 1/10",
        "Table 2",
        "927 : 95",
        "table2",
        _ratio(10),
        _table2_cost,
    ),
    Claim(
        "Only the product of eta and gamma matters, L_h = 0",
        "only eta·gamma",
        "Table 2",
        "86 ± 1.6 four times",
        "table2",
        _product,
        _table2_cost,
    ),
    Claim(
        "Five local steps beat mini-batches of five, L_h = 0",
        "beat batches",
        "Table 2",
        "187 against 927",
        "table2",
        _mini_batch,
        _table2_cost,
    ),
    *curve_claims(),
    Claim(
        "Partial participation adds an error that L_h cannot reduce (what is left of E‖∇f‖² at L_h = 0, of N = 10)",
        "adds an error",
        "Theorem 4.5",
        "a term without L_h",
        "sampling",
        _adds,
        _no_cost,
    ),
)
