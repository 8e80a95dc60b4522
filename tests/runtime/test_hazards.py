"""What a script may do that could corrupt an exchange or hang it: it goes well or is refused."""

import gc
import threading
from typing import Any

import pytest
import torch
from runtime import work_hazards as work
from runtime.cases import DENSE, SPARSE, in_turn, of_scheme
from runtime.pool import Pool
from runtime.test_queue import Message, messages, running

import ssfx
from ssfx.collectives.comm import Comm


def test_a_lane_under_way_when_a_step_was_given_up_is_not_counted_in_the_next() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        leave.wait(10)

    with running() as queue:
        issued: list[int] = []
        queue.begin([Message(9, issued, slow, blocking=True)])  # type: ignore[list-item]
        queue.ready(0)
        assert entered.wait(10)
        queue.fail(RuntimeError("a host segment failed"))
        with pytest.raises(RuntimeError, match="host segment"):
            queue.drain()
        queue.begin(messages(2, issued))
        leave.set()
        queue.ready(1)
        queue.ready(0)
        queue.drain()
        assert issued == [9, 0, 1]


def test_a_disabled_grad_scaler_is_no_grad_scaler(pool: Pool) -> None:
    assert pool.run(work.disabled_scaler, 2) == [True, True]


def test_a_caught_error_in_backward_is_not_trained_over(pool: Pool) -> None:
    for text in pool.run(work.after_a_failed_backward, 2):
        assert "ended with an exception" in text


@pytest.mark.parametrize("options", [{}, work.SPARSE], ids=["ddp", "topk"])
def test_reentrant_checkpointing_changes_nothing(pool: Pool, options: dict[str, Any]) -> None:
    for steps, distance in pool.run(work.reentrant_checkpoint, 2, options):
        assert steps == 4
        assert distance < 1e-5


def test_an_optimizer_with_a_closure_exchanges_once_a_step(pool: Pool) -> None:
    assert pool.run(work.closure, 2) == [3, 3]


@pytest.mark.parametrize(
    "options",
    [
        [{"scheme": "ssfusion_oi"}, {"scheme": "ddp"}],
        [{"scheme": "ssfusion_oi"}, {"scheme": "ssfusion_oi", "profile_iters": 7}],
        [
            {"scheme": "per_tensor", "compressor": "randomk", "seed": 0},
            {"scheme": "per_tensor", "compressor": "randomk", "seed": 1},
        ],
        [{"scheme": "per_tensor", "memory": "residual"}, {"scheme": "per_tensor", "memory": "dgc"}],
    ],
    ids=["scheme", "profile_iters", "seed", "memory"],
)
def test_ranks_with_other_options_are_refused(pool: Pool, options: list[dict[str, Any]]) -> None:
    for text in pool.run(work.differing_option, 2, options):
        assert "rank 1" in text


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (work.SPARSE, work.SPARSE | {"density": 0.2}),
        (work.SPARSE, work.SPARSE | {"compressor": "dgc"}),
        (work.SPARSE, work.SPARSE | {"memory": "dgc"}),
        (work.SPARSE, work.SPARSE | {"seed": 3}),
    ],
    ids=["density", "compressor", "memory", "seed"],
)
def test_a_state_of_other_options_is_refused(pool: Pool, saved: dict[str, Any], loaded: dict[str, Any]) -> None:
    for text in pool.run(work.loads, 2, saved, loaded):
        assert text


def test_a_state_from_profiling_profiles_again(pool: Pool) -> None:
    assert pool.run(work.early_state, 2) == ["ssfusion_oi"] * 2


def test_attaching_twice_is_refused(pool: Pool) -> None:
    for text in pool.run(work.attached_twice, 2):
        assert "detach" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "wfbp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.999, "sizes": "variable", "grouping": "none"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.999, "grouping": "none"},
    ],
    ids=["wfbp", "variable", "fixed"],
)
def test_collectives_in_backward_do_not_mix_with_the_exchange(pool: Pool, options: dict[str, Any]) -> None:
    for distance in pool.run(work.collective_in_backward, 3, options):
        assert distance < 1e-2


@pytest.mark.slow
def test_host_placed_lanes_do_not_mix_with_collectives_in_backward(pool: Pool) -> None:
    for distance in pool.run(work.host_placed, 3):
        assert distance < 1e-2


def test_a_parameter_unfrozen_later_is_exchanged_or_refused(pool: Pool) -> None:
    assert pool.run(work.unfrozen_later, 2) == [True, True]


@in_turn("options,dtype", [of_scheme(scheme, 2) for scheme in [*DENSE, *SPARSE]], ("bfloat16", "float64"))
def test_the_default_dtype_of_torch_changes_nothing(pool: Pool, options: dict[str, Any], dtype: str) -> None:
    assert pool.run(work.default_dtype, 2, options, dtype) == [True, True]


def test_a_new_optimizer_at_the_address_of_one_that_has_stepped_is_no_second_step() -> None:
    def train(rank: int, comm: Comm) -> tuple[bool, list[float]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        sync = ssfx.attach(model, torch.optim.SGD(model.parameters(), 0.1), comm=comm, scheme="ddp")
        model(torch.ones(2, 4)).sum().backward()
        held = [torch.optim.SGD(model.parameters(), 0.0) for _ in range(30)]
        for one in held:
            one.step()
        addresses = {id(one) for one in held}
        if rank == 0:
            held.clear()
            del one
            gc.collect()
        # One rank alone makes many: the other, in the same process, would take the addresses that became free.
        made = [torch.optim.SGD(model.parameters(), 0.1) for _ in range(1 if rank else 3000)]
        new = next((one for one in made if id(one) in addresses), made[0])
        new.step()  # with the same averages
        sync.detach()
        return id(new) in addresses, model.bias.tolist()

    (there, one), (elsewhere, other) = ssfx.virtual_ranks(train, 2)
    assert there
    assert not elsewhere
    assert one == other
