"""The order of the blocks of a run that tries several numbers of local steps."""

from __future__ import annotations

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
