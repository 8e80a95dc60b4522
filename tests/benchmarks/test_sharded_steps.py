"""benchmarks/sharded_steps.py predicts steps from parts: on given parts the prediction is known."""

from typing import Any

import pytest
from benchmarks.loading import benchmark_module

_steps = benchmark_module("sharded_steps")
FSDP, HSDP, SIZES = _steps.FSDP, _steps.HSDP, _steps.SIZES
mesh_of, predicted, profile_of, report = _steps.mesh_of, _steps.predicted, _steps.profile_of, _steps.report


def given(legs: tuple[str, ...], steps: Any) -> dict[str, Any]:
    """Return what ranks would measure if exchanges took 1 s for a megabyte and computing next to nothing."""
    kinds = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
    exchange = {kind: {str(size): [size / 2**20] for size in SIZES} for kind in kinds}
    tensors = [["embed", [512, 256]], *([f"blocks.{i}.w", [1024, 512]] for i in range(4)), ["head", [512, 256]]]
    return {
        "alone": [[1e-6, 3e-6, 4e-6]],
        "crowding": [1.0],
        "steps": {name: [1.0] for name in steps},
        "exchanges": dict.fromkeys(legs, exchange),
        "tensors": tensors,
        "apart": [0.5] if "replicas" in legs else [],
    }


def test_torchs_step_is_its_gathers_and_sums() -> None:
    found = given(("shards",), FSDP)
    times = predicted(found, mesh_of(found, None, (1, 2)), (1, 2))
    whole = 4 * sum(spec.numel for spec in profile_of(found).tensors) / 2**20
    root = 2 * 4 * 512 * 256 / 2**20
    # A rank brings half of the weights to a gather, of blocks twice and of the root once, and all gradients to a sum.
    assert times["native FSDP2"] == pytest.approx(whole - root / 2 + whole, rel=0.02)
    assert times["4 bits"] < times["8 bits"] < times["16 bits"] < times["native FSDP2"]


def test_replicas_come_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    found = given(("replicas", "shards"), HSDP)
    times = predicted(found, mesh_of(found, None, (2, 2)), (2, 2))
    flat = predicted(given(("shards",), FSDP), mesh_of(given(("shards",), FSDP), None, (1, 2)), (1, 2))
    assert times["native HSDP"] > flat["native FSDP2"]
    assert times["8 bits in both"] < times["top-k 1 % between replicas"] < times["native HSDP"]
    report(found, None, (2, 2))
    said = capsys.readouterr().out
    assert "mean error" in said
    assert all(name in said for name in HSDP)
    assert said.count("2.00x without replicas' exchange") == len(HSDP)
