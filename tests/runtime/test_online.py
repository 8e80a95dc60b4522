"""Online profiling, agreement between ranks, and calibration."""

from pathlib import Path
from typing import Any

import pytest
import torch
from runtime.models import build, loss_of
from runtime.pool import Pool
from runtime.ranks import each_rank
from runtime.work_guards import error_of
from torch import nn

import ssfx
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import ConfigError, RunError
from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.runtime.checks import agree, check_same
from ssfx.runtime.online import Observer, calibrate, parameter_names, registration_profile


def test_a_profile_is_in_order_of_mean_arrival(pool: Pool) -> None:
    slow_start = {"a": 9.0, "b": 9.0, "c": 9.0, "d": 9.0}  # the first of several passes does not count
    ranks = [[slow_start, {"a": 0.3, "b": 0.1, "c": 0.2}], [slow_start, {"a": 0.1, "b": 0.2, "c": 0.4}]]
    first, second = pool.run(profile_of, 2, ranks)
    assert first == second
    assert [spec.name for spec in first.tensors] == ["b", "a", "c", "d"]
    assert first.ready_gap_s == pytest.approx((0.15, 0.05, 0.1, 0.0))
    assert first.forward_s == 0.5
    assert first.origin.kind == "measured"


def test_a_parameter_seen_by_one_rank_takes_its_time_and_one_seen_by_none_comes_last(pool: Pool) -> None:
    ranks = [[{"c": 0.2, "a": 0.3}], [{"a": 0.3, "d": 0.1}]]
    for profile in pool.run(profile_of, 2, ranks):
        assert [spec.name for spec in profile.tensors] == ["d", "c", "a", "b"]
        assert profile.ready_gap_s == pytest.approx((0.1, 0.1, 0.1, 0.0))


def test_parameters_that_never_had_a_gradient_keep_reversed_registration_order(pool: Pool) -> None:
    for profile in pool.run(profile_of, 2, [[{"b": 0.2}], [{"b": 0.2}]]):
        assert [spec.name for spec in profile.tensors] == ["b", "d", "c", "a"]
        assert sum(profile.ready_gap_s) == pytest.approx(0.2)


@each_rank(2)
def test_an_observer_records_what_arrives_and_leaves_no_hooks(group, rank, world):
    model = build("branches")
    params = parameter_names(model)
    observer = Observer(model, list(params), CPU, 2)
    for name, p in params.items():
        p.register_post_accumulate_grad_hook(lambda _, name=name: observer.seen(name))
    for step in range(2):
        assert not observer.complete
        loss_of(model, rank, step).backward()
        observer.end_step()
    observer.close()
    profile = observer.profile(registration_profile(params), TorchComm(group))
    order = [s.name for s in profile.tensors]
    hooks = len(model._forward_hooks) + len(model._forward_pre_hooks)
    assert hooks == 0
    for record in observer.records:
        assert set(record) == {"a.weight", "a.bias", "b.weight", "b.bias", "head.weight", "head.bias"}
        assert all(second >= 0 for second in record.values())
    assert {*order[:2]} == {"head.weight", "head.bias"}
    assert {*order[-2:]} == {"spare.weight", "spare.bias"}


def test_ddp_groups_again_in_the_order_of_arrival_on_every_rank_alike(pool: Pool) -> None:
    results = pool.run(replanned, 3)
    for before, after, digest in results:
        assert before[0] == "spare.bias"
        assert {*after[-2:]} == {"spare.weight", "spare.bias"}
        assert (after, digest) == results[0][1:]


def test_agree_gives_rank_0s_answer_to_all(pool: Pool) -> None:
    assert pool.run(agreed, 3, "") == ["{'made by': 0}"] * 3


@pytest.mark.parametrize("failure", ["ConfigError", "RunError"])
def test_agree_raises_rank_0s_error_on_all(pool: Pool, failure: str) -> None:
    assert pool.run(agreed, 3, failure) == [f"{failure}: no plan: ü"] * 3


def test_agree_tells_other_ranks_of_a_bug_on_rank_0(pool: Pool) -> None:
    first, *others = pool.run(agreed, 3, "ValueError")
    assert first == "ValueError: no plan: ü"
    assert others == ["RunError: rank 0 failed with ValueError: no plan: ü"] * 2


