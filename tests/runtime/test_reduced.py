"""Reducers and collectives of several phases in the runtime: loss scales, bad steps, resumes, odd models, figures."""

from typing import Any

import pytest
import torch
from runtime import work_reduced as work
from runtime import work_reduced_models as models
from runtime.cases import in_turn, turns
from runtime.models import build, loss_of, parameters
from runtime.pool import Pool
from runtime.ranks import Ranks, each_rank, is_rank_0s
from runtime.work_reduced import attach, equal, spoilt

from ssfx.runtime.store import COLLECTIVE, COMPRESSOR, THRESHOLD

Options = dict[str, Any]

TOPK: Options = {"compressor": "topk", "density": 0.05}
CASES: dict[str, Options] = {
    "oktopk": {"scheme": "oktopk", **TOPK, "lane": "ok_topk(tau_prime=3,tau=4)"},
    "micro": {"scheme": "micro", "density": 0.05},
    "gtopk": {"scheme": "gtopk", "density": 0.05},
    "spardl": {"scheme": "spardl", "density": 0.05},
    "spardl teams": {"scheme": "spardl", "density": 0.05, "teams": 3},
    "sparcml": {"scheme": "sparcml", **TOPK},
    "s2reducer": {"scheme": "s2reducer", "density": 0.05},
    "espresso": {"scheme": "espresso", **TOPK},
    "a2a_ag": {"scheme": "fused_all", **TOPK, "lane": "a2a_ag"},
    "omnireduce": {"scheme": "omnireduce"},
    "parallax": {"scheme": "parallax", "tables": "*weight"},
    "hierarchical": {"scheme": "hierarchical"},
}
DENSE = {"omnireduce", "parallax", "hierarchical"}
ESTIMATES = {"s2reducer"}
PROFILED = {"espresso"}
BY_HAND = {"oktopk", "a2a_ag"}
COLLECTIVES = ("ok_topk(tau_prime=2,tau=3)", "micro", "gtopk", "spar_reduce_scatter", "sparcml_rd", "a2a_ag")
QUICK = {"oktopk", "micro", "gtopk", "spardl", "sparcml", "a2a_ag"}


def cases(*left_out: str) -> pytest.MarkDecorator:
    """Return the mark for every case but some; those that say little more than others are slow."""
    names = [name for name in CASES if name not in left_out]
    return pytest.mark.parametrize(
        "case", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]
    )


