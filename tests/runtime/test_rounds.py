"""Structured and low-rank compressors on real process groups: two rounds, state of their own, equal replicas."""

from typing import Any

import pytest
import torch
from runtime import work
from runtime.models import batch, loss_of, parameters
from runtime.ranks import Ranks
from runtime.test_conformance import assert_same, name
from runtime.work import Options, attached, train

from ssfx.simulator.pricing.message_sizes import plan_bytes

WORLDS = (2, pytest.param(3, marks=pytest.mark.slow))
SELECTING = ("block_topk(block=8)", "block_topk(agreed=True,block=8)", "chunk_topm", "cltk")
LOW_RANK = ("powersgd(rank=2)", "acpsgd(rank=2)")
CASES: list[Options] = [
    *({"scheme": "per_tensor", "compressor": spec, "density": 0.1} for spec in SELECTING),
    *({"scheme": "per_tensor", "compressor": spec} for spec in LOW_RANK),
]
MORE: list[Options] = [
    {"scheme": "per_tensor", "compressor": "acpsgd(warm_start=False)"},
    {"scheme": "per_tensor", "compressor": "cltk(value_dtype=float16)", "density": 0.1},
    {"scheme": "per_tensor", "compressor": "cltk", "density": 0.1, "memory": "residual"},
    {"scheme": "fused_all", "compressor": "block_topk(agreed=True)", "density": 0.1},
    {"scheme": "fused_all", "compressor": "powersgd"},
    {"scheme": "ddp", "compressor": "powersgd"},
    {"scheme": "ssfusion_oi", "rule": "paper", "compressor": "block_topk(block=8)", "density": 0.1},
]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("options", [*CASES, *MORE], ids=name)
def test_it_trains_and_replicas_stay_bit_identical(ranks: Ranks, world: int, options: Options) -> None:
    reports = ranks.run(trains, world, options, 25)
    for report in reports:
        assert_same(report["weights"], reports[0]["weights"])
        assert_same(report["state"], reports[0]["state"])
        assert report["surplus_bytes"] == 0
    assert sum(r["after"] for r in reports) < 0.7 * sum(r["before"] for r in reports)
    warm = options["compressor"].startswith(("powersgd", "acpsgd"))
    assert any(bool(value.any()) for value in reports[0]["state"].values()) == warm


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("spec", [*SELECTING, "powersgd(rank=1000)", "acpsgd(rank=1000)"])
def test_keeping_everything_gives_the_dense_average(ranks: Ranks, world: int, fused: bool, spec: str) -> None:
    collective = "all_gather" if spec in ("block_topk(block=8)", "chunk_topm") else "all_reduce"
    assert max(ranks.run(work.average_with_plan, world, spec, 1.0, collective, fused, "device")) < 1e-6


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("options", CASES, ids=name)
def test_mass_is_conserved(ranks: Ranks, world: int, options: Options) -> None:
    for violation, kept in ranks.run(work.conserves_mass, world, options):
        assert violation < 1e-5
        assert kept > 0


@pytest.mark.parametrize("options", [*CASES, MORE[2]], ids=name)
def test_a_resumed_run_equals_an_uninterrupted_one(ranks: Ranks, options: Options) -> None:
    assert all(ranks.run(work.resumes_exactly, 2, options, 3))


@pytest.mark.parametrize("options", [*CASES, MORE[2]], ids=name)
def test_a_step_with_one_bad_number_leaves_no_trace(ranks: Ranks, options: Options) -> None:
    reports = ranks.run(work.rolls_back, 2, options, float("nan"))
    for report in reports:
        assert report["skipped"]
        assert report["nothing_in_grad"]
        assert report["memory_kept"]  # what the compressors keep included
        assert report["weights_kept"]
        assert report["goes_on"]
        assert_same(report["weights"], reports[0]["weights"])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("options", CASES, ids=name)
def test_ranks_may_disagree_on_order_and_presence(ranks: Ranks, world: int, options: Options) -> None:
    for function in (work.survives_disorder, work.rank_without_gradients):
        results = ranks.run(function, world, options)
        for weights in results[1:]:
            assert_same(weights, results[0])


@pytest.mark.parametrize("spec", LOW_RANK)
def test_a_tensor_without_gradients_for_a_while_comes_back(ranks: Ranks, spec: str) -> None:
    norms = ranks.run(tensor_in_and_out, 2, {"scheme": "per_tensor", "compressor": spec})[0]
    assert norms["step 1"] > 0
    assert norms["step 7"] > 0.1 * norms["step 1"]
    assert torch.isfinite(torch.tensor(list(norms.values()))).all()


def test_acpsgd_sends_one_factor_at_its_own_length(ranks: Ranks) -> None:
    # first.weight is 300 x 20 and middle.weight 40 x 300: 340 rows, 320 columns; last.weight 5 x 40 would not halve.
    others = 300 + 40 + 40 + 40 + 200 + 5 + 1
    options: Options = {"scheme": "fused_all", "compressor": "acpsgd(rank=3)"}
    for sent in ranks.run(sent_by_step, 2, options, 4):
        assert sent == [4 * (3 * rows + others) for rows in (340, 320, 340, 320)]


# ---- on each rank ---------------------------------------------------------------------------------------------------


def trains(group: Any, rank: int, world: int, options: Options, steps: int) -> dict[str, Any]:
    """Train on one batch per rank; report loss before and after, weights, compressors' state and bytes beyond plan."""
    model, optimizer, sync = attached("mlp", group, world, options, lr=0.05)
    before = loss_of(model, rank, 0).item()
    for _ in range(steps):
        train(model, optimizer, rank, range(1))
    state = {
        f"{name} {buffer}": value
        for name, buffers in sync.store.state_dict().items()
        for buffer, value in buffers.items()
        if buffer.startswith("compressor.")
    }
    report = {
        "before": before,
        "after": loss_of(model, rank, 0).item(),
        "weights": parameters(model),
        "state": state,
        "surplus_bytes": sync.last.contributed_bytes - plan_bytes(sync.plan),
    }
    sync.detach()
    return report


def tensor_in_and_out(group: Any, rank: int, world: int, options: Options) -> dict[str, float]:
    """Let the gradients of one tensor vanish for a few steps on every rank; return its update before and after."""
    model, optimizer, sync = attached("mlp", group, world, options)
    norms = {}
    for step in range(8):
        gone = 2 <= step < 5
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if gone:
            x, _ = batch(rank, step)
            loss = model.last(torch.tanh(model.first(x))[:, :40]).square().mean()  # not through `middle`
        loss.backward()
        grad = model.middle.weight.grad
        norms[f"step {step}"] = 0.0 if grad is None else float(grad.norm())
        optimizer.step()
    sync.detach()
    return norms


def sent_by_step(group: Any, rank: int, world: int, options: Options, steps: int) -> list[int]:
    """Return the bytes that each of the first steps put on the wire."""
    model, optimizer, sync = attached("mlp", group, world, options)
    sent = []
    for step in range(steps):
        train(model, optimizer, rank, range(step, step + 1))
        sent.append(sync.last.sent_bytes)
    sync.detach()
    return sent
