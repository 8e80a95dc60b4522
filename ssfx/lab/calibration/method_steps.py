"""How many more steps each method needed than dense training: ssfx/data/method_steps.json, from recorded runs.

`python -m ssfx.lab.calibration.method_steps` writes it from the rows of experiment=long_quality in results/reference; a
test holds both equal. `scheme=auto` reads it to decide what a quality allows, and `ssfx advise --quality` for the
steps of a training. Short runs are left out: they cannot tell a delay from a factor.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ssfx.compressors import build
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.core.spec import Spec
from ssfx.lab.calibration.batch_growth import batch_growth, grows
from ssfx.lab.calibration.step_law import (
    EXPERIMENT,
    StepLaw,
    at_usual_batch,
    batch_of,
    is_dense,
    long_rows,
    method,
    setting_of,
    step_laws,
    usual_memory,
)
from ssfx.lab.results.store import read_rows
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.recorded_network import Network, family_of

SOURCE = "long_quality_local.jsonl"
"""The file of rows."""

REDUCERS = {
    "micro": "micro",
    "spardl": "spar_reduce_scatter",
    "oktopk": "ok_topk",
    "ddp_quantized": "quantized_all_reduce",
    "ddp_bf16": "quantized_all_reduce",
}
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
    """Return the content of the file: what recorded runs say of each method, task by task.

    A task is a model, an optimizer, a rate and whether gradients are clipped; and the compression of its network by the
    method, within a factor of which the record holds. It has the law of its runs over dense ones at this rate, on as
    many ranks and of the batch, in tokens or images of all ranks, that most have. grows: whether errors are fed back
    that are not little, so that a larger batch takes more extra steps. schemes: the same of schemes that send by more
    than one method. batch_growth: how extra steps of error feedback grow with the batch.
    """
    # The size of a node, which commands put in, is no option of a method.
    rows = [
        row
        for row in rows
        if row.case.target_metric is not None and row.case.scheme_options.keys() <= {"ranks_per_node"}
    ]
    growth = batch_growth(rows)
    rows = at_usual_batch(long_rows(rows))
    groups: dict[Method, list[Row]] = {}
    for row in rows:
        if (way := _of(row)) is not None:
            groups.setdefault(way, []).append(row)
    laws = step_laws(rows, lambda row: _task_name(str(_of(row)), row) if _of(row) is not None else "")
    methods = []
    for (scheme, spec, density), runs in sorted(groups.items(), key=lambda one: (str(one[0][:2]), one[0][2] or 0.0)):
        said, growing = _method(scheme, spec), grows(runs)
        tasks = {
            task: {
                **_held(own[0], _network(own[0]).compression(spec, density or 1.0, said["calls"])),
                "grows": growing,
                **_plain(law),
            }
            for task, own in _by_task(runs)
            if (law := laws.get(f"{(scheme, spec, density)} {task}")) is not None
        }
        if tasks:
            methods.append({**said, "compressor": spec, "density": density, "tasks": tasks})
    return {
        "origin": {"kind": "measured", "note": f"recorded runs of experiment={EXPERIMENT} in results/reference"},
        "batch_growth": growth and asdict(growth),
        "methods": methods,
        "schemes": _schemes(rows),
    }


def _task_name(method: str, row: Row) -> str:
    return f"{method} {setting_of(row)}"


def _by_task(runs: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the runs of each task, by its name."""
    return [(name, [row for row in runs if setting_of(row) == name]) for name in sorted(set(map(setting_of, runs)))]


def _network(row: Row) -> Network:
    """Return the network that a run trains."""
    tensors = model_work(row.case.model).tensors
    return Network(family_of(tensors), row.case.optimizer, tensors)


def _held(row: Row, compression: float) -> dict[str, Any]:
    """Return for which networks, and for which training of them, the record of a task holds: it has `row`."""
    return {
        "family": _network(row).family,
        "optimizer": row.case.optimizer,
        "clipped": row.case.clip_norm is not None,
        "ranks": row.case.world_size,
        "batch": batch_of(row),
        "compression": round(compression, 3),
    }


def _of(row: Row) -> Method | None:
    """Return the method that a row's scheme stands for; None where it has several, or a memory of its own."""
    case = row.case
    if case.compressor is None or not usual_memory(row):
        return None
    if case.scheme not in ("per_tensor", *WHOLE):
        return None
    return ("fused_all" if case.scheme == "ddp_fp16" else case.scheme), case.compressor, case.density


def _schemes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the laws of every other scheme of the long runs that fed errors back as it does unless somebody asks."""
    others = [row for row in rows if usual_memory(row) and (is_dense(row) or _of(row) is None)]
    laws = step_laws(others, lambda row: _task_name(method(row), row))
    found = []
    for label in sorted({method(row) for row in others if not is_dense(row)}):
        runs = [row for row in others if method(row) == label]
        growing = grows(runs)
        tasks = {
            task: {**_held(own[0], law.compression or 1.0), "grows": growing, **_plain(law)}
            for task, own in _by_task(runs)
            if (law := laws.get(f"{label} {task}")) is not None
        }
        case = runs[0].case
        found.append({"scheme": case.scheme, "compressor": case.compressor, "density": case.density, "tasks": tasks})
    return [one for one in found if one["tasks"]]


def _plain(law: StepLaw) -> dict[str, Any]:
    """Return a law as the file has it; `each` are the delay and the factor of every run."""
    return {
        "seeds": law.seeds,
        "unreached": round(law.unreached, 4),
        "longest_steps": law.longest_steps,
        "delay_steps": round(law.delay_steps, 2),
        "factor": round(law.factor, 4),
        "each": [[round(delay, 2), round(factor, 4)] for delay, factor in law.each],
    }


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
    if build(spec).additive and collective == "quantized_all_reduce":
        words = f"{WORDS[given.name, calls]}, summed in 32"
    elif collective == "quantized_all_reduce":
        words += ", quantised on the way"
    rank = given.options.get("rank", "") if len(given.options) == 1 else ""
    return {"words": f"{words} of rank {rank}" if rank else words, "collective": collective, "calls": calls}


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of the file."""
    return json.dumps(method_steps(rows), indent=1)


def recorded() -> list[Row]:
    """Return the rows that the file is made of."""
    return read_rows(reference_dir() / SOURCE)


if __name__ == "__main__":
    write_json(data_dir() / "method_steps.json", text_of(recorded()))
