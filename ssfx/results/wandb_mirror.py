"""Weights & Biases as a mirror of finished rows. It may fail or be absent without any effect on a run or its row."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Literal, get_args

from ssfx.core.errors import unknown
from ssfx.results.rows import Row

Mode = Literal["off", "offline", "online"]


def mirror(row: Row, mode: Mode) -> bool:
    """Copy `row` to W&B under its run id and return whether that worked; a failure is one warning, never an error.

    off: do nothing. offline: write a local W&B run. online: upload. The row in the store stays the record.
    """
    if mode not in get_args(Mode):
        raise unknown("wandb mode", mode, get_args(Mode))
    if mode == "off":
        return False
    try:
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        with wandb.init(
            project="ssfx", id=row.run_id, name=row.case.label, group=row.case.experiment, mode=mode,
            config={**asdict(row.case), "manifest": dict(row.manifest)}, settings=settings,
        ) as run:  # fmt: skip
            run.summary.update({name: value for name, value in row.metrics.items() if value is not None})
            run.summary["origin"] = row.origin.kind
    except Exception as error:
        # Whatever a third-party service does must not cost a finished measurement.
        warnings.warn(f"W&B mirror of run {row.run_id} failed: {type(error).__name__}: {error}", stacklevel=2)
        return False
    return True
