"""Golden cases of the sparsifiers: top-k, random-k, DGC selection."""

import math

import pytest
import torch
from compressors.kit import decode, encode, golden

from ssfx.compressors import warmup_density
from ssfx.compressors.dgc_faithful import SAMPLE_FRACTION, SamplingPlan, sampling_plan, select
from ssfx.compressors.randomk import affine_indices, affine_stride_and_offset
from ssfx.wire.batch import key


@pytest.mark.parametrize("name", ["topk_k1", "topk_k2", "topk_k3", "topk_k8"])
def test_topk(name: str) -> None:
    inputs, params, expected = golden(name)
    x = torch.tensor(inputs["x"])
    payload, ctx = encode("topk", x, params["k"] / x.numel())
    residual = x - decode("topk", payload, ctx, x.numel())
    assert payload.indices.tolist() == expected["indices"]
    assert payload.values.tolist() == expected["values"]
    assert residual.tolist() == expected["residual"]
    error, norm = residual.double().square().sum().item(), x.double().square().sum().item()
    assert (error, norm) == (expected["error_sq"], expected["norm_sq"])
    assert error <= expected["bound_sq"]


def test_randomk_affine() -> None:
    for row in golden("randomk_affine")[2]["rows"]:
        h = key(row["seed"], row["tensor_id"], row["step"], row["rank"])
        assert hex(h) == row["key"]
        assert affine_stride_and_offset(h, row["n"]) == (row["stride"], row["offset"])
        assert affine_indices(h, row["n"], row["k"]).tolist() == row["indices"]


def test_randomk_shared_sends_the_affine_sequence_in_order() -> None:
    row = golden("randomk_affine")[2]["rows"][2]
    x = torch.arange(row["n"], dtype=torch.float32)
    payload, _ = encode(
        "randomk", x, row["k"] / row["n"], step=row["step"], tensor_id=row["tensor_id"], seed=row["seed"], rank=2
    )
    assert payload.values.tolist() == row["indices"]


def test_randomk_mean_error() -> None:
    inputs, params, expected = golden("randomk_mean_error")
    x = torch.tensor(inputs["x"], dtype=torch.float64)
    n, k = len(x), params["k"]
    errors: dict[int, float] = {}
    for h in range(100):
        stride, offset = affine_stride_and_offset(h, n)
        assert stride == params["stride"]
        errors[offset] = (x.square().sum() - x[affine_indices(h, n, k)].square().sum()).item()
    assert sorted(errors) == list(range(n))
    mean = sum(errors.values()) / n
    assert mean == pytest.approx(expected["mean_error_sq_over_all_offsets"], abs=1e-12)
    assert mean == pytest.approx(expected["(1-k/n)*norm_sq"], abs=1e-12)


def test_dgc_plan() -> None:
    for row in golden("dgc_plan")[2]["rows"]:
        if row["sample_ratio"] > SAMPLE_FRACTION:
            continue
        plan = sampling_plan(row["n"], row["density"])
        assert plan == SamplingPlan(row["num_samples"], row["stride"], row["top_k_samples"], row["num_selects"])


@pytest.mark.parametrize("name", ["dgc_select_reselect", "dgc_select_lower"])
def test_dgc_select(name: str) -> None:
    inputs, params, expected = golden(name)
    plan = SamplingPlan(params["num_samples"], params["stride"], params["top_k_samples"], params["num_selects"])
    x = torch.tensor(inputs["x"])
    selection = select(x, plan, params["start"])
    trace = [["reselect" if threshold is None else threshold, count] for threshold, count in selection.trace]
    for got, want in zip(trace, expected["trace_threshold_count"], strict=True):
        assert got == [want[0] if isinstance(want[0], str) else pytest.approx(want[0], abs=1e-9), want[1]]
    assert selection.indices.tolist() == expected["indices"]
    assert x[selection.indices].tolist() == torch.tensor(expected["values"]).tolist()


def test_dgc_warmup() -> None:
    _, _, expected = golden("dgc_warmup")
    for row in expected["rows"]:
        got = [warmup_density(epoch, row["base"], row["epochs"], row["coeff"]) for epoch in range(row["epochs"] + 1)]
        assert got == pytest.approx(row["ratios"], abs=1e-12)
    paper = [1 - warmup_density(epoch, 0.001, 4, 0.25) for epoch in range(5)]
    assert paper == pytest.approx(expected["paper_sparsity_first_epochs"], abs=1e-12)
    assert math.isclose(warmup_density(1000, 0.001, 4), 0.001)
