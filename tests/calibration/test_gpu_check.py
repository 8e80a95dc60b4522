"""The first hour on a GPU, on the CPU: every part works, says what is wrong, and its times serve simulations."""

from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import pytest
import torch

from ssfx.cli import main
from ssfx.collectives.torch_comm import TorchComm
from ssfx.compressors.kernels.cpu import backend as cpu
from ssfx.core import accelerator, machine
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import write_json
from ssfx.lab.calibration import gpu_parts
from ssfx.lab.calibration.gpu_check import check_gpus, in_processes, sizes_on_gpu
from ssfx.lab.calibration.gpu_parts import PARTS, SCHEMES, PartRun, Sizes, check_kernels
from ssfx.lab.workloads import models
from ssfx.perf_model.gpu_record import GpuRecord, gpu_record, record_path
from ssfx.perf_model.target import target_at

TABLE = {
    "collective": "all_reduce",
    "ranks": 2,
    "ranks_per_node": 2,
    "nbytes": [8, 1024],
    "us": [20.0, 30.0],
    "library": "NCCL 2.99",
    "source": "a test",
}


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))


def in_this_process(name: str, what: PartRun, kind: str, ranks: int, sizes: Any, limit_s: float) -> Any:
    """Do parts of one rank; those of several have a made-up result."""
    if ranks == 1:
        return asdict(what.do(TorchComm(), sizes))
    return {"said": "made up", "problems": [], "data": {"tables": [TABLE]} if name == "exchanges" else {}}


@pytest.mark.parametrize("name", ["streams", "schemes"])
def test_two_ranks_find_no_fault(pool: Any, name: str) -> None:
    ranks = pool.run(part, 2, name)
    assert [found["problems"] for found in ranks] == [[], []]
    assert "6 schemes" in ranks[0]["said"]


def test_a_last_bit_that_differs_between_replicas_is_told_of_every_scheme(pool: Any) -> None:
    first, second = pool.run(schemes_with_drift, 2)
    assert first["problems"] == []  # rank 0 compares with itself
    assert len(second["problems"]) == 2 * len(SCHEMES) - 1
    assert all("replicas differ by up to" in line for line in second["problems"])


def test_a_kernel_that_is_wrong_is_told_and_the_others_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    select = cpu.select

    def wrong(batch: Any, *arguments: Any) -> None:
        select(batch, *arguments)
        if batch.payload.values.dtype == torch.float16:
            batch.payload.values[0] += 1

    monkeypatch.setattr(cpu, "select", wrong)
    found = check_kernels(TorchComm(), SMALL)
    assert len(found.problems) == 3
    assert found.problems[0].startswith("topk(value_dtype=float16) with memory none: RunError: values differ at 1 of ")


@pytest.fixture(scope="module")
def checked() -> tuple[GpuRecord, list[Any]]:
    """Check as on two GPUs, where one part fails; with the parts as they were told."""

    def run(name: str, *arguments: Any) -> Any:
        if name == "streams":
            raise RunError("measuring rank 1 failed: it was killed by signal 11")
        return in_this_process(name, *arguments)

    told: list[Any] = []
    return check_gpus("cpu", 2, SMALL, told.append, run), told


def test_every_part_becomes_the_record_and_what_failed_leaves_the_others(checked: Any, tmp_path: Any) -> None:
    record, told = checked
    assert [part.name for part in told] == list(PARTS)
    assert record.failed == ("streams",)
    assert told[1].problems == ("measuring rank 1 failed: it was killed by signal 11",)
    assert set(record.codecs) == {"topk", "signsgd"}
    assert [(p.model, p.precision) for p in record.profiles] == [("resnet_tiny", ""), ("resnet_tiny", "bf16")]
    assert record.exchanges[0].us == (20.0, 30.0)
    assert f"cluster.host_us={record.host_us:.3g}" in next(part.said for part in told if part.name == "host")
    assert record.origin.kind == "measured"
    assert GpuRecord.from_json(record.to_json()) == record
    assert str(tmp_path.parent) not in record.to_json()


def test_parts_end_with_their_time_and_one_gpu_exchanges_nothing() -> None:
    record = check_gpus("cpu", 1, SMALL, lambda _: None, in_this_process, limit_s=0)
    assert record.failed == tuple(name for name in PARTS if name != "exchanges")
    assert record.parts[0].problems == ("not begun, as the 0 s of all parts were over",)


