"""How many more steps each method needed than dense training: ssfx/data/method_steps.json, from recorded runs.

`python -m ssfx.lab.calibration.method_steps` writes it from the rows of experiment=time_to_quality, =method_quality and
=long_quality in results/reference; a test holds both equal. `scheme=auto` reads it to decide what a quality allows, and
`ssfx advise target=quality` for the steps of a training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean, mean
from typing import Any

from ssfx.compressors import build
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.core.spec import Spec
from ssfx.lab.calibration.step_law import EXPERIMENT, StepLaw, is_dense, method, step_laws, usual_memory
from ssfx.lab.results.store import read_rows

SOURCES = ("time_to_quality_local.jsonl", "method_quality_local.jsonl", "long_quality_local.jsonl")
"""Files of rows; one that is not there has none."""

REDUCERS = {
    "micro": "micro", "spardl": "spar_reduce_scatter", "oktopk": "ok_topk", "ddp_quantized": "quantized_all_reduce"
}  # fmt: skip
"""Schemes whose plans are of one reducer, and its name."""
WHOLE = ("fused_all", "ddp_fp16", "acpsgd", "powersgd", *REDUCERS)
"""Schemes that compress a message as a whole. Their runs, and those of per_tensor, are those of one method alone."""
Method = tuple[str, str, float | None]
"""A scheme, its compressor and its density."""
WORDS = {
    ("fp16", "joint"): "in 16 bits",
    ("bf16", "joint"): "in 16 bits (bfloat16)",
    ("dgc", "each"): "top-k of each tensor gathered",
    ("dgc", "joint"): "top-k of several tensors gathered",
    ("topk", "each"): "exact top-k of each tensor gathered",
    ("ef_signsgd", "each"): "signs with error feedback",
    ("cltk", "each"): "the positions of one rank's top-k, summed",
    ("block_topk", "each"): "agreed blocks summed",
    ("fp8", "each"): "8-bit floats (fp8)",
    ("quantized_all_reduce", "joint"): "8-bit floats (fp8)",
    ("onebit", "each"): "one bit an element",
    ("acpsgd", "joint"): "low rank, factors in turns (ACP-SGD)",
    ("powersgd", "joint"): "low rank (PowerSGD)",
    ("micro", "joint"): "disjoint shards (MiCRO) of several tensors",
    ("spar_reduce_scatter", "joint"): "sparse reduce-scatter (SparDL) of several tensors",
    ("ok_topk", "joint"): "sparse regions (Ok-Topk) of several tensors",
}
"""Words for a method by its compressor, or its reducer, and its compressor calls; others are called by their spec."""
BITS = {2: "two", 4: "four", 8: "eight"}
"""Words for the bits of qsgd."""


def method_steps(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the content of the file.

    more_steps: of short tasks, the geometric mean over tasks of the mean steps to the target over those of dense
    training, less 1; None where a run did not reach its target, or a task has no runs. Runs are compared task by task
    with dense ones of the same seeds. kept_back: the share of a gradient's norm that error feedback kept back, on the
    task where it was most; None where nobody measured it. long: the law of long runs, None without any. schemes: laws
    of schemes that send by more than one method.
    """
    rows = [row for row in rows if row.case.target_metric is not None and not row.case.scheme_options]
    short = [row for row in rows if row.case.experiment != EXPERIMENT]
    dense = {(row.case.model, row.case.seed): _steps(row) for row in short if is_dense(row)}
    models = {model for model, _ in dense}
    groups: dict[Method, tuple[list[Row], list[Row]]] = {}
    for row in rows:
        way = _of(row)
        long = row.case.experiment == EXPERIMENT
        if way is not None and (long or (row.case.model, row.case.seed) in dense):
            groups.setdefault(way, ([], []))[long].append(row)
    names = {str(way): way for way in groups}
    laws = step_laws(rows, lambda row: str(_of(row)) if _of(row) is not None else "")
    methods = []
    for name, (scheme, spec, density) in sorted(names.items(), key=lambda one: (str(one[1][:2]), one[1][2] or 0.0)):
        runs, long_runs = groups[names[name]]
        tasks = {model: _task(model, runs, dense) for model in sorted({row.case.model for row in runs})}
        ratios = [one["steps"] / one["dense_steps"] for one in tasks.values() if one["steps"] is not None]
        law = laws.get(name)
        if law is None and not runs:
            continue
        methods.append({
            **_method(scheme, spec), "compressor": spec, "density": density,
            "more_steps": round(geometric_mean(ratios) - 1, 4) if ratios and len(ratios) == len(models) else None,
            "kept_back": _kept_back([*runs, *long_runs]), "tasks": tasks, "long": law and _plain(law),
        })  # fmt: skip
    every = sorted({row.case.evaluate_every for row in short})
    files = ", ".join(sorted({f"experiment={row.case.experiment}" for row in rows}))
    note = (
        f"recorded runs of {files} in results/reference; quality is measured every {'/'.join(map(str, every))} steps "
        "in the short ones"
    )
    return {"origin": {"kind": "measured", "note": note}, "methods": methods, "schemes": _schemes(rows)}


