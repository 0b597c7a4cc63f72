"""The order of the blocks of a run that tries several numbers of local steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def balanced(candidates: Sequence[int], turn: int = 0) -> Iterator[int]:
    """The candidates block by block, without an end, so that none profits from a trend of the loss.

    Each candidate appears once on the way through a rotation of the candidates and once on the way back, and the next
    rotation begins where others did not.

    Args:
        candidates: the numbers of local steps.
        turn: the rotation with which to begin.

    >>> from itertools import islice
    >>> list(islice(balanced((1, 16, 64)), 12))
    [1, 16, 64, 64, 16, 1, 16, 64, 1, 1, 64, 16]
    """
    while True:
        first = turn % len(candidates)
        rotated = [*candidates[first:], *candidates[:first]]
        yield from rotated
        yield from reversed(rotated)
        turn += 1


ROUNDS = 2
"""A block has at least this many rounds of the largest number, so that drift can settle."""


def block_steps(length: float, candidates: Sequence[int], cost: float | None = None) -> list[int]:
    """The local steps of a block of each candidate, in whole rounds.

    Where the cost of a round is known, blocks take equally long, so that the dear ones do not take most of the time.

    Args:
        length: the steps of a block of the largest candidate.
        candidates: the numbers of local steps, growing.
        cost: of a round, in local steps.

    >>> block_steps(128, (1, 16, 64)), block_steps(128, (1, 16, 64), cost=100)
    ([128, 128, 128], [3, 48, 128])
    """
    largest, blocks = candidates[-1], []
    for steps in candidates:
        share = 1.0 if cost is None else (1 + cost / largest) / (1 + cost / steps)
        blocks.append(max(round(length * share / steps), 1) * steps)
    return blocks


def least_block(candidates: Sequence[int], cost: float | None = None, records: int = 0) -> float:
    """The steps of the shortest block of the largest candidate with which a cycle has so many rounds.

    >>> least_block((16, 64)), least_block((16, 64), 100, records=12)
    (128.0, 160.0)
    """
    length = float(ROUNDS * candidates[-1])
    while (
        2 * sum(n // steps for n, steps in zip(block_steps(length, candidates, cost), candidates, strict=True))
        < records
    ):
        length += candidates[-1] / 2
    return length


def least_steps(candidates: Sequence[int], explore: float, cost: float | None = None) -> float:
    """The steps of a run that can try these numbers, each twice.

    >>> least_steps((1, 16), 0.5)
    256.0
    """
    cycle = 2 * sum(block_steps(least_block(candidates, cost), candidates, cost))
    return cycle / explore if explore > 0 else math.inf