def test_a_part_runs_in_processes_of_its_own() -> None:
    found = in_processes("exchanges", PARTS["exchanges"], "cpu", 2, SMALL, 300)
    assert found["problems"] == []
    assert [table["ranks"] for table in found["data"]["tables"]] == [2, 2, 2]


def test_simulations_of_gpus_here_use_what_was_measured(checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ("NVIDIA H100 80GB HBM3",) * 2)
    asked = (ClusterChoice("local"), 2, "cuda", "resnet_tiny", 2, "sgd")
    with pytest.raises(ConfigError, match="run ssfx doctor --gpu"):
        target_at(*asked)
    record, _ = checked
    raw = record.to_json().replace('"sheet":"cpu"', '"sheet":"h100"')
    record_path().parent.mkdir()
    write_json(record_path(), raw)
    assert gpu_record() == GpuRecord.from_json(raw)
    target = target_at(*asked, precision="bf16")
    assert target.profile == record.profiles[1]
    assert target.system.origin.kind == "measured"
    assert target.system.codecs["topk"] == record.codecs["topk"]
    assert target.system.exchange["all_reduce"](1024) == pytest.approx(30e-6)
    assert target.system.codecs["dgc"].origin.kind == "nominal"
    (counted,) = (target_at(*asked[:3], "bert_base", 1, "adamw", "bf16").profile,)
    assert f"({record.host_us:g} us each)" in counted.origin.note  # by the host as it was timed here


def test_all_that_is_measured_on_a_gpu_exists() -> None:
    sizes = sizes_on_gpu()
    assert set(sizes.models) <= set(models.names())
    assert {"topk", "powersgd"} <= set(sizes.compressors)


def test_without_a_gpu_a_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "gpus", tuple)
    assert main(["doctor", "--gpu"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "ssfx: ssfx doctor --gpu needs a GPU and nvidia-smi shows none here; ssfx doctor says what runs"
    assert not record_path().exists()


@pytest.mark.parametrize("broken", [(), ("kernels",)])
def test_the_command_writes_one_file_and_fails_with_its_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: tuple[str, ...]
) -> None:
    def run(name: str, *arguments: Any) -> Any:
        return {"said": "done", "problems": ["topk: it differs"] if name in broken else [], "data": {}}

    def checked(kind: str, gpus: int, sizes: Any, tell: Any) -> Any:
        assert (kind, gpus, sizes) == ("cuda", 1, sizes_on_gpu())
        return check_gpus("cpu", gpus, sizes, tell, run)

    monkeypatch.setattr(machine, "gpus", lambda: ("some GPU",))
    monkeypatch.setattr(accelerator, "count", lambda kind: 1)
    monkeypatch.setattr("ssfx.lab.calibration.gpu_check.check_gpus", checked)
    assert main(["doctor", "--gpu"]) == (1 if broken else 0)
    said = capsys.readouterr()
    assert ("kernels failed: topk: it differs" in said.out) == bool(broken)
    assert ("ssfx: failed: kernels" in said.err) == bool(broken)
    assert str(record_path()) in said.out
    record = gpu_record()
    assert record is not None
    assert record.failed == broken


# ---- on each rank ---------------------------------------------------------------------------------------------------


SMALL = Sizes(
    segments=(5000, 40, 1),
    widths=(16, 40, 8),
    compressors=("topk", "signsgd"),
    max_numel=2**10,
    host_model="resnet_tiny",
    models=("resnet_tiny",),
    precisions=("fp32", "bf16"),
    batch_size=2,
    iterations=2,
    mib=1,
)


def part(group: Any, rank: int, world: int, name: str) -> dict[str, Any]:
    return asdict(PARTS[name].do(TorchComm(group), SMALL))


def schemes_with_drift(group: Any, rank: int, world: int) -> dict[str, Any]:
    """Compare schemes of which rank 1 ends with another last bit."""
    trained = gpu_parts._trained

    def drifting(*arguments: Any) -> torch.Tensor:
        weights = trained(*arguments)
        return weights.nextafter(weights + 1) if rank == 1 else weights

    with patch.object(gpu_parts, "_trained", drifting):
        return asdict(PARTS["schemes"].do(TorchComm(group), SMALL))