def _of(row: Row) -> Method | None:
    """Return the method that a row's scheme stands for; None where it has several, or a memory of its own."""
    case = row.case
    if case.compressor is None or not usual_memory(row):
        return None
    if case.scheme not in ("per_tensor", *WHOLE):
        return None
    return ("fused_all" if case.scheme == "ddp_fp16" else case.scheme), case.compressor, case.density


def _schemes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the law of every other scheme of the long runs, with its compressor, density and memory."""
    others = [row for row in rows if is_dense(row) or _of(row) is None]
    cases = {method(row): row.case for row in others}
    return [
        {
            "scheme": (case := cases[label]).scheme, "compressor": case.compressor, "density": case.density,
            "memory": case.memory, "long": _plain(law),
        }
        for label, law in step_laws(others).items()
    ]  # fmt: skip


def _plain(law: StepLaw) -> dict[str, Any]:
    """Return a law as the file has it; `each` are the delay and the factor of every run."""
    return {
        "tasks": list(law.tasks), "seeds": law.seeds, "unreached": round(law.unreached, 4),
        "longest_steps": law.longest_steps, "delay_steps": round(law.delay_steps, 2), "factor": round(law.factor, 4),
        "factor_interval": law.factor_interval and [round(end, 4) for end in law.factor_interval],
        "each": [[round(delay, 2), round(factor, 4)] for delay, factor in law.each],
    }  # fmt: skip


def _kept_back(rows: Sequence[Row]) -> float | None:
    shares: dict[str, list[float]] = {}
    for row in rows:
        if (share := row.metrics.get("kept_back")) is not None:
            shares.setdefault(row.case.model, []).append(share)
    return max((round(mean(of_task), 4) for of_task in shares.values()), default=None)


def _method(scheme: str, spec: str) -> dict[str, str]:
    """Return words, collective and compressor calls of the method that a scheme's runs with a compressor are."""
    calls = "each" if scheme == "per_tensor" else "joint"
    collective = REDUCERS.get(scheme, "all_reduce" if build(spec).additive else "all_gather")
    given = Spec.parse(spec, "compressor")
    words = WORDS.get((REDUCERS.get(scheme, given.name), calls), spec)
    if given.name == "qsgd":
        words = f"{BITS[build(spec).options.bits]} bits an element"
    elif given.options and "rank" not in given.options and words != spec:
        words += f" with {', '.join(f'{name}={value}' for name, value in given.options.items())}"
    if collective == "quantized_all_reduce":
        words += ", quantised on the way"
    rank = given.options.get("rank", "") if len(given.options) == 1 else ""
    return {"words": f"{words} of rank {rank}" if rank else words, "collective": collective, "calls": calls}


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
