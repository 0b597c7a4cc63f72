"""Which numbers of local steps are measured, where the user names none."""

from __future__ import annotations

from collections.abc import Collection, Mapping

FIRST, FACTOR, MOST = 16, 4, 1024
"""The number of local steps that is measured first, the factor to the next, and the largest."""
ENOUGH = 4
"""How many numbers show the whole curve, because it only falls."""
_NEARLY_ALL, _STILL_PAYS = 0.95, 0.4
"""Smaller numbers of local steps are measured below the first efficiency, and larger ones above the second."""


def next_number(found: Mapping[int, float], unpaid: Collection[int] = (), threshold: float = 0.8) -> int | None:
    """The number of local steps to measure next; None if those that were measured are enough.

    Larger numbers are measured while local steps still pay, and smaller ones if the threshold lies below.

    Args:
        found: the efficiency of each number that was measured; 0 where there is none.
        unpaid: numbers for which the budget does not pay.
        threshold: the efficiency that affordable local steps have at least.

    >>> next_number({}), next_number({16: 0.9}), next_number({16: 0.3}), next_number({16: 0.9}, unpaid={64})
    (16, 64, 4, 4)
    """
    if not found:
        return None if FIRST in unpaid else FIRST
    if len(found) >= ENOUGH:
        return None
    least, most = min(found), max(found)
    further = []
    if found[most] >= _STILL_PAYS and most * FACTOR <= MOST:
        further.append(most * FACTOR)
    if found[least] < max(threshold, _NEARLY_ALL) and least > 2:
        # Where even the least loses too much, the answer lies below it, and the budget goes there first.
        further.insert(0 if found[least] < threshold else len(further), max(least // FACTOR, 2))
    return next((each for each in further if each not in unpaid), None)
