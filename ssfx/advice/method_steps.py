"""How many more steps each method needed than dense training: ssfx/data/method_steps.json, from recorded runs.

`python -m ssfx.advice.method_steps` writes it from the rows of experiment=time_to_quality in results/reference; a test
holds both equal. `scheme=auto` reads it to decide what a quality allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from statistics import geometric_mean, mean
from typing import Any

from ssfx.core.files import write_atomic
from ssfx.core.paths import data_dir, reference_dir
from ssfx.results.rows import Row

SOURCE = "time_to_quality_local.jsonl"

METHODS = (
    ("in 16 bits", "fused_all", "fp16", "all_reduce", "joint"),
    ("top-k of each tensor gathered", "per_tensor", "dgc", "all_gather", "each"),
    ("top-k of several tensors gathered", "fused_all", "dgc", "all_gather", "joint"),
    ("low rank, factors in turns (ACP-SGD)", "acpsgd", "acpsgd", "all_reduce", "joint"),
    ("low rank (PowerSGD)", "powersgd", "powersgd", "all_reduce", "joint"),
    ("disjoint shards (MiCRO) of several tensors", "micro", "topk", "micro", "joint"),
    ("sparse reduce-scatter (SparDL) of several tensors", "spardl", "topk", "spar_reduce_scatter", "joint"),
    ("sparse regions (Ok-Topk) of several tensors", "oktopk", "topk", "ok_topk", "joint"),
)
"""Words; the scheme and compressor whose runs are those of the method alone; its collective and compressor calls."""


def method_steps(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the content of the file.

    more_steps: the geometric mean over tasks of the mean steps to the target over those of dense training, less 1; None
    where a run did not reach its target. Runs are compared task by task with dense ones of the same seeds.
    """
    known = [row for row in rows if row.case.target_metric is not None]
    dense = {(row.case.model, row.case.seed): _steps(row) for row in known if row.case.scheme == "ddp"}
    found = []
    for words, scheme, compressor, collective, calls in METHODS:
        chosen = [row for row in known if (row.case.scheme, row.case.compressor) == (scheme, compressor)]
        for density in sorted({row.case.density for row in chosen}, key=lambda one: one or 0.0):
            runs = [row for row in chosen if row.case.density == density and not row.case.scheme_options]
            tasks = {model: _task(model, runs, dense) for model in sorted({row.case.model for row in runs})}
            ratios = [one["steps"] / one["dense_steps"] for one in tasks.values() if one["steps"] is not None]
            complete = len(ratios) == len(tasks)
            found.append({
                "words": words, "compressor": compressor, "density": density, "collective": collective, "calls": calls,
                "more_steps": round(geometric_mean(ratios) - 1, 4) if complete else None, "tasks": tasks,
            })  # fmt: skip
    note = f"runs of experiment=time_to_quality in results/reference/{SOURCE}; quality is measured every "
    every = sorted({row.case.evaluate_every for row in known})
    return {"origin": {"kind": "measured", "note": note + f"{'/'.join(map(str, every))} steps"}, "methods": found}


def _task(model: str, runs: Iterable[Row], dense: dict[tuple[str, int], float]) -> dict[str, Any]:
    own = {row.case.seed: _steps(row) for row in runs if row.case.model == model}
    reached = sum(map(math.isfinite, own.values()))
    return {
        "runs": len(own), "reached": reached, "steps": mean(own.values()) if reached == len(own) else None,
        "dense_steps": mean(dense[model, seed] for seed in own),
    }  # fmt: skip


def _steps(row: Row) -> float:
    found = row.metrics.get("steps_to_target")
    return math.inf if found is None else float(found)


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of the file."""
    return json.dumps(method_steps(rows), indent=1) + "\n"


def recorded() -> list[Row]:
    """Return the rows that the file is made of."""
    lines = (reference_dir() / SOURCE).read_text().splitlines()
    return [Row.from_json(line) for line in lines]


if __name__ == "__main__":
    write_atomic(data_dir() / "method_steps.json", text_of(recorded()))
