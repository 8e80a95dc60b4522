"""Spans of time: how long at least one of several was under way."""

from collections.abc import Sequence


def union_s(spans: Sequence[Sequence[float]]) -> float:
    """Return the length of the union of time spans (start, end); spans that never ended count nothing."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted((s[0], s[1]) for s in spans if s[1] > s[0]):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
