"""What the allocator does with memory that is freed."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_KEPT = 128 << 20
_LARGEST = 32 << 20  # the most that glibc accepts


def keep_freed_memory() -> None:
    """Let this process keep up to 128 MiB that it frees, for what it allocates next, where the C library is glibc.

    By default glibc gives tensors of a few megabytes back to the system when a local step ends, and the next step waits
    for the same pages to be cleared again: a tenth to a fifth of a step of the paper's CNN. It concerns the whole
    process, so only processes that are fedgauge's own call it, never the one of a program that uses it as a library.
    """
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_option(_TRIM_THRESHOLD, _KEPT)
        set_option(_MMAP_THRESHOLD, _LARGEST)
