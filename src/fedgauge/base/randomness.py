"""Randomness that is addressed, not streamed.

Every draw comes from a counter-based generator whose position is its address: (seed, purpose) is the key of Philox, and
(round, worker, copy) are the upper words of its counter, which leaves 2^64 blocks for each address. So the draws of a
worker in a round do not depend on what was drawn before, in which process, or whether the run was resumed.
"""

from __future__ import annotations

import numbers
from enum import IntEnum

import numpy as np

from fedgauge.base.errors import InputError


class Purpose(IntEnum):
    """The purpose of a draw; different purposes have independent draws."""

    NOISE = 1
    SAMPLING = 2
    PROBLEM = 3
    START = 4
    FALSIFY = 5
    PARTITION = 6
    MEASURE = 7
    SUBSET = 8
    TEXT = 9
    SHIFT = 10


def check_seed(seed: int) -> int:
    """Return ``seed`` as an int if it fits the generator's key."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**64:
        raise InputError(f"seed must be a whole number from 0 to 2^64 - 1, not {seed!r}.")
    return int(seed)


class Streams:
    """The draws of one seed and purpose, addressed by (round, worker, copy).

    >>> streams = Streams(seed=0, purpose=Purpose.NOISE)
    >>> first = streams.at(round=3, worker=7).standard_normal()
    >>> _ = streams.at(round=0, worker=0).standard_normal(1000)
    >>> first == streams.at(round=3, worker=7).standard_normal()
    True
    """

    def __init__(self, seed: int, purpose: Purpose) -> None:
        self._bits = np.random.Philox(key=np.array([check_seed(seed), purpose], dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def at(self, round: int = 0, worker: int = 0, copy: int = 0) -> np.random.Generator:
        """Return the generator, moved to an address; it is valid until the next call.

        Moving a generator takes a tenth of the time of making a new one.
        """
        self._state["state"]["counter"] = np.array([0, round, worker, copy], dtype=np.uint64)
        self._bits.state = self._state
        return self._generator
