"""Weights & Biases as a mirror of finished rows. It may fail or be absent without any effect on a run or its row."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ssfx.core.rows import Row, points

Mode = Literal["off", "offline", "online"]

FILES = ("plan.json", "profile.json", "costs.json", "trace-rank0.json")
"""Files of a run's last attempt that are kept as an artifact, those that there are."""


@dataclass(frozen=True)
class Mirror:
    """Where rows are copied to. `mode` off: nowhere; offline: a W&B run on this disk; online: uploaded too.

    `folder` is where W&B keeps its files.
    """

    mode: Mode
    folder: Path
    project: str = "ssfx"
    tags: tuple[str, ...] = ()


def mirror(row: Row, to: Mirror, files: Sequence[Path] = ()) -> bool:
    """Copy `row` to W&B under its run id and return whether that worked; a failure is one warning, never an error.

    The case is the config, the curve is logged step by step, the metrics are the summary, and those of `files` that
    exist are one artifact. The row in the store stays the record.
    """
    if to.mode == "off":
        return False
    try:
        import wandb

        to.folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(silent=True, console="off")
        with wandb.init(
            project=to.project,
            id=row.run_id,
            name=row.case.label,
            group=row.case.experiment,
            mode=to.mode,
            tags=[*to.tags, row.kind],
            dir=str(to.folder),
            config={**asdict(row.case), "manifest": dict(row.manifest)},
            settings=settings,
        ) as run:
            for point in points(row):
                known: dict[str, Any] = {name: value for name, value in point.items() if value is not None}
                run.log(known, step=int(known.pop("step")))
            run.summary.update({name: value for name, value in row.metrics.items() if value is not None})
            run.summary["origin"] = row.kind
            kept = [path for path in files if path.exists()]
            if kept:
                artifact = wandb.Artifact(f"run-{row.run_id}", type="run", metadata={"origin": row.kind})
                for path in kept:
                    artifact.add_file(str(path))
                run.log_artifact(artifact)
    except Exception as error:
        # A failure of a third-party service must not cost a finished measurement.
        warnings.warn(f"W&B mirror of run {row.run_id} failed: {type(error).__name__}: {error}", stacklevel=2)
        return False
    return True
