"""Give memory that was freed back to the operating system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library than glibc: it decides for itself
        return None
    return trim


_trim = _find_trim()


def release_freed() -> None:
    """Freed host buffers are the operating system's again, as far as the C library can tell.

    glibc keeps blocks below a threshold that grows with the blocks a program frees, up to 32 MiB: a whole gradient copy
    of buckets that a new plan no longer needs would stay with the process in addition to the new ones.
    """
    if _trim is not None:
        _trim(0)
