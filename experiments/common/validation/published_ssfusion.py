"""SSFusion Fig. 9: how the time of an all-gather grows from 8 to 64 GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.common.claims.ledger import claims_by_id
from experiments.common.validation.published_steps import number
from experiments.common.validation.scores import Pair
from ssfx.core.case import ClusterChoice
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_on

MESSAGE_BYTES = 1e8
"""Any size at which bandwidth counts: the growth does not depend on it, and the paper names neither model nor size."""


def growths() -> Iterator[Pair]:
    """Yield all-gather on 64 GPUs over all-gather on 8.

    All-reduce is left out. Its growth depends on the number and size of messages, which the paper does not print: by
    the ring formulas 1.125 where bandwidth decides, 9 where latency does.
    """
    for model in ("modelA", "modelB"):
        ids = [f"ssfusion.fig9.{model}.ag{gpus}" for gpus in (8, 64)]
        few_s, many_s = (_all_gather_s(claims_by_id()[claim_id].conditions["gpus"]) for claim_id in ids)
        few, many = map(number, ids)
        yield Pair("Fig. 9 growth of all-gather", model, many_s / few_s, many / few, claim=ids[-1])


def _all_gather_s(gpus: int) -> float:
    whole = cluster_on(ClusterChoice("64gpu", {"calibration": "published"}), None, "auto")
    nodes = gpus // whole.devices_per_node
    some = cluster_on(ClusterChoice("64gpu", {"calibration": "published", "nodes": nodes}), None, "auto")
    return system_on(some).exchange["all_gather"](MESSAGE_BYTES)
