"""Virtual ranks train as real ones do, in every bit; what cannot be done is said in one line."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from docs.markdown import python_blocks
from runtime import work
from runtime.cases import CASES, DENSE, Options, ident, of_scheme, profiled, turns
from runtime.models import batch, build, loss_of
from runtime.pool import Pool
from runtime.ranks import Virtual
from runtime.work import costs_for
from torch import nn

import ssfx
from ssfx.collectives.comm import Comm
from ssfx.compressors.memories import memories
from ssfx.core.errors import ConfigError, RunError
from ssfx.runtime.online import parameter_names, registration_profile

ALL = [*CASES, *(of_scheme(scheme, 2) for scheme in DENSE)]
SOME = turns(ALL, [2, 3, 4])
OTHERS = [(options, world) for options in ALL for world in (2, 3, 4) if (options, world) not in SOME]


@pytest.fixture(scope="module")
def eight() -> Iterator[Pool]:
    pool = Pool(8)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("options", "world"), [*SOME, *(pytest.param(*case, marks=pytest.mark.nightly) for case in OTHERS)], ids=ident
)
def test_real_ranks_are_equalled_in_every_bit(pool: Pool, options: Options, world: int) -> None:
    assert_equal(pool, options, world)


@pytest.mark.nightly
@pytest.mark.parametrize("options", ALL, ids=ident)
def test_eight_real_ranks_are_equalled_in_every_bit(eight: Pool, options: Options) -> None:
    assert_equal(eight, options, 8)


def test_real_ranks_with_other_orders_and_no_gradients_are_equalled(pool: Pool) -> None:
    options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.1}
    for work_function in (work.survives_disorder, work.rank_without_gradients):
        assert_same(pool.run(work_function, 3, options), Virtual().run(work_function, 3, options))


def assert_equal(pool: Any, options: Options, world: int) -> None:
    options = {**options, **({"costs": of_scheme(options["scheme"], world)["costs"]} if "costs" in options else {})}
    real = pool.run(on_gloo, world, options)
    for share in (False, True):  # of the weights
        assert_same(real, virtual(world, options, share=share))


def assert_same(real: list[dict[str, Any]], virtual: list[dict[str, Any]]) -> None:
    for rank, (one, other) in enumerate(zip(real, virtual, strict=True)):
        for what, value in one.items():
            if isinstance(value, dict):
                assert value.keys() == other[what].keys(), what
                for name, tensor in value.items():
                    assert torch.equal(tensor, other[what][name]), (rank, what, name)
            elif isinstance(value, torch.Tensor):
                assert torch.equal(value, other[what]), (rank, what)
            else:
                assert value == other[what], (rank, what)


def attached(comm: Comm, **options: Any) -> tuple[Any, Any, Any]:
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, ssfx.attach(model, optimizer, comm=comm, **options)


def unequal_batches(rank: int, comm: Comm) -> None:
    model, optimizer, _ = attached(comm, scheme="oktopk")
    for step in range(4 - rank):
        loss_of(model, rank, step).backward()
        optimizer.step()


def detaches_early(rank: int, comm: Comm) -> None:
    model, _, sync = attached(comm)
    for step in range(4 - rank):
        loss_of(model, rank, step).backward()
    sync.detach()


def raises_in_backward(rank: int, comm: Comm) -> None:
    model, _, _ = attached(comm, scheme="per_tensor")
    if rank == 1:
        model.first.weight.register_hook(lambda grad: 1 / 0)
    loss_of(model, rank, 0).backward()


def joins(rank: int, comm: Comm) -> None:
    with attached(comm)[2].join():
        pass


def loads_alone(rank: int, comm: Comm) -> None:
    model, _, sync = attached(comm, scheme="per_tensor")
    if rank == 0:
        sync.load_state_dict(sync.state_dict())
    loss_of(model, rank, 0).backward()


def attaches_in_a_thread(rank: int, comm: Comm) -> None:
    with ThreadPoolExecutor(1) as pool:
        model = build("mlp")
        pool.submit(ssfx.attach, model, torch.optim.SGD(model.parameters(), lr=0.1)).result()


def other_models(rank: int, comm: Comm) -> None:
    model = build("mlp" if rank else "tied")
    ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), comm=comm)


@pytest.mark.parametrize(
    ("train", "error", "says"),
    [
        (unequal_batches, RunError, r"virtual rank .: .* rank 2 .* has ended; give all ranks as many batches"),
        (detaches_early, RunError, r"virtual rank .: rank . has detached after . exchanges"),
        (raises_in_backward, RunError, r"virtual rank 1 raised ZeroDivisionError"),
        (joins, ConfigError, r"virtual rank 0: join\(\) needs real ranks"),
        (loads_alone, RunError, r"virtual rank .: .*rank 0 loads a state"),
        (attaches_in_a_thread, ConfigError, r"virtual rank 0: virtual ranks run, and this thread is of none"),
        (other_models, ConfigError, r"virtual rank .: parameter number 0 is .* on rank 0 and .* on ranks 1"),
    ],
)
def test_one_error_names_the_rank_and_no_thread_is_left(train: Any, error: Any, says: str) -> None:
    before = threading.active_count()
    with pytest.raises(error, match=says) as caught:
        ssfx.virtual_ranks(train, 3)
    assert "\n" not in str(caught.value)
    assert threading.active_count() == before


def test_a_step_with_nan_on_one_rank_is_undone_on_all() -> None:
    def train(rank: int, comm: Comm) -> tuple[bool, bool, int]:
        model, optimizer, sync = attached(comm, scheme="oktopk")
        loss_of(model, rank, 0).backward()
        optimizer.step()
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.zero_grad()
        (loss_of(model, rank, 1) * (float("nan") if rank == 1 else 1.0)).backward()
        optimizer.step()
        same = all(torch.equal(weights[name], p) for name, p in model.named_parameters())
        return bool(sync.last.skipped), same, sync.skipped_steps

    assert ssfx.virtual_ranks(train, 3) == [(True, True, 1)] * 3


def test_a_step_of_one_rank_ends_while_another_is_in_the_middle_of_its_own_closure() -> None:
    def train(rank: int, comm: Comm) -> torch.Tensor:
        model = build("mlp")
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
        ssfx.attach(model, optimizer, comm=comm)  # which changes its plan after three exchanges

        for step in range(4):

            def loss(step: int = step) -> torch.Tensor:
                optimizer.zero_grad()
                found = loss_of(model, rank, step)
                found.backward()
                return found.detach()

            optimizer.step(loss)
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    trained = ssfx.virtual_ranks(train, 4)
    assert all(torch.equal(trained[0], other) for other in trained)


def test_exchanges_of_two_models_do_not_mix() -> None:
    def train(rank: int, comm: Comm) -> list[torch.Tensor]:
        (one, first, _), (other, second, _) = attached(comm, scheme="oktopk"), attached(comm, scheme="per_tensor")
        for step in range(3):
            for model in (one, other) if rank else (other, one):
                model.zero_grad()
            (loss_of(one, rank, step) + loss_of(other, rank, step)).backward()
            first.step()
            second.step()
        return [*one.parameters(), *other.parameters()]

    ranks = ssfx.virtual_ranks(train, 3)
    assert all(torch.equal(a, b) for rank in ranks[1:] for a, b in zip(ranks[0], rank, strict=True))


def test_a_profile_of_another_model_is_refused() -> None:
    def train(rank: int, comm: Comm) -> None:
        model, other = build("mlp"), attached(comm)[2].profile
        model.first = torch.nn.Linear(20, 301)
        ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), comm=comm, profile=other)

    with pytest.raises(ConfigError, match=r"profile= is of another model: parameter first.bias of shape"):
        ssfx.virtual_ranks(train, 2)
    with pytest.raises(ConfigError, match="at least one rank"):
        ssfx.virtual_ranks(train, 0)


def test_the_example_of_the_page_works_as_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "attach.md"
    (example,) = (block for block in python_blocks(page) if block.startswith("# virtual ranks\n"))
    names: dict[str, Any] = {"ssfx": ssfx, "torch": torch}
    exec(example, names)
    assert len(set(names["losses"])) == 8  # of other batches
    assert max(names["losses"]) < 1.0  # what a model that says 0 has, on average


def test_sharded_models_need_real_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssfx.runtime.attach._extension", lambda model: print)
    with pytest.raises(ConfigError, match="virtual ranks exchange gradients of whole models"):
        ssfx.virtual_ranks(lambda rank, comm: attached(comm), 2)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_shared_weights_and_optimizer_state_are_in_memory_once(kind: Any) -> None:
    def train(rank: int, comm: Comm) -> tuple[list[int], int, list[torch.Tensor]]:
        model = build("tied")
        optimizer = kind(model.parameters(), lr=0.1, fused=True)
        if comm.world_size == 3:
            ssfx.share_weights(model, optimizer, comm)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        ssfx.attach(model, optimizer, comm=comm, scheme="oktopk", density=0.1)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, 0, step, "tied").backward()
            optimizer.step()
            schedule.step()
        return [p.data_ptr() for p in model.parameters()], len(optimizer.state), [*model.parameters()]

    (places, states, weights), *others = ssfx.virtual_ranks(train, 3)
    assert all(other[0] == places for other in others)
    assert [len(places) > 0, states > 0 or kind is torch.optim.SGD] == [True, True]
    assert [other[1] for other in others] == [0, 0]
    with torch.no_grad():  # ranks that all see the same batches are one rank, but for rounding
        (alone,) = ssfx.virtual_ranks(train, 1)
        assert all(a.shape == b.shape and bool(torch.isfinite(a).all()) for a, b in zip(weights, alone[2], strict=True))


def with_closure(rank: int, comm: Comm) -> None:
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ssfx.share_weights(model, optimizer, comm)
    optimizer.step(lambda: 0.0)


def after_a_schedule(rank: int, comm: Comm) -> None:
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    ssfx.share_weights(model, optimizer, comm)


@pytest.mark.parametrize(
    ("train", "says"), [(with_closure, "cannot step with a closure"), (after_a_schedule, "share weights before that")]
)
def test_what_shared_weights_cannot_do_is_refused(train: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ssfx.virtual_ranks(train, 2)


def decay(model: nn.Module, optimizer: Any) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.9)


def decay_by_data(model: nn.Module, optimizer: Any) -> None:
    model.first.weight.data *= 0.9


def decay_into_other_memory(model: nn.Module, optimizer: Any) -> None:
    model.first.weight.data = model.first.weight.data * 0.9


def noise(model: nn.Module, optimizer: Any) -> None:
    model.last.weight.data += 1e-4 * torch.randn_like(model.last.weight)


def swapped_rows(model: nn.Module, optimizer: Any) -> None:
    model.last.weight.data.copy_(model.last.weight.data.flip(0).clone())


def loaded(model: nn.Module, optimizer: Any) -> None:
    model.load_state_dict(build("mlp", seed=1).state_dict())


def clamped(model: nn.Module, optimizer: Any) -> None:
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)


def lookahead(model: nn.Module, optimizer: Any) -> None:
    for p, slow in zip(model.parameters(), build("mlp").parameters(), strict=True):
        p.data.copy_(slow.detach().lerp(p.detach(), 0.5))


def nothing(model: nn.Module, optimizer: Any) -> None:
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict({name: torch.zeros_like(value) for name, value in saved.items()})  # an average, say
    model.load_state_dict(saved)


CHANGES = [decay, decay_by_data, decay_into_other_memory, noise, swapped_rows, loaded, clamped, lookahead]


def shared_and_changed(rank: int, comm: Comm, change: Any, on: tuple[int, ...], ascend: bool = False) -> int:
    model = build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ssfx.share_weights(model, optimizer, comm)
    sync = ssfx.attach(model, optimizer, comm=comm, scheme="ddp")
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        if ascend and step == 1 and rank in on:  # as the first pass of sharpness-aware minimisation by hand
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad)
            optimizer.zero_grad()
        if ascend and step == 1:
            loss_of(model, rank, step).backward()
        optimizer.step()
        if step == 1 and rank in on:
            change(model, optimizer)
    return sync.step


@pytest.mark.parametrize("on", [(0, 1, 2), (1,)], ids=["all", "one"])
@pytest.mark.parametrize("change", CHANGES)
def test_shared_weights_that_a_script_changes_are_refused(change: Any, on: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"were changed outside of optimizer.step\(\)") as caught:
        ssfx.virtual_ranks(lambda rank, comm: shared_and_changed(rank, comm, change, on), 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("on", [(0, 1, 2), (2,)], ids=["all", "one"])
def test_shared_weights_that_are_moved_between_two_passes_are_refused(on: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="were changed outside"):
        ssfx.virtual_ranks(lambda rank, comm: shared_and_changed(rank, comm, nothing, on, ascend=True), 3)


def test_shared_weights_may_be_swapped_for_an_evaluation_and_loaded_before_the_first_exchange() -> None:
    def train(rank: int, comm: Comm) -> int:
        return shared_and_changed(rank, comm, nothing, (0, 1, 2))

    assert ssfx.virtual_ranks(train, 3) == [4, 4, 4]


def test_two_optimizers_step_the_weights_of_one_model_that_ranks_share() -> None:
    def train(rank: int, comm: Comm, share: bool) -> torch.Tensor:
        model = build("mlp")
        both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.first, model.last)]
        model.middle.requires_grad_(False)
        model.norm.requires_grad_(False)
        model.gain.requires_grad_(False)
        for optimizer in both if share else ():
            ssfx.share_weights(model, optimizer, comm)
        ssfx.attach(model, both, comm=comm, scheme="topk", density=0.2)
        for step in range(4):
            model.zero_grad()
            loss_of(model, rank, step).backward()
            for optimizer in both:
                optimizer.step()
        return nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    shared, own = (ssfx.virtual_ranks(lambda rank, comm, s=s: train(rank, comm, s), 3) for s in (True, False))
    assert all(torch.equal(one, own[0]) for one in [*shared, *own])


def test_attach_knows_the_rank_that_calls_it() -> None:
    def train(rank: int, comm: Comm) -> tuple[int, torch.Tensor]:
        model = build("mlp")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = ssfx.attach(model, optimizer)
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
        return sync.comm.world_size, nn.utils.parameters_to_vector(model.parameters()).detach()

    results = ssfx.virtual_ranks(train, 3)
    assert [size for size, _ in results] == [3, 3, 3]
    assert all(torch.equal(weights, results[0][1]) for _, weights in results)
    assert train(0, None)[0] == 1  # type: ignore[arg-type]  # in no virtual rank


def test_an_interrupt_ends_a_rank_that_computes() -> None:
    before, main = threading.active_count(), threading.main_thread().ident
    assert main is not None
    began = threading.Event()

    def train(rank: int, comm: Comm) -> None:
        comm.all_reduce(torch.ones(1)).wait()
        threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        began.set()
        x = torch.eye(50)
        while True:
            x = x @ x

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            ssfx.virtual_ranks(train, 3)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert began.is_set()
    assert threading.active_count() == before


# ---- on each rank ---------------------------------------------------------------------------------------------------


STEPS = 7


def on_gloo(group: Any, rank: int, world: int, options: Options) -> dict[str, Any]:
    return trained(rank, world, options, process_group=group)


def virtual(world: int, options: Options, *, share: bool = False) -> list[dict[str, Any]]:
    def train(rank: int, comm: Comm) -> dict[str, Any]:
        return trained(rank, world, options, share=share, comm=comm)

    return ssfx.virtual_ranks(train, world)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 300),
        nn.BatchNorm1d(300),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(300, 40),
        nn.LayerNorm(40),
        nn.Linear(40, 5),
    )


def trained(rank: int, world: int, options: Options, *, share: bool = False, **where: Any) -> dict[str, Any]:
    """Train some steps; return all that must be equal on real and virtual ranks."""
    model = network()
    memory = options.get("memory")
    momentum = 0.0 if memory is not None and memories.build(memory).forbids_optimizer_momentum else 0.9
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    if share:
        ssfx.share_weights(model, optimizer, where["comm"])
    given = {"costs": costs_for(world), **options}
    if profiled(options):
        base = registration_profile(parameter_names(model))
        given["profile"] = replace(base, ready_gap_s=(1e-3,) * len(base.tensors), forward_s=1e-2)
    sync = ssfx.attach(model, optimizer, **where, **given)
    torch.manual_seed(rank)
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    sync.detach()
    return {
        "losses": losses,
        "state": {**model.state_dict()},
        "plan": sync.plan.to_json(),
        "memory": {f"{n} {b}": t for n, kept in sync.store.state_dict().items() for b, t in kept.items()},
        "sent": sync.comm.sent,
        "contributed": sync.comm.contributed_bytes,
        "calls": sync.comm.calls,
        "random": torch.rand(3),
    }
