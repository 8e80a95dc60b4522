"""Golden cases of the threshold codecs: thresholds and counts as they are tried, and what is selected."""

from types import ModuleType
from typing import Any, cast

import pytest
import torch
from compressors.kit import context, decode, encode, golden

from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_sizes, split_starts
from ssfx.compressors import Payload, build
from ssfx.compressors.batch import Batch
from ssfx.compressors.gaussiank import normal_quantile
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.compressors.kernels import kernels
from ssfx.compressors.mstopk import MSTopK
from ssfx.compressors.redsync import level_at
from ssfx.compressors.sidco import COLUMNS, EXTRA, Adaptation, adapted, gamma_shape, max_stages
from ssfx.compressors.threshold import ThresholdSelector

KERNEL = kernels(torch.device("cpu"))
FLOAT32 = 2e-7  # thresholds are handed to kernels as float32


class Recorder:
    """The kernels, with thresholds and counts of every look at the data noted down."""

    def __init__(self) -> None:
        self.trace: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(KERNEL, name)

    def count(self, batch: Batch, thresholds: torch.Tensor) -> torch.Tensor:
        counts = KERNEL.count(batch, thresholds)
        self.trace.append((thresholds.item(), counts.item()))
        return cast("torch.Tensor", counts)

    def tail(self, batch: Batch, thresholds: torch.Tensor) -> Any:
        tail = KERNEL.tail(batch, thresholds)
        self.trace.append((thresholds.item(), tail.count.item()))
        return tail


def batch_of(spec: str, x: torch.Tensor, density: float) -> Batch:
    return Batch.single(x, Payload.allocate(build(spec).layout(len(x), density)), context(density))


def traced(spec: str, x: torch.Tensor, density: float) -> list[tuple[float, float]]:
    """Return (threshold, count) of everything that was tried; the last one is what the codec ends with."""
    codec, batch, recorder = build(spec), batch_of(spec, x, density), Recorder()
    assert isinstance(codec, ThresholdSelector)
    final = codec.thresholds(batch, cast("ModuleType", recorder))
    last = (final.item(), KERNEL.count(batch, final).item())
    return recorder.trace if recorder.trace and recorder.trace[-1] == last else [*recorder.trace, last]


def same_trace(got: list[tuple[float, float]], want: list[list[float]], tolerance: float) -> None:
    assert [count for _, count in got] == [row[-1] for row in want]
    assert [threshold for threshold, _ in got] == pytest.approx([row[-2] for row in want], rel=tolerance)


def test_normal_quantiles() -> None:
    inputs, _, expected = golden("normal_ppf_table")
    assert [normal_quantile(density) for density in inputs["density"]] == pytest.approx(expected["z"], abs=1e-9)


@pytest.mark.parametrize("name", ["gaussiank_0.25", "gaussiank_0.125"])
def test_gaussiank(name: str) -> None:
    inputs, params, expected = golden(name)
    x, density = torch.tensor(inputs["x"]), params["density"]
    moments = KERNEL.moments(batch_of("gaussiank", x, density))
    assert moments.total.item() / len(x) == pytest.approx(expected["mean"], rel=1e-6)
    same_trace(traced("gaussiank", x, density), expected["trace_threshold_count"], 1e-6)
    # what exceeds the capacity is cut to the largest; a capacity that is not reached shows the authors' selection
    payload, _ = encode("gaussiank(capacity=4)", x, density)
    count = int(payload.counts[0])
    assert payload.indices[:count].tolist() == expected["indices"]
    assert payload.values[:count].tolist() == expected["values"]
    capped, _ = encode("gaussiank", x, density)
    count = int(capped.counts[0])
    largest = x.abs().sort(descending=True, stable=True).indices[:count].sort().values
    assert capped.indices[:count].tolist() == largest.tolist()


def test_redsync_search() -> None:
    inputs, params, expected = golden("redsync_binary_search")
    x, density = torch.tensor(inputs["x"]), params["k"] / len(inputs["x"])
    moments, n = KERNEL.moments(batch_of("redsync", x, density)), torch.tensor([len(x)])
    assert moments.absolute.item() / len(x) == pytest.approx(expected["mean_abs"], abs=1e-9)
    assert moments.largest.item() == expected["max_abs"]
    for ratio, threshold, _ in expected["trace_ratio_threshold_count"]:
        assert level_at(moments, n, torch.tensor([ratio])).item() == pytest.approx(threshold, rel=FLOAT32)
    same_trace(traced("redsync", x, density), expected["trace_ratio_threshold_count"], FLOAT32)
    payload, _ = encode("redsync", x, density)
    count = int(payload.counts[0])
    assert payload.indices[:count].tolist() == expected["indices"]
    assert payload.values[:count].tolist() == expected["values"]


def test_redsync_trimmed() -> None:
    inputs, params, expected = golden("redsync_trimmed_topk")
    x, density = torch.tensor(inputs["x"]), params["k"] / len(inputs["x"])
    trace = traced("redsync(mode=trimmed)", x, density)
    same_trace(trace, expected["trace_ratio_threshold_count"], FLOAT32)
    assert torch.nonzero(x.abs() >= trace[-1][0]).view(-1).tolist() == expected["trimmed_indices"]
    payload, _ = encode("redsync(mode=trimmed)", x, density)
    assert payload.indices.tolist() == expected["final_indices"]
    assert payload.values.tolist() == expected["final_values"]


@pytest.mark.parametrize(("name", "step"), [("redsync_quant_pos", 6), ("redsync_quant_neg", 7)])
def test_redsync_quantised(name: str, step: int) -> None:
    inputs, params, expected = golden(name)
    x = torch.tensor(inputs["x"])
    payload, ctx = encode("redsync_quant", x, params["k"] / len(x), step=step)
    assert payload.indices.tolist() == expected["indices"]
    assert payload.scales.item() == pytest.approx(expected["mean"], rel=FLOAT32)
    residual = x - decode("redsync_quant", payload, ctx, len(x))
    assert residual.tolist() == pytest.approx(expected["residual_EF"], abs=1e-6)
    assert payload.nbytes == expected["wire_bytes"]


