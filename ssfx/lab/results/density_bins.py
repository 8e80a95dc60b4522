"""How near achieved densities came to their targets: counts of ratios in bins an eighth of an octave wide. No torch.

A bin is named by eighths of log2(achieved / target), rounded: "0" holds ratios from 0.958 to 1.044, "8" holds 2, and
NOTHING segments that sent nothing. Counts of different steps and runs add up, which quantiles would not.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

BINS_PER_OCTAVE = 8
FARTHEST = 10 * BINS_PER_OCTAVE
"""The outermost bins, which hold everything beyond them too."""
NOTHING = "nothing"


def binned(ratios: Iterable[float]) -> dict[str, int]:
    """Return how many of `ratios` (achieved over target, not negative) fall into each bin that has any."""
    return dict(Counter(_bin(ratio) for ratio in ratios))


def merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of several counts, by ascending bin, NOTHING first."""
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return {name: total[name] for name in sorted(total, key=centre)}


def centre(name: str) -> float:
    """Return the ratio in the middle of a bin, 0 for NOTHING."""
    return 0.0 if name == NOTHING else float(2 ** (int(name) / BINS_PER_OCTAVE))


def quantile(counts: Mapping[str, int], share: float) -> float:
    """Return the centre of the first bin up to which at least `share` in [0, 1] of all ratios lie."""
    total, seen = sum(counts.values()), 0
    ordered = sorted(counts, key=centre)
    for name in ordered:
        seen += counts[name]
        if seen >= share * total:
            break
    return centre(name)


def _bin(ratio: float) -> str:
    if not ratio:
        return NOTHING
    return str(max(-FARTHEST, min(FARTHEST, round(BINS_PER_OCTAVE * math.log2(ratio)))))
