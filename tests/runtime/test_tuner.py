"""MergeComp's measured search on real processes: it ends, ranks agree all the way, and a resumed one goes on."""

import io
from typing import Any

import torch
from runtime.models import parameters
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work import attached, train

from ssfx.schemes.search.measured_search import most_probes


def test_the_search_ends_with_two_groups_on_which_all_ranks_agree(pool: Pool) -> None:
    reports = pool.run(searches, 2)
    first = reports[0]
    for report in reports:
        for key in ("plans", "settled", "groups", "probe_times_s"):
            assert report[key] == first[key], key
        assert all(torch.equal(report["weights"][n], first["weights"][n]) for n in first["weights"])
    assert len(first["groups"]) == 2
    assert len(set(first["plans"])) > 2  # the dense one of the first iterations, and more than one cut
    assert first["last"] == first["settled"]
    assert len(first["probe_times_s"]) <= most_probes(first["tensors"], step=2, warmup=1)
    assert len(first["kept"]) == first["tensors"]


@each_rank(2)
def test_a_resumed_search_goes_on_where_it_was(group, rank, world):
    """Save in the middle of a search and load elsewhere."""
    model, optimizer, sync = attached("mlp", group, world, OPTIONS)
    train(model, optimizer, rank, range(12))
    file = io.BytesIO()
    torch.save(sync.state_dict(), file)
    file.seek(0)
    before = list(sync._planner.tuner.probe_times_s)
    sync.detach()
    again, again_optimizer, again_sync = attached("mlp", group, world, OPTIONS)
    again_sync.load_state_dict(torch.load(file, weights_only=False))
    loaded = list(again_sync._planner.tuner.probe_times_s)
    train(again, again_optimizer, rank, range(12, 150))
    ended = again_sync._planner.tuner.finished
    again_sync.detach()
    assert before
    assert loaded == before
    assert ended


# ---- on each rank ---------------------------------------------------------------------------------------------------


OPTIONS = {
    "scheme": "mergecomp",
    "compressor": "topk",
    "density": 0.1,
    "search": "measured",
    "probe_iters": 2,
    "probe_warmup": 1,
    "profile_iters": 2,
}


def searches(group: Any, rank: int, world: int) -> dict[str, Any]:
    """Train until the search has ended; report the plans used on the way and what the ranks hold at the end."""
    model, optimizer, sync = attached("mlp", group, world, OPTIONS)
    plans, steps = [], 0
    while sync._planner.tuner is None or not sync._planner.tuner.finished:
        train(model, optimizer, rank, range(steps, steps + 1))
        plans.append(sync.plan.digest)
        steps += 1
        assert steps < 400, "the search does not end"
    kept = {name: buffers["residual"] for name, buffers in sync.store.state_dict().items() if "residual" in buffers}
    settled = sync.plan.digest
    train(model, optimizer, rank, range(steps, steps + 5))
    report = {
        "plans": plans,
        "settled": settled,
        "last": sync.plan.digest,
        "probe_times_s": sync._planner.tuner.probe_times_s,
        "groups": [lane.tensors for _, lane in sync.plan.lanes()],
        "tensors": len(sync.plan.tensors),
        "weights": parameters(model),
        "kept": sorted(kept),
    }
    sync.detach()
    return report