def test_sidco_single_stage() -> None:
    inputs, params, expected = golden("sidco_single_stage")
    x, density = torch.tensor(inputs["x"]), params["density"]
    for family, name in {"exponential": "exp", "gpareto": "gpareto", "gamma_gpareto": "gamma"}.items():
        spec = f"sidco(family={family},stages=1)"
        assert traced(spec, x, density)[0][0] == pytest.approx(expected[f"{name}_threshold"], rel=1e-6)
        payload, _ = encode(spec, x, density)
        assert payload.indices[: int(payload.counts[0])].tolist() == expected[f"{name}_indices"]
    y = x.abs().double()
    shape = gamma_shape(y.mean().log() - y.log().mean()).item()
    assert shape == pytest.approx(expected["gamma_shape"], rel=1e-6)
    assert y.mean().item() / shape == pytest.approx(expected["gamma_scale"], rel=1e-6)


@pytest.mark.parametrize("name", ["exp", "gpareto"])
def test_sidco_two_stages(name: str) -> None:
    inputs, params, expected = golden(f"sidco_{name}_M2")
    family = {"exp": "exponential"}.get(name, name)
    spec = f"sidco(family={family},stages={params['stages']})"
    trace = traced(spec, torch.tensor(inputs["x"]), params["density"])
    same_trace(trace, expected["trace_threshold_count"], 1e-6)


@pytest.mark.parametrize("name", ["sidco_stage_adaptation", "sidco_stage_adaptation_heavy"])
@pytest.mark.parametrize(("mode", "rule"), [("mode_-1", "steady"), ("mode_-2", "reverse"), ("mode_-3", "bracket")])
def test_sidco_stage_adaptation(name: str, mode: str, rule: str) -> None:
    inputs, params, expected = golden(name)
    most = max_stages(params["density"])
    assert expected.get("max_stages", most) == most
    state = torch.zeros(1, COLUMNS)
    state[:, EXTRA] = params["start_stages"] - 1
    how = Adaptation(rule, params["Q"], params["eps_high"])
    seen = []
    for achieved in inputs["achieved_density"]:
        state = adapted(state, torch.tensor([achieved / params["density"]]), torch.tensor([most]), how)
        seen.append(1 + int(state[0, EXTRA]))
    assert seen == expected[mode]


def test_sidco_default_adaptation_finds_the_window_on_every_curve_at_once() -> None:
    inputs, params, expected = golden("sidco_stage_adaptation_default")
    curves = torch.tensor(list(inputs["achieved_density_by_stage"].values()))
    most = torch.full((len(curves),), 4)
    state, how = torch.zeros(len(curves), COLUMNS), Adaptation("robust", params["Q"], params["eps_high"])
    seen = []
    for _ in range(8 * params["Q"]):
        now = state[:, EXTRA].long()
        state = adapted(state, curves[torch.arange(len(curves)), now] / params["density"], most, how)
        seen.append((1 + state[:, EXTRA]).tolist())
    windows = torch.tensor(seen[params["Q"] - 1 :: params["Q"]]).T.tolist()
    assert windows == list(expected["stages_after_each_window"].values())


def test_hard_threshold() -> None:
    inputs, params, expected = golden("hard_threshold")
    payload, _ = encode(f"hard_threshold(threshold={params['lambda']})", torch.tensor(inputs["x"]), 0.5)
    count = int(payload.counts[0])
    assert payload.indices[:count].tolist() == expected["indices_ge"]
    assert payload.values[:count].tolist() == expected["values_ge"]
    inputs, _, expected = golden("hard_threshold_lambda")
    assert [threshold_for(k) for k in inputs["k"]] == pytest.approx(expected["lambda"], abs=1e-12)


def test_mstopk() -> None:
    inputs, params, expected = golden("mstopk")
    x, k = torch.tensor(inputs["x"]), params["k"]
    spec = f"mstopk(probes={params['N']})"
    codec, batch, recorder = build(spec), batch_of(spec, x, k / len(x)), Recorder()
    assert isinstance(codec, MSTopK)
    bracket = codec.bracket(batch, cast("ModuleType", recorder))
    same_trace(recorder.trace, expected["trace_ratio_threshold_count"], FLOAT32)
    magnitude = x.abs().double()
    assert torch.nonzero(magnitude >= bracket.sure).view(-1).tolist() == expected["sure_indices"]
    between = (magnitude < bracket.sure) & (magnitude >= bracket.band)
    assert torch.nonzero(between).view(-1).tolist() == expected["band_indices"]
    places = len(expected["band_indices"]) - (k - len(expected["sure_indices"])) + 1
    KERNEL.select_band(batch, bracket.sure, bracket.band, torch.tensor([params["band_offset_seed"] % places]))
    assert batch.payload.indices.tolist() == expected["indices"]


def test_micro_partition() -> None:
    for row in golden("micro_partition")[2]["rows"]:
        assert split_starts(row["n"], row["W"])[:-1] == row["starts"]
        assert split_sizes(row["n"], row["W"]) == row["sizes"]
        for step, partitions in enumerate(row["partition_of_rank_at_step"]):
            assert [partition_of(rank, step, row["W"]) for rank in range(row["W"])] == partitions


def test_micro_threshold_scale() -> None:
    inputs, _, expected = golden("micro_threshold_scale")
    assert [threshold_scale(selected, inputs["k"]) for selected in inputs["k_prev"]] == expected["factor"]
