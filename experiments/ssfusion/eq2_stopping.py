"""SSFusion Eq. 2: whether backward and encodes of a buffer fit into the exchange before, worked out on plans."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.plan_costs import costs_on
from ssfx.perf_model.target import profile_for
from ssfx.planning.plan import Bucket
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator.pricing.message_sizes import payload_bytes

NAME = "ssfusion.eq2"
TITLE = "Eq. 2: where tensors stop being left out of compression"
COMMAND = "ssfx figures ssfusion.eq2"
NOTES = (
    "Eq. 2 alone leaves whole buffers uncompressed; the guard of ssfx (D-52) stops it at the density "
    "asked for, after which the inequality need not hold.",
)

CLUSTER, COMPRESSOR, DENSITY, ROUNDING_S = "64gpu", "dgc", 0.01, 1e-12
MODELS = {
    "ResNet-152": "resnet152_cifar100", "ViT-large": "vit_large", "BERT-large": "bert_large",
    "GPT2-large": "gpt2_large",
}  # fmt: skip
"""Each with its customary batch size and optimizer."""


@dataclass(frozen=True)
class Buffers:
    """How many buffers behind the first satisfy the inequality, hold no compressed tensor, or do neither."""

    fits: int = 0
    all_dense: int = 0
    neither: int = 0


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write, for each model, how the buffers of both plans come to their stop."""
    table = []
    for model in MODELS:
        for guard, said in (("none", "Eq. 2 alone"), ("volume", "with the guard")):
            found = buffers(model, guard)
            counts = {"fits": found.fits, "dense": found.all_dense, "neither": found.neither}
            table.append({"model": model if guard == "none" else "", "rule": said, **counts})
    columns = {
        "model": "model", "rule": "buffers behind the first,\non 64 GPUs",
        "fits": "exchange before covers\nbackward and encodes", "dense": "every tensor\nleft out",
        "neither": "neither",
    }  # fmt: skip
    return draw_table(NAME, TITLE, columns, table, out)


def finding(rows: list[Row]) -> str:
    """Return how many buffers of all models stop as the equation says."""
    total = [buffers(model, "none") for model in MODELS]
    fits, dense = sum(one.fits for one in total), sum(one.all_dense for one in total)
    return f"Eq. 2 alone: {fits} buffers stop at the inequality, {dense} leave every tensor out"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return whether every buffer stops as the equation says."""
    alone, guarded = ([buffers(model, guard) for model in MODELS] for guard in ("none", "volume"))
    holds = not any(one.neither for one in alone)
    late = sum(one.neither for one in guarded)
    count = sum(one.fits + one.all_dense + one.neither for one in guarded)
    said = f"With the guard that keeps the density, {late} of {count} buffers stop before the inequality holds."
    return [
        Verdict("ssfusion.design.eq2", "agrees" if holds else "disagrees", finding([]), "computed", reason=said,
                command=COMMAND, cost="seconds on one core"),
    ]  # fmt: skip


@cache
def buffers(model: str, guard: str) -> Buffers:
    """Return how the buffers of the naive variant's plan stop, from the plan alone: the planner's choice is not asked.

    The exchange before is that of the previous buffer with all its tensors compressed, since it is decided later.
    """
    work, on = model_work(MODELS[model]), cluster(CLUSTER)
    profile = profile_for(work.model, on, work.batch_size, work.optimizer)
    costs = costs_on(on, COMPRESSOR, DENSITY)
    options = {"compressor": COMPRESSOR, "density": DENSITY, "rule": "paper", "guard": guard}
    plan = make_plan("ssfusion_naive", profile, costs, options)
    gap_s = {spec.name: gap for spec, gap in zip(profile.tensors, profile.ready_gap_s, strict=True)}
    numel = {spec.name: spec.numel for spec in profile.tensors}

    counts = {"fits": 0, "all_dense": 0, "neither": 0}
    for before, bucket in pairwise(plan.buckets):
        names = sorted(_tensors(bucket), key=list(numel).index)
        packed = _tensors(bucket, compressed=True)
        shares_s = dict(zip(names, costs.shares_s([numel[name] for name in names]), strict=True))
        work_s = sum(gap_s[name] for name in names) + sum(shares_s[name] for name in packed)
        sent = sum(payload_bytes(COMPRESSOR, numel[name], DENSITY) for name in _tensors(before))
        fits = work_s <= costs.exchange_s("all_gather", sent) + ROUNDING_S
        counts["fits" if fits else "neither" if packed else "all_dense"] += 1
    return Buffers(**counts)


def _tensors(bucket: Bucket, compressed: bool = False) -> list[str]:
    segments = [one for lane in bucket.lanes for one in lane.segments]
    return [name for one in segments if not (compressed and one.dense) for name in one.tensors]