# Espresso's plan depends on measured times, so no two runs of it are the same.
@cases("espresso")
@each_rank(3, by="ranks")
def test_a_changing_loss_scale_changes_nothing_but_the_range(group, rank, world, case):
    """Train with a changing loss scale and without, with the same bad steps."""
    # Scales are powers of two, so the scaled run is the other one bit by bit, thresholds and residuals included.
    options = CASES[case]
    steps = 12
    bad = [0, 1, 5, 8, 9, 10]
    bad = set(bad)
    models = build("mlp"), build("mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    pairs = [attach(models[0], group, world, options, scaler=scaler), attach(models[1], group, world, options)]
    kept = True
    scales = set()
    for step in range(steps):
        spoils = step in bad and rank == world - 1
        for model, (optimizer, sync) in zip(models, pairs, strict=True):
            scaling = sync is pairs[0][1]
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            sync.store.follow(scaler.get_scale() if scaling else 1.0)
            before, plan = sync.store.state_dict(), sync.plan
            spoilt(model, spoils, scaler.scale(loss) if scaling else loss)
            assert sync.last.skipped == (step in bad)
            if step in bad and sync.plan is plan:
                kept &= not equal(before, sync.store.state_dict())
            if scaling:
                scaler.step(optimizer)
                scaler.update()
                scales.add(scaler.get_scale())
            else:
                optimizer.step()
    differing = [n for n, p in parameters(models[0]).items() if not torch.equal(p, parameters(models[1])[n])]
    states = [sync.store.state_dict() for _, sync in pairs]
    for buffers in states[0].values():
        for buffer, value in buffers.items():
            if buffer.startswith(THRESHOLD) or not buffer.startswith((COLLECTIVE, COMPRESSOR)):
                value /= pairs[0][1].store.loss_scale
    differing += equal(*states)
    for _, sync in pairs:
        sync.detach()
    assert {"differing": differing, "kept": kept, "scales": len(scales)} == {"differing": [], "kept": True, "scales": 4}


@each_rank(2, by="ranks")
def test_a_state_saved_under_a_loss_scale_goes_on_without_one(group, rank, world):
    """Save under a loss scale of 256, load without one."""
    options = CASES["oktopk"]
    model = build("mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer, sync = attach(model, group, world, options, scaler=scaler)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    state, before = sync.state_dict(), sync.stats()["residual_norm"]
    sync.detach()
    optimizer, sync = attach(model, group, world, options)
    sync.load_state_dict(state)
    sync._begin()  # as the first gradient of the next step does
    after = sync.stats()["residual_norm"]
    sync._finish()
    sync.detach()
    norms = before, after
    assert norms[0] > 0
    assert norms[1] == pytest.approx(norms[0] / 256)


@cases("espresso", *ESTIMATES)  # the sketch's hashes are of the step's number
@each_rank(3, by="ranks")
def test_a_run_with_bad_steps_equals_the_run_without_them(group, rank, world, case):
    """Train with bad steps between the good ones and without.

    The first five steps are good, so that both plan after the same ones.
    """
    # Of 11 steps some come after a bad one, or after several: steps that evaluate and repartition are among them.
    options = CASES[case]
    steps = 11
    bad = [5, 5, 6, 7, 8, 8, 8, 9, 10]
    models = build("mlp"), build("mlp")
    pairs = [attach(model, group, world, options) for model in models]
    for step in range(steps):
        for model, (optimizer, sync) in zip(models, pairs, strict=True):
            for _ in range(bad.count(step) if sync is pairs[0][1] else 0):
                optimizer.zero_grad()
                spoilt(model, rank == step % world, loss_of(model, rank, 1000 + step))
                assert sync.last.skipped
                optimizer.step()
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            assert not sync.last.skipped
            optimizer.step()
    differing = [n for n, p in parameters(models[0]).items() if not torch.equal(p, parameters(models[1])[n])]
    differing += equal(*(sync.store.state_dict() for _, sync in pairs))
    for _, sync in pairs:
        sync.detach()
    assert differing == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_resumed_after_any_step_is_the_same(ranks: Ranks, case: str) -> None:
    first = 5 if case in PROFILED else 0  # before that, what is planned depends on measured times
    assert ranks.run(work.resumes_anywhere, 3, CASES[case], range(first, 8)) == [[]] * 3


@each_rank(2, by="ranks")
def test_a_state_in_memory_does_not_change_when_the_run_goes_on(group, rank, world):
    options = CASES["espresso"]
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    for step in range(4):
        if step == 2:
            state = sync.state_dict()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    sync.detach()
    assert len(state["observed"][0]) == 2


@each_rank(2, by="ranks")
def test_a_new_plan_leaves_no_state_of_the_old_ones_collectives(group, rank, world):
    options = {"scheme": "oktopk", "density": 0.05}
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    firsts = set()
    for step in range(4):
        firsts.add(next(lane.tensors[0] for _, lane in sync.plan.lanes()))
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    assert len(firsts) == 2
    owners = [n for n, buffers in sync.state_dict()["memory"].items() if any(b.startswith(COLLECTIVE) for b in buffers)]
    sync.detach()
    assert len(owners) == 1


@cases()
def test_the_figures_of_a_step_are_what_was_exchanged(ranks: Ranks, case: str) -> None:
    for reports in ranks.run(work.figures, 3, CASES[case], 3):
        for report in reports:
            assert (report["reducers"] > 0) == (case not in DENSE)
            for figure in ("density", "missing", "bytes", "described"):
                told, found = report[figure]
                assert told == pytest.approx(found), figure
            assert report["spans"]


@pytest.mark.parametrize("compressor", ["chunk_topm", "dgc", "gaussiank", "mstopk", "redsync", "sidco"])
@pytest.mark.parametrize("case", ["a2a_ag", pytest.param("sparcml", marks=pytest.mark.slow)])
def test_what_any_compressor_selects_reaches_a_reducer_in_order(ranks: Ranks, case: str, compressor: str) -> None:
    for reports in ranks.run(work.figures, 3, {**CASES[case], "compressor": compressor}, 2):
        for report in reports:
            assert report["reducers"] == 1
            assert report["density"][0] == pytest.approx(report["density"][1])


DTYPES = (["bfloat16", "float32"], ["float32", "float32"], ["float16", "bfloat16"])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "dtypes"), turns([case for case in CASES if case not in BY_HAND], DTYPES))
def test_empty_tied_frozen_unused_and_mixed_parameters(ranks: Ranks, case: str, dtypes: list[str]) -> None:
    rounding = 1e-6 if set(dtypes) == {"float32"} else 1e-2
    for report in ranks.run(models.odd, 3, CASES[case], dtypes):
        assert report["same"]
        assert report["worst"] < rounding or case in ESTIMATES
        assert set(report["used"]) != {"all_reduce"} or dtypes[0] != "float32"  # half as many bytes may go dense


