"""Golden cases of the threshold codecs: thresholds and counts as they are tried, and what is selected."""

from types import ModuleType
from typing import Any, cast

import pytest
import torch
from compressors.kit import context, encode, golden

from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_sizes, split_starts
from ssfx.compressors import Payload, build
from ssfx.compressors.batch import Batch
from ssfx.compressors.gaussiank import normal_quantile
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.compressors.kernels import kernels
from ssfx.compressors.mstopk import MSTopK
from ssfx.compressors.sidco import COLUMNS, EXTRA, TOLERANCE, WINDOW, adapted
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
def test_gaussiank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, params, expected = golden(name)
    x, density = torch.tensor(inputs["x"]), params["density"]
    moments = KERNEL.moments(batch_of("gaussiank", x, density))
    assert moments.total.item() / len(x) == pytest.approx(expected["mean"], rel=1e-6)
    same_trace(traced("gaussiank", x, density), expected["trace_threshold_count"], 1e-6)
    # what exceeds the capacity is cut to the largest; a capacity that is not reached shows the authors' selection
    with monkeypatch.context() as patch:
        patch.setattr(ThresholdSelector, "capacity", 4.0)
        payload, _ = encode("gaussiank", x, density)
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
    moments = KERNEL.moments(batch_of("redsync", x, density))
    assert moments.absolute.item() / len(x) == pytest.approx(expected["mean_abs"], abs=1e-9)
    assert moments.largest.item() == expected["max_abs"]
    same_trace(traced("redsync", x, density), expected["trace_ratio_threshold_count"], FLOAT32)
    payload, _ = encode("redsync", x, density)
    count = int(payload.counts[0])
    assert payload.indices[:count].tolist() == expected["indices"]
    assert payload.values[:count].tolist() == expected["values"]


def sidco(x: torch.Tensor, density: float, stages: int) -> list[tuple[float, float]]:
    """Return (threshold, count) of everything that was tried with so many stages."""
    codec, batch, recorder = build("sidco"), batch_of("sidco", x, density), Recorder()
    batch.states = [{"stages": torch.tensor([stages - 1.0, 0, 0, 0, 0, 0])}]
    assert isinstance(codec, ThresholdSelector)
    codec.thresholds(batch, cast("ModuleType", recorder))
    return recorder.trace


def test_sidco_single_stage() -> None:
    inputs, params, expected = golden("sidco_single_stage")
    x = torch.tensor(inputs["x"])
    assert sidco(x, params["density"], 1)[-1][0] == pytest.approx(expected["exp_threshold"], rel=1e-6)
    payload, _ = encode("sidco", x, params["density"])
    assert payload.indices[: int(payload.counts[0])].tolist() == expected["exp_indices"]


def test_sidco_two_stages() -> None:
    inputs, params, expected = golden("sidco_exp_M2")
    same_trace(sidco(torch.tensor(inputs["x"]), params["density"], 2), expected["trace_threshold_count"], 1e-6)


def test_sidco_default_adaptation_finds_the_window_on_every_curve_at_once() -> None:
    inputs, params, expected = golden("sidco_stage_adaptation_default")
    curves = torch.tensor(list(inputs["achieved_density_by_stage"].values()))
    most = torch.full((len(curves),), 4)
    assert (params["Q"], params["eps_high"]) == (WINDOW, TOLERANCE)
    state = torch.zeros(len(curves), COLUMNS)
    seen = []
    for _ in range(8 * params["Q"]):
        now = state[:, EXTRA].long()
        state = adapted(state, curves[torch.arange(len(curves)), now] / params["density"], most)
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


def test_mstopk(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, params, expected = golden("mstopk")
    x, k, spec = torch.tensor(inputs["x"]), params["k"], "mstopk"
    monkeypatch.setattr("ssfx.compressors.mstopk.PROBES", params["N"])
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
