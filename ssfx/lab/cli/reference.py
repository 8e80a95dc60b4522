"""Copy the rows of one `ssfx run` into results/reference: python -m ssfx.lab.cli.reference [--finished] NAME WORD..."""

import sys
from dataclasses import replace

from ssfx.core.errors import RunError, SsfxError
from ssfx.core.paths import reference_dir, results_dir
from ssfx.core.rows import Row
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.results.store import Store, export

KEPT = (
    "alone_s",
    "assumptions",
    "calibration",
    "code",
    "device_memory_bytes",
    "exit_reason",
    "extrapolated",
    "methods",
    "needed_bytes",
    "plan_digest",
)
"""What is kept of the manifest of a simulated row: the rest is computed again from the same commit."""


KEPT_OF_QUALITY = (
    "attempt",
    "background_cores",
    "code",
    "dataset_fingerprint",
    "exit_reason",
    "notes",
    "plan_digest",
    "resumed_from_step",
    "seed",
    "started",
    "versions",
)
"""What is kept of the manifest of a row with a curve, whose subject is quality; the time of every step is not."""


MANY = 2000
"""Rows beyond which a file is packed, and keeps of each row what figures read."""
READ = ("exposed_comm_s", "iteration_s", "sent_bytes", "throughput_samples_per_s")


def main(name: str, words: list[str], *, finished: bool = False) -> None:
    """Write results/reference/<name>.jsonl, a row per case of `ssfx run WORDS`; `finished`: those that there are.

    RunError if one is not finished (with `finished`, if none is), or if its code is in no commit: such a row cannot be
    made again.
    """
    store = Store(results_dir())
    rows = []
    cases = resolve_job(words).cases
    for case in cases:
        row = store.row(case)
        if row is None:
            if finished:
                continue
            raise RunError(f"{case.label} repeat {case.repeat} is not finished; run: ssfx run {' '.join(words)}")
        if row.manifest["code"].get("dirty"):
            raise RunError(
                f"{case.label} repeat {case.repeat} ran with changes that are in no commit; commit and run it again"
            )
        rows.append(_committed(row))
    if not rows:
        raise RunError(f"none of {len(cases)} runs is finished; run: ssfx run {' '.join(words)}")
    path = reference_dir() / f"{name}.jsonl"
    if len(rows) > MANY:
        path, rows = path.with_suffix(".jsonl.gz"), [_short(row) for row in rows]
    export(rows, path)
    print(f"{path}: {len(rows)} of {len(cases)} rows")


def _committed(row: Row) -> Row:
    if row.curve:
        manifest = {key: row.manifest[key] for key in KEPT_OF_QUALITY if key in row.manifest}
        return replace(row, manifest=manifest, samples={}, origin=replace(row.origin, versions={}))
    if row.origin.kind != "simulated":
        return row
    manifest = {key: row.manifest[key] for key in KEPT if key in row.manifest}
    return replace(row, manifest=manifest, origin=replace(row.origin, versions={}))


def _short(row: Row) -> Row:
    metrics = {name: value for name, value in row.metrics.items() if name in READ}
    manifest = {key: value for key, value in row.manifest.items() if key != "assumptions"}
    return replace(row, metrics=metrics, manifest=manifest)


if __name__ == "__main__":
    try:
        given = [word for word in sys.argv[1:] if word != "--finished"]
        main(given[0], given[1:], finished="--finished" in sys.argv)
    except SsfxError as error:
        sys.exit(str(error))