@pytest.mark.parametrize(("odd", "world"), [(1, 2), (1, 3), (2, 3)])
def test_check_same_names_the_rank_that_differs_on_all_ranks(pool: Pool, odd: int, world: int) -> None:
    digests = ["f" * 16 if rank == odd else "0123456789abcdef" for rank in range(world)]
    for text in pool.run(differing, world, digests):
        assert "the plan" in text
        assert f"rank {odd}" in text
        assert "\n" not in text


def test_check_same_is_silent_when_all_agree(pool: Pool) -> None:
    assert pool.run(differing, 3, ["f" * 16] * 3) == ["", "", ""]


@pytest.mark.parametrize("compressor", ["topk", "dgc", "fp16"])
def test_calibration_is_monotone_and_equal_on_all_ranks(pool: Pool, compressor: str) -> None:
    first, *others = pool.run(costs, 3, compressor)
    assert others == [first] * 2
    assert set(first.exchange) == {
        "all_reduce",
        "all_gather",
        "all_gather_v",
        "all_gather_twice",
        "all_to_all",
        "broadcast",
        "send",
    }
    for curve in first.exchange.values():
        assert list(curve.seconds) == sorted(curve.seconds)
        assert curve.seconds[0] > 0
        assert curve.covers(4 * 5000)
    for curve in (first.encode, first.host, first.decode):
        assert curve.covers(5000)
        assert min(curve.seconds) > 0
    assert first.host == first.encode  # a CPU has no other host
    assert first.world_size == 3


@each_rank(2)
def test_a_running_training_is_advised_and_its_profile_kept(group, rank, world, tmp_path):
    path = str(tmp_path)
    model = build("branches")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    try:
        early = str(sync.advise())
    except ConfigError as error:
        early = str(error)
    loss_of(model, rank, 0).backward()
    answer = str(sync.advise("box", cluster_device="cpu", cluster_nodes=2, density=0.02, batch_size=4))
    sync.profile.save(f"{path}/profile{rank}.json")
    sync.detach()
    text = Path(path, f"profile{rank}.json").read_text()
    assert "no gradients were observed yet" in early
    assert "model on box(device=cpu)" in answer.splitlines()[0]
    assert "batch 4 each, density 0.02" in " ".join(answer.splitlines()[:2])
    assert "\nNOW       DDP (25 MiB" in answer
    assert Profile.from_json(text).tensors[0].name


# ---- on each rank ---------------------------------------------------------------------------------------------------


CPU = torch.device("cpu")


def profile_of(group: Any, rank: int, world: int, records: list[list[dict[str, float]]]) -> Profile:
    """Return the agreed profile of four parameters a, b, c, d with hand-made arrival times per rank and step."""
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(2)) for name in "abcd"})
    params = parameter_names(model)
    observer = Observer(model, list(params), CPU, len(records[rank]))
    observer.records = [dict(record) for record in records[rank]]
    observer.forward_s = [0.5] * len(records[rank])
    assert observer.complete
    observer.close()
    return observer.profile(registration_profile(params), TorchComm(group))


def agreed(group: Any, rank: int, world: int, failure: str) -> str:
    """Return what `agree` gives or raises when rank 0's part fails in the way asked for."""

    def make() -> dict[str, int]:
        assert rank == 0
        if failure:
            raise {"ConfigError": ConfigError, "RunError": RunError, "ValueError": ValueError}[failure]("no plan: ü")
        return {"made by": rank}

    try:
        return str(agree(TorchComm(group), make))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def differing(group: Any, rank: int, world: int, digests: list[str]) -> str:
    return error_of(lambda: check_same(TorchComm(group), digests[rank], "the plan"))


def costs(group: Any, rank: int, world: int, compressor: str) -> Costs:
    return calibrate(TorchComm(group), CPU, compressor, 0.05, 5000)


def replanned(group: Any, rank: int, world: int) -> tuple[list[str], list[str], str]:
    """Return the order of tensors before and after the first step of DDP, and the plan's digest."""
    model = build("branches")
    sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
    before = [s.name for s in sync.plan.tensors]
    loss_of(model, rank, 0).backward()
    after = [s.name for s in sync.plan.tensors]
    sync.detach()
    return before, after, sync.plan.digest
