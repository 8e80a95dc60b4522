"""The settings of the papers' simulations, which are those of committed rows: what else is run is no row of theirs."""

from functools import cache
from typing import Any

from ssfx.core.case import Case
from ssfx.core.paths import reference_dir
from ssfx.lab.results.store import read_rows, reference_files

FIELDS = ("model", "world_size", "density", "batch_size", "precision", "optimizer", "accumulate", "sharding")
"""What makes a setting beside the cluster; a scheme, its options and the compressor may be one's own."""


def is_of_paper(case: Case) -> bool:
    """Return whether figures and verdicts of papers take rows of `case`: each that was run, and of the simulated ones
    those of a setting that is committed. An experiment without committed simulations has no setting of its own yet.
    """
    known = _settings(case.experiment) if case.calibration else None
    return not known or _setting(case) in known


@cache
def _settings(experiment: str) -> frozenset[Any]:
    files = [path for path in reference_files(reference_dir()) if path.name.startswith(f"{experiment}_")]
    cases = (row.case for path in files for row in read_rows(path))
    return frozenset(_setting(case) for case in cases if case.experiment == experiment and case.calibration)


def _setting(case: Case) -> tuple[Any, ...]:
    return (case.cluster.name, *case.cluster.changes.items(), *(getattr(case, name) for name in FIELDS))
