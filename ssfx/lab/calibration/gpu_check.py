"""The first hour on a GPU: every part in processes of its own, and one record of what agreed and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ssfx.compressors import compressors
from ssfx.core import accelerator
from ssfx.core.errors import SsfxError
from ssfx.core.origin import Origin
from ssfx.lab.calibration.calibrate_cluster import codec, run_ranks
from ssfx.lab.calibration.gpu_parts import PARTS, PartRun, Sizes
from ssfx.lab.results.manifest import code, describe, hardware, versions
from ssfx.perf_model import devices
from ssfx.perf_model.exchange_tables import ExchangeTable
from ssfx.perf_model.gpu_record import GpuRecord, Part
from ssfx.planning.profile import Profile

LIMIT_S = 300.0
"""Of all parts together."""
MODELS = ("resnet152", "vit_large", "bert_large", "gpt2_large")
"""Those of SSFusion's Experiment 1."""

Run = Callable[[str, PartRun, str, int, Sizes, float], Mapping[str, Any]]
"""Does a part on devices of a kind by so many ranks in so many seconds; returns the fields of `PartResult`."""


def sizes_on_gpu() -> Sizes:
    """Return how much is done on a GPU."""
    return Sizes(
        segments=(5_000_000, 1_048_577, 40, 1),
        widths=(1024, 4096, 1000, 8),
        compressors=compressors.names(),
        max_numel=2**24,
        host_model="bert_base",
        models=MODELS,
        precisions=("fp32", "tf32", "bf16"),
        batch_size=None,
        iterations=10,
        mib=256,
    )


def in_processes(name: str, work: PartRun, kind: str, ranks: int, sizes: Sizes, limit_s: float) -> Mapping[str, Any]:
    """Do a part in processes of its own; RunError when a rank fails or takes too long."""
    more = {"TORCH_CUDA_SANITIZER": "1"} if work.sanitized and kind != "cpu" else {}
    request = {"part": name, "kind": kind, "sizes": asdict(sizes)}
    return run_ranks(request, ranks, None, "ssfx.lab.calibration.gpu_rank", limit_s, more)[0]


def check_gpus(
    kind: str, gpus: int, sizes: Sizes, tell: Callable[[Part], None], run: Run = in_processes, limit_s: float = LIMIT_S
) -> GpuRecord:
    """Return the record of `gpus` devices of a kind ("cuda"; "cpu" in tests); `tell` gets each part as it ends.

    A part that fails is noted and the others go on.
    """
    until = time.monotonic() + limit_s
    parts, data = [], {}
    for name, work in PARTS.items():
        ranks = work.ranks or gpus
        if work.ranks is None and gpus < 2:
            continue  # one GPU exchanges nothing
        began = time.monotonic()
        said, problems = "", []
        left_s = min(work.limit_s, until - began)
        try:
            if left_s <= 0:
                problems = [f"not begun, as the {limit_s:.0f} s of all parts were over"]
            else:
                found = run(name, work, kind, ranks, sizes, left_s)
                said, problems, data[name] = found["said"], found["problems"], found["data"]
        except (SsfxError, OSError) as error:
            problems = [" ".join(str(error).split())]
        parts.append(Part(name, round(time.monotonic() - began, 1), said, tuple(problems)))
        tell(parts[-1])
    return _record(kind, gpus, parts, data)


def _record(kind: str, gpus: int, parts: list[Part], data: Mapping[str, Any]) -> GpuRecord:
    names = accelerator.names(kind)[:gpus]
    origin = Origin(
        "measured",
        describe({**hardware(), "gpus": names}),
        datetime.now(UTC).date().isoformat(),
        "ssfx doctor --gpu, median, no other load assumed",
        versions(),
    )
    return GpuRecord(
        origin=origin,
        commit=code()["commit"] or "",
        gpus=gpus,
        sheet=(devices.sheet_named(names[0]) or "") if names else "cpu",
        parts=tuple(parts),
        codecs={name: codec(points, origin) for name, points in data.get("compressors", {}).items()},
        exchanges=tuple(
            ExchangeTable(**{**one, "nbytes": tuple(one["nbytes"]), "us": tuple(one["us"])})
            for one in data.get("exchanges", {}).get("tables", ())
        ),
        host_us=data.get("host", {}).get("host_us"),
        profiles=tuple(Profile.from_json(text) for text in data.get("steps", {}).values()),
    )
