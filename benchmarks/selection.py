"""Time what MiCRO's five sparsifiers select with, in torch's own operators on one thread of this machine.

    python benchmarks/selection.py [--seconds 20] [--rows FILE]

One worker's gradient, Laplace distributed. Top-k is `torch.topk`, as in the authors' code; the others compare with a
threshold, MiCRO in its part of the vector alone. SIDCo fits its threshold in every step. All operations of one size are
interleaved, and CPU times of one thread compared: only orders mean something on another machine. A row has the time of
selecting, and of all that the sparsifier does besides communicating.
"""

from __future__ import annotations

from math import log
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch
from compressors import Operation, laplace, measured

from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.results.manifest import code, describe, hardware, now, versions
from ssfx.lab.results.store import export

SIZES = (1_000_000, 11_000_000)
"""Elements: of a large layer, and of ResNet-18."""
DENSITIES = (0.001, 0.01, 0.1)
DENSITY = 0.01
"""Of all but Top-k, whose time is asked for by number, too."""
WORKERS = 16
STAGES = (0.25, 0.25, 0.16)
"""Shares that SIDCo's stages keep one after another: together the density."""


def above(vector: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the selected values, as a sparsifier sends them, after finding where they are."""
    return vector[(vector.abs() > threshold).nonzero().squeeze(1)]


def fitted(vector: torch.Tensor) -> float:
    """Return SIDCo's threshold: an exponential fit, and fits of its tail."""
    magnitudes, threshold = vector.abs(), 0.0
    for share in STAGES:
        threshold += -float(magnitudes.mean() - threshold) * log(share)
        magnitudes = magnitudes[magnitudes > threshold]
    return threshold


def operations(numel: int) -> dict[tuple[str, float, str], Operation]:
    """Return what is timed: sparsifier, density, and whether "select" alone or all that it does, "whole"."""
    vector, threshold = laplace(numel, 0), -1e-3 * log(DENSITY)

    def top_k(density: float) -> Operation:
        def work() -> object:
            return vector[torch.topk(vector.abs(), int(density * numel), sorted=False).indices]

        return work

    starts = split_starts(numel, WORKERS)
    part = vector[starts[0] : starts[1]]
    state = {"step": 0, "threshold": threshold}

    def micro() -> None:
        state["step"] += WORKERS  # the same part of the vector in every step, so that only the rules are timed besides
        begins = split_starts(numel, WORKERS)
        own = partition_of(0, int(state["step"]), WORKERS)
        kept = above(vector[begins[own] : begins[own + 1]], threshold)
        state["threshold"] *= threshold_scale(kept.numel(), int(DENSITY * numel / WORKERS))

    return {
        **{("topk", density, "whole"): top_k(density) for density in DENSITIES},
        ("hard_threshold", DENSITY, "whole"): lambda: above(vector, threshold),
        ("sidco", DENSITY, "select"): lambda: above(vector, threshold),
        ("sidco", DENSITY, "whole"): lambda: above(vector, fitted(vector)),
        ("micro", DENSITY, "select"): lambda: above(part, threshold),
        ("micro", DENSITY, "whole"): micro,
    }


def rows_of(numel: int, seconds: float) -> list[Row]:
    """Return a row for each sparsifier and density on a vector of `numel` elements."""
    timed = operations(numel)
    times = dict(zip(timed, measured({str(key): work for key, work in timed.items()}, seconds).values(), strict=True))
    made, machine = [], hardware()
    for name, density in dict.fromkeys(key[:2] for key in times):
        whole = times[name, density, "whole"]
        select = times.get((name, density, "select"), whole)
        case = Case(
            experiment="selection",
            model=f"vector(numel={numel})",
            dataset="laplace",
            scheme="micro" if name == "micro" else "per_tensor",
            cluster="local",
            world_size=WORKERS if name == "micro" else 1,
            batch_size=1,
            compressor="topk" if name == "micro" else name,
            density=density,
            steps=len(whole),
            warmup_steps=1,
        )
        manifest: dict[str, Any] = {"code": code(), "hardware": machine, "exit_reason": "finished"}
        origin = Origin("measured", describe(machine), now(), "CPU time of one thread, torch's operators", versions())
        samples = {
            part: [float(f"{one:.4g}") for one in own] for part, own in (("compress_s", select), ("sparsify_s", whole))
        }
        metrics = {part: median(own) for part, own in samples.items()}
        made.append(Row(case.run_id, case, metrics, origin, manifest, samples))
    return made


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="CPU time spent on each size")
@click.option("--rows", "rows_file", type=click.Path(path_type=Path), help="write rows for the figures to FILE")
def main(seconds: float, rows_file: Path | None) -> None:
    """Print milliseconds of selecting, and of everything."""
    torch.set_num_threads(1)
    rows = [row for numel in SIZES for row in rows_of(numel, seconds)]
    for row in rows:
        name = row.case.compressor if row.case.scheme == "per_tensor" else row.case.scheme
        select, whole = (1e3 * float(row.metrics[part] or 0.0) for part in ("compress_s", "sparsify_s"))
        click.echo(f"{row.case.model:24} {name:16} {row.case.density:<6g} {select:9.3f} ms {whole:9.3f} ms")
    if rows_file:
        export(rows, rows_file)


if __name__ == "__main__":
    main()
