"""A folder of traces, one or more a rank, as the Profile of the slowest rank."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from ssfx.core.errors import ConfigError
from ssfx.core.origin import BEWARE
from ssfx.lab.calibration.profiler_trace import profile_of_trace
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

MOST_FILES = 16
"""Traces of a folder that are read, evenly spread over their names: more would take minutes and say the same."""
APART = 0.02
"""Spread of the ranks' forward and backward, over their median, from which on a word is said."""


def profile_of_traces(
    path: Path, model: str = "", tensors: Sequence[TensorSpec] | None = None, batch_size: int = 0
) -> Profile:
    """Return the profile of a trace, or of all traces in a folder: that of the slowest rank, for which exchanges wait.

    `skew` is how many times as long it takes as the median rank; the origin says so, and how many files are no traces
    of this training. ConfigError where none is, as of the first file.
    """
    if not path.is_dir():
        return profile_of_trace(path, model, tensors, batch_size)
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
    if not files:
        raise ConfigError(f"{path} has no trace (.json or .json.gz); name a file, or the folder of the ranks' traces")
    count = min(len(files), MOST_FILES)
    found, others = list[Profile](), list[ConfigError]()
    for file in (files[i * len(files) // count] for i in range(count)):
        try:
            found.append(profile_of_trace(file, model, tensors, batch_size))
        except ConfigError as error:
            others.append(error)
    if not found:
        raise others[0]
    shapes = [tuple(spec.shape for spec in one.tensors) for one in found]
    usual = max(shapes, key=shapes.count)
    alike = [one for one, mine in zip(found, shapes, strict=True) if mine == usual]
    if 2 * len(alike) <= len(found):
        raise ConfigError(f"{path} has {len(found)} traces with different gradients; name the file of one rank")
    return _together(path, alike, count, len(files))


def _together(path: Path, ranks: Sequence[Profile], read: int, files: int) -> Profile:
    slowest = max(ranks, key=_passes_s)
    low_s, middle_s, high_s = min(map(_passes_s, ranks)), median(map(_passes_s, ranks)), _passes_s(slowest)
    head, *words = slowest.origin.note.split(f"; {BEWARE}")
    if high_s > (1 + APART) * low_s:
        words.insert(
            0,
            f"forward and backward of the ranks take {1e3 * low_s:.3g} to {1e3 * high_s:.3g} ms, median "
            f"{1e3 * middle_s:.3g}; the slowest rank counts, as exchanges wait for it",
        )
    if len(ranks) < read:
        words.append(f"{read - len(ranks)} of {read} files are no traces of this training and are left out")
    of = f" of {files}" if read < files else ""
    note = f"slowest of the {len(ranks)} traces{of} in {path.name}: {head}"
    return replace(
        slowest,
        model=slowest.model if len(ranks) == 1 else path.resolve().name,
        skew=round(high_s / middle_s, 4) if middle_s else 1.0,
        origin=replace(slowest.origin, note=note + "".join(f"; {BEWARE}{word}" for word in words)),
    )


def _passes_s(one: Profile) -> float:
    return one.forward_s + one.backward_s