@pytest.mark.slow
@in_turn("lane,world", COLLECTIVES, (3, 5))
def test_fewer_elements_than_ranks(ranks: Ranks, lane: str, world: int) -> None:
    options = {"scheme": "fused_all", "compressor": "topk", "density": 0.3, "lane": lane}
    for sizes in ([1], [1, 0, 1], [4, 1, 7]):
        for report in ranks.run(models.few, world, options, sizes):
            assert report["same"], sizes
            assert report["worst"] < 1e-6, sizes


@cases(*BY_HAND)
def test_a_model_of_one_element_is_dense(ranks: Ranks, case: str) -> None:
    for report in ranks.run(models.few, 3, CASES[case], [1]):
        assert report["same"]
        assert report["worst"] < 1e-6


@pytest.mark.slow
@in_turn("case,memory", [case for case in CASES if case not in DENSE], ("none", "lr_scaled"))
@each_rank(3, by="ranks")
def test_memories_with_a_learning_rate_that_changes(group, rank, world, case, memory):
    """Train with a learning rate that changes, down to zero for a step."""
    options = {**CASES[case], "memory": memory}
    model = build("mlp")
    optimizer, sync = attach(model, group, world, options)
    for step in range(9):
        optimizer.param_groups[0]["lr"] = [0.1, 0.05, 0.2, 0.0, 0.01][step % 5]
        optimizer.zero_grad()
        spoilt(model, step == 7 and rank == 0, loss_of(model, rank, step))
        optimizer.step()
    same, finite = True, True
    for p in model.parameters():
        same &= is_rank_0s(p, group)
        finite &= bool(torch.isfinite(p).all())
    kept = [k for buffers in sync.store.state_dict().values() for k in buffers if not k.startswith("collective.")]
    sync.detach()
    report = {"same": same, "finite": finite, "kept": sorted(set(kept)), "skipped": sync.skipped_steps}
    assert report["same"]
    assert report["finite"]
    assert report["skipped"] == 1
    assert report["kept"] == ([] if memory == "none" else ["residual"])


REFUSED = [
    *(
        ({**CASES[case], "memory": m}, f"memory={m}")
        for m in ("dgc", "signum")
        for case in ("oktopk", "micro", "gtopk", "spardl", "espresso")
    ),
    ({**CASES["s2reducer"], "memory": "signum"}, "memory=signum"),
    ({**CASES["oktopk"], "compressor": "dgc"}, "takes topk only"),
    ({**CASES["micro"], "compressor": "topk(value_dtype=float16)"}, "float32"),
    ({**CASES["s2reducer"], "compressor": "topk"}, "block_topk"),
    ({**CASES["sparcml"], "compressor": "randomk"}, "randomk"),
    ({**CASES["spardl"], "teams": 2}, "teams=1"),
    ({**CASES["hierarchical"], "ranks_per_node": 2}, "ranks_per_node=1"),
]


@pytest.mark.parametrize(("options", "word"), REFUSED, ids=str)
def test_what_a_reducer_cannot_do_is_refused_in_one_line(ranks: Ranks, options: Options, word: str) -> None:
    for text in ranks.run(work.refusal, 3, options, 6):
        assert word in text
        assert "\n" not in text


def test_a_plan_made_later_is_checked_against_the_memory_too(ranks: Ranks) -> None:
    for text in ranks.run(work.refusal, 3, {"scheme": "espresso", **TOPK, "memory": "dgc"}, 6):
        assert "a2a_ag" in text


PAIRS = [
    ("oktopk", "micro"),
    pytest.param("spardl", "sparcml", marks=pytest.mark.slow),
    pytest.param("a2a_ag", "parallax", marks=pytest.mark.slow),
    pytest.param("s2reducer", "gtopk", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_models_and_attaching_again_do_not_disturb_one_another(pool: Pool, one: str, other: str) -> None:
    both = [CASES[one], CASES[other]]
    assert pool.run(models.two_models, 3, both, False) == [[]] * 3
    assert pool.run(models.two_models, 3, both, True) == [[]] * 3
    assert pool.run(models.again, 3, *both) == [[]] * 3


@cases("espresso", "spardl teams")
def test_a_group_of_some_ranks(pool: Pool, case: str) -> None:
    assert pool.run(models.part_of_the_world, 3, CASES[case]) == [[]] * 3
