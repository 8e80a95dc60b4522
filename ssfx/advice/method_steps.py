"""How many more steps each method needed than dense training: ssfx/data/method_steps.json, from recorded runs.

`python -m ssfx.advice.method_steps` writes it from the rows of experiment=time_to_quality and =method_quality in
results/reference; a test holds both equal. `scheme=auto` reads it to decide what a quality allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from statistics import geometric_mean, mean
from typing import Any

from ssfx.compressors import build
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir
from ssfx.results.rows import Row
from ssfx.results.store import read_rows

SOURCES = ("time_to_quality_local.jsonl", "method_quality_local.jsonl")
"""Files of rows; one that is not there has none."""

REDUCERS = {"micro": "micro", "spardl": "spar_reduce_scatter", "oktopk": "ok_topk"}
"""Schemes whose plans are one reducer for the whole model, and its name."""
WHOLE = ("fused_all", "acpsgd", "powersgd", *REDUCERS)
"""Schemes that compress a message as a whole. Their runs, and those of per_tensor, are those of one method alone."""
WORDS = {
    ("fp16", "joint"): "in 16 bits",
    ("bf16", "joint"): "in 16 bits (bfloat16)",
    ("dgc", "each"): "top-k of each tensor gathered",
    ("dgc", "joint"): "top-k of several tensors gathered",
    ("cltk", "each"): "the positions of one rank's top-k, summed",
    ("block_topk", "each"): "agreed blocks summed",
    ("qsgd", "each"): "four bits an element",
    ("onebit", "each"): "one bit an element",
    ("acpsgd", "joint"): "low rank, factors in turns (ACP-SGD)",
    ("powersgd", "joint"): "low rank (PowerSGD)",
    ("micro", "joint"): "disjoint shards (MiCRO) of several tensors",
    ("spar_reduce_scatter", "joint"): "sparse reduce-scatter (SparDL) of several tensors",
    ("ok_topk", "joint"): "sparse regions (Ok-Topk) of several tensors",
}
"""Words for a method by its compressor, or its reducer, and its compressor calls; others are called by their spec."""


def method_steps(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the content of the file.

    more_steps: the geometric mean over tasks of the mean steps to the target over those of dense training, less 1; None
    where a run did not reach its target, or a task has no runs. Runs are compared task by task with dense ones of the
    same seeds. kept_back: the share of a gradient's norm that error feedback kept back, on the task where it was most;
    None where nobody measured it.
    """
    known = [row for row in rows if row.case.target_metric is not None and not row.case.scheme_options]
    dense = {(row.case.model, row.case.seed): _steps(row) for row in known if _is_dense(row)}
    models = {model for model, _ in dense}
    groups: dict[tuple[str, str, float | None], list[Row]] = {}
    for row in known:
        case = row.case
        if case.compressor is not None and case.scheme in ("per_tensor", *WHOLE) and (case.model, case.seed) in dense:
            groups.setdefault((case.scheme, case.compressor, case.density), []).append(row)
    found = []
    for (scheme, spec, density), runs in sorted(groups.items(), key=lambda one: (str(one[0][:2]), one[0][2] or 0.0)):
        tasks = {model: _task(model, runs, dense) for model in sorted({row.case.model for row in runs})}
        ratios = [one["steps"] / one["dense_steps"] for one in tasks.values() if one["steps"] is not None]
        kept_back = [one["kept_back"] for one in tasks.values() if one["kept_back"] is not None]
        found.append({
            **_method(scheme, spec), "compressor": spec, "density": density,
            "more_steps": round(geometric_mean(ratios) - 1, 4) if len(ratios) == len(models) else None,
            "kept_back": max(kept_back, default=None), "tasks": tasks,
        })  # fmt: skip
    every = sorted({row.case.evaluate_every for row in known})
    files = ", ".join(sorted({f"experiment={row.case.experiment}" for row in known}))
    note = f"recorded runs of {files} in results/reference; quality is measured every {'/'.join(map(str, every))} steps"
    return {"origin": {"kind": "measured", "note": note}, "methods": found}


def _method(scheme: str, spec: str) -> dict[str, str]:
    """Return words, collective and compressor calls of the method that a scheme's runs with a compressor are."""
    calls = "each" if scheme == "per_tensor" else "joint"
    collective = REDUCERS.get(scheme, "all_reduce" if build(spec).additive else "all_gather")
    name, _, options = spec.partition("(")
    words = WORDS.get((REDUCERS.get(scheme, name), calls), spec)
    rank = options.rstrip(")").removeprefix("rank=")
    return {"words": f"{words} of rank {rank}" if rank.isdigit() else words, "collective": collective, "calls": calls}


def _task(model: str, runs: Iterable[Row], dense: dict[tuple[str, int], float]) -> dict[str, Any]:
    here = [row for row in runs if row.case.model == model]
    own = {row.case.seed: _steps(row) for row in here}
    kept_back = [share for row in here if (share := row.metrics.get("kept_back")) is not None]
    reached = sum(map(math.isfinite, own.values()))
    return {
        "runs": len(own), "reached": reached, "steps": mean(own.values()) if reached == len(own) else None,
        "dense_steps": mean(dense[model, seed] for seed in own),
        "kept_back": round(mean(kept_back), 4) if kept_back else None,
    }  # fmt: skip


def _is_dense(row: Row) -> bool:
    return row.case.scheme == "ddp" and row.case.compressor is None


def _steps(row: Row) -> float:
    found = row.metrics.get("steps_to_target")
    return math.inf if found is None else float(found)


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of the file."""
    return json.dumps(method_steps(rows), indent=1)


def recorded() -> list[Row]:
    """Return the rows that the file is made of."""
    files = [path for name in SOURCES if (path := reference_dir() / name).exists()]
    return [row for path in files for row in read_rows(path)]


if __name__ == "__main__":
    write_json(data_dir() / "method_steps.json", text_of(recorded()))
