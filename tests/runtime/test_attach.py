"""What `ssfx.attach` promises any training script, whatever its habits: DDP's results, plain errors, a clean exit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG_S, Started
from runtime import work_attach as work
from runtime import work_momentum, work_refusals
from runtime.models import build, loss_of, parameters
from runtime.pool import Pool

import ssfx
from ssfx.core.errors import ConfigError

Options = dict[str, Any]
TOPK: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 0.05}
EVERYTHING: Options = {"scheme": "per_tensor", "compressor": "topk", "density": 1.0}
HABITS = ["", "autocast", "clip", "set_to_none=False", "never zeroed", "adam", "groups"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, EVERYTHING, {"scheme": "wfbp"}], ids=["ddp", "topk-1", "wfbp"])
@pytest.mark.parametrize("habit", HABITS)
def test_any_habit_gives_what_ddp_gives(pool: Pool, habit: str, options: Options) -> None:
    # Adam divides by a gradient that may be rounding noise itself, so only its gradients are compared.
    for gradients, parameters_ in pool.run(work.next_to_ddp, 2, habit, "mlp", options):
        assert habit == "adam" or gradients < 1e-4
        assert parameters_ < (1e-2 if habit == "adam" else 1e-5)


def test_tied_and_frozen_parameters_are_like_ddp(pool: Pool) -> None:
    for gradients, parameters_ in pool.run(work.next_to_ddp, 2, "", "tied", {}):
        assert gradients < 1e-4
        assert parameters_ < 1e-6


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["ddp", "topk-1"])
def test_strided_parameters_and_buffers(pool: Pool, options: Options) -> None:
    for distance, strides_kept in pool.run(work.channels_last, 2, options):
        assert distance < 1e-5
        assert strides_kept


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
def test_a_compiled_model_trains_like_an_eager_one(pool: Pool, options: Options) -> None:
    for distance, compiled, eager in pool.run(work.compiled, 2, options):
        assert distance < 1e-5
        assert compiled == eager


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("options", [{}, TOPK, work.DGC | {"memory": None}], ids=["ddp", "topk", "ssfusion"])
def test_bf16_parameters_keep_a_float32_residual(pool: Pool, world: int, options: Options) -> None:
    for violation, dtypes, same in pool.run(work.bf16, world, options):
        assert violation < 2**-6  # shares, sums and the average are rounded to 8 bits each
        assert dtypes == ("torch.float32" if options else "")
        assert same


def test_float64_parameters_are_exchanged_in_full_precision(pool: Pool) -> None:
    assert max(pool.run(work.float64, 2)) < 1e-14


@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
def test_a_grad_scaler_with_clipping_changes_nothing(pool: Pool, options: Options) -> None:
    assert max(pool.run(work.scaler_with_clipping, 2, options)) < 1e-5


@pytest.mark.parametrize("options", [{}, TOPK], ids=["ddp", "topk"])
def test_parameters_may_be_frozen_later(pool: Pool, options: Options) -> None:
    for report in pool.run(work.frozen_after_attach, 2, options):
        assert all(report.values()), report


def test_nested_no_sync(pool: Pool) -> None:
    assert pool.run(work.nested_no_sync, 2) == [[0, 0, 1]] * 2


@pytest.mark.parametrize("options", [{}, TOPK, work.DGC | {"memory": None}], ids=["ddp", "topk", "ssfusion"])
def test_detach_leaves_nothing_behind(pool: Pool, options: Options) -> None:
    for report in pool.run(work.detaches, 2, options):
        assert all(report.values()), report


def test_one_rank_passes_gradients_through(pool: Pool) -> None:
    _passes_through(None)
    pool.run(_alone, 1)


def _alone(group: Any, rank: int, world: int) -> None:
    _passes_through(group)


def _passes_through(group: Any) -> None:
    model, twin = build("mlp"), build("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sync = ssfx.attach(model, optimizer, process_group=group, **TOPK)
    with sync.no_sync():
        loss_of(model, 0, 0).backward()
    loss_of(twin, 0, 0).backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
    sync.synchronize()
    optimizer.step()
    sync.load_state_dict(sync.state_dict())
    assert sync.stats()["scheme"] == "per_tensor"
    sync.detach()


def _refused(model: torch.nn.Module, optimizer: torch.optim.Optimizer, options: Options) -> str:
    with pytest.raises(ConfigError) as caught:
        ssfx.attach(model, optimizer, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "ssfusion_io"}, ["ssfusion_io", "did you mean 'ssfusion_o"]),
        ({"scheme": "per_tensor", "compressor": "topp"}, ["topp", "topk"]),
        ({"scheme": "per_tensor", "compressor": "topk(value_type=float16)"}, ["value_type", "value_dtype"]),
        ({"scheme": "per_tensor", "memory": "residul"}, ["residul", "residual"]),
        ({"scheme": "per_tensor", "memory": "residual(decay=2)"}, ["decay"]),
        ({"scheme": "per_tensor", "denisty": 0.1}, ["denisty", "density"]),
        ({"scheme": "per_tensor", "density": 2}, ["density", "2"]),
        ({"scheme": "per_tensor", "density": 0}, ["density", "0"]),
        ({"scheme": "ddp", "density": 0.1}, ["density=0.1", "ddp"]),
        ({"scheme": "ddp", "compressor": "topk"}, ["topk", "fp16"]),
        ({"scheme": "ddp", "memory": "residual"}, ["memory=residual"]),
        ({"scheme": "per_tensor", "compressor": "fp16", "memory": "residual"}, ["residual", "fp16", "none"]),
        ({"scheme": "per_tensor", "compressor": "topk", "memory": "dgc"}, ["momentum=0"]),
    ],
    ids=lambda value: " ".join(f"{v}" for v in value.values()) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_refused_in_one_line(options: Options, words: list[str]) -> None:
    model = build("mlp")
    text = _refused(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), options)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_dgc_memory_refuses_adam() -> None:
    model = build("mlp")
    text = _refused(model, torch.optim.Adam(model.parameters()), {**TOPK, "memory": "dgc"})
    assert "SGD with momentum=0" in text


@pytest.mark.parametrize(
    ("parameter", "options", "words"),
    [
        (torch.zeros(3, dtype=torch.complex64), {}, ["weight", "complex64", "float32"]),
        (torch.zeros(3, dtype=torch.float64), TOPK, ["weight", "float64", "ddp"]),
    ],
    ids=["complex", "float64 compressed"],
)
def test_a_dtype_that_cannot_be_sent_is_named(parameter: torch.Tensor, options: Options, words: list[str]) -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(parameter)
    text = _refused(model, torch.optim.SGD(model.parameters(), lr=0.1), options)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    model.register_parameter("counts", torch.nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False))
    assert "no trainable parameters" in _refused(model, torch.optim.SGD(model.parameters(), lr=0.1), {})


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("ddp", ["DistributedDataParallel", "bare module"]),
        ("another model", ["rank 1"]),
        ("another frozen part", ["rank 1"]),
        ("sparse gradient", ["weight", "sparse=False"]),
        ("inside ddp, made before", ["DistributedDataParallel", "detach"]),
        ("inside ddp, made after", ["DistributedDataParallel", "detach"]),
        ("fully_shard", ["residual of the whole model", "memory="]),
        ("optimizer of another model", ["none of the model's parameters"]),
        ("optimizer of a part", ["does not hold parameter", "list"]),
        ("no optimizer", ["torch.optim.Optimizer"]),
        ("no module", ["torch.nn.Module"]),
        ("no state", ["state_dict()"]),
        ("state of another format", ["format 99"]),
        ("state with a damaged plan", ["plan"]),
        ("state with a residual that is not finite", ["not finite"]),
        ("state with a residual of another shape", ["(3, 1)"]),
        ("state of another world size", ["world_size=8", "2"]),
        ("state of another rank", ["rank=7"]),
        ("state of another scheme", ["scheme=ddp", "per_tensor"]),
        ("state of another model", ["another model"]),
    ],
)
def test_what_cannot_work_is_refused_on_every_rank(pool: Pool, case: str, words: list[str]) -> None:
    for text in pool.run(work_refusals.refusal, 2, case):
        assert text
        assert "\n" not in text
        for word in words:
            assert word in text


@pytest.mark.parametrize("options", [{}, TOPK, work.DGC], ids=["ddp", "topk", "dgc memory"])
def test_the_state_is_plain_data(pool: Pool, options: Options) -> None:
    for good in pool.run(work_momentum.state_is_plain, 2, options):
        assert good
        assert all(good)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("nesterov", [False, True])
def test_dgc_memory_corrects_momentum(pool: Pool, world: int, nesterov: bool) -> None:
    for distance, deviation in pool.run(work_momentum.momentum_correction, world, nesterov):
        assert distance < 1e-5
        assert deviation < 1e-5


@pytest.mark.parametrize("world", [2, 3])
def test_dgc_memory_from_profiling_to_resume(pool: Pool, world: int) -> None:
    for report in pool.run(work_momentum.dgc_end_to_end, world):
        assert all(report.values()), report


SCRIPT = Path(__file__).parent / "script.py"


def _launch(started: Started, folder: Path, number: int, *args: str) -> list[tuple[int, str]]:
    command = [sys.executable, str(SCRIPT), str(folder / f"store{number}")]
    ranks = [
        started.start([*command, str(rank), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    return [(process.returncode, text) for process in ranks for text in (process.communicate(timeout=HANG_S)[0],)]


@pytest.mark.slow
def test_a_script_that_simply_ends_exits_cleanly(started: Started, tmp_path: Path) -> None:
    for code, text in _launch(started, tmp_path, 0, "ssfusion_oi", "fine"):
        assert code == 0, text
        assert text.split() == ["done"]


@pytest.mark.slow
def test_an_exception_in_one_backward_lets_every_process_end(started: Started, tmp_path: Path) -> None:
    (broken, text), (waiting, told) = _launch(started, tmp_path, 0, "per_tensor", "broken")
    assert broken == 1
    assert text.rstrip().endswith("ValueError: this backward pass is broken")
    assert waiting != 0, told  # its peer is gone


def test_parameters_of_all_ranks_start_equal(pool: Pool) -> None:
    first, *others = pool.run(_parameters_after_attach, 3)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


def _parameters_after_attach(group: Any, rank: int, world: int) -> dict[str, torch.Tensor]:
    model = build("mlp", seed=rank)
    ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group).detach()
    return parameters(model)


@pytest.mark.parametrize(("memory", "factor", "rate"), [("residual", 1.0, 0.0), ("lr_scaled", 10.0, 0.01)])
def test_a_carried_residual_keeps_the_learning_rate_it_was_computed_under(
    pool: Pool, memory: str, factor: float, rate: float
) -> None:
    for report in pool.run(work_momentum.follows_the_rate, 2, memory):
        assert report["carried"] > 1e-3
        assert report["factor"] == pytest.approx(factor, rel=1e-4)
        assert report["rate"] == pytest.approx(rate)


@pytest.mark.parametrize("scheme", ["per_tensor", "equal_count", "fused_all"])
def test_an_empty_parameter_is_exchanged_as_nothing(pool: Pool, scheme: str) -> None:
    assert all(pool.run(work.empty_parameter, 2, scheme))


def test_several_optimizers_exchange_once_a_step(pool: Pool) -> None:
    for exchanged, gradients, parameters_ in pool.run(work.two_optimizers, 2):
        assert exchanged == work.STEPS
        assert gradients < 1e-6
        assert parameters_ < 1e-6


def test_wrapped_optimizers_are_seen_through(pool: Pool) -> None:
    for steps, same in pool.run(work.wrapped_optimizer, 2):
        assert steps == work.STEPS
        assert same


def test_who_has_detached_may_be_waited_for_outside_of_the_exchange(pool: Pool) -> None:
    assert pool.run(work.comm_after_detach, 2) == [2.0, 2.0]


@pytest.mark.parametrize("scheme", ["per_tensor", "oktopk", "ssfusion_oi", "powersgd"])
def test_exempt_kinds_are_exchanged_as_by_ddp(pool: Pool, scheme: str) -> None:
    weights = {"first.weight", "middle.weight", "last.weight"}
    density = {} if scheme == "powersgd" else {"density": 0.05}
    for differ, compressed, text in pool.run(work.exempt, 2, {"scheme": scheme, "exempt": "vectors,norms", **density}):
        assert differ <= weights
        assert compressed <= weights
        assert compressed == weights or scheme == "ssfusion_oi"  # it leaves small tensors dense by measured costs
        assert "norm.bias" in text


def test_a_handle_says_what_it_does(pool: Pool) -> None:
    for text in pool.run(work.handle_text, 2, work.SPARSE, 1):
        assert text.startswith("<ssfx.Sync: per_tensor, topk at density 0.05 on 2 ranks; ")
        assert text.endswith(" messages, step 1>")
    small = {"scheme": "hipress", "density": 0.05, "rule": "threshold", "compress_min_elems": 10**6}
    for text in pool.run(work.handle_text, 2, small, 7):
        assert text.endswith(" messages, all sent dense, step 7>")
    for text in pool.run(work.handle_text, 2, {"scheme": "ddp", "compressor": "fp16"}, 1):
        assert text.startswith("<ssfx.Sync: ddp, fp16 on 2 ranks; ")
