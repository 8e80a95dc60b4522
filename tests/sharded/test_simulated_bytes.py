"""The simulator of sharded models sends what torch and ssfx send on real processes, byte by byte."""

from typing import Any

import pytest
from sharded import work
from sharded.conftest import Run

FOUR_BITS = {"scheme": "fused_all", "compressor": "qsgd(bits=4,bucket=32,norm=max)"}
WEIGHTS = "qsgd(bits=8,norm=max,nearest=True)"
NORMS, TABLES = ("vectors", "norms"), ("embeddings",)
EIGHT_BITS = {"scheme": "per_tensor", "compressor": "qsgd(bits=8,norm=max)"}


@pytest.mark.parametrize("resharded", [True, False])
@pytest.mark.parametrize("precision", ["", "bf16", "bf16 reduced"])
@pytest.mark.parametrize(("world", "shape"), [(2, (0, 2)), (4, (0, 4)), (4, (2, 2))])
def test_native_steps_send_what_is_simulated(
    ranks: Run, world: int, shape: Any, precision: str, resharded: bool
) -> None:
    for sent, simulated, _ in ranks(work.simulated_beside_sent, world, shape, precision, resharded, {}):
        assert sent["all_to_all_single"] == 0
        assert bool(sent["all_reduce"]) == bool(shape[0])
        assert sum(sent.values()) == simulated > 0


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "ddp_fp16", "compressor": "bf16"},
        EIGHT_BITS,
        FOUR_BITS,
        {"scheme": "fused_all", "compressor": "onebit", "memory": "residual"},
    ],
    ids=["16 bits", "8 bits", "4 bits", "1 bit"],
)
def test_sums_over_shards_send_what_is_simulated(ranks: Run, world: int, options: Any) -> None:
    for sent, simulated, counted in ranks(work.simulated_beside_sent, world, (0, world), "", True, options):
        assert sent["reduce_scatter_single"] == 0
        assert sent["all_to_all_single"] == counted
        assert sum(sent.values()) == simulated


@pytest.mark.parametrize("precision", ["", "bf16 reduced"])
def test_sums_inside_nodes_first_send_what_is_simulated(ranks: Run, precision: str) -> None:
    """Messages between two ranks are none of torch's collectives, which gather weights here."""
    for size in (2, 4):
        options = {**FOUR_BITS, "scheme": "ddp_quantized", "ranks_per_node": size}
        for sent, simulated, counted in ranks(work.simulated_beside_sent, 4, (0, 4), precision, True, options):
            assert sent["all_to_all_single"] == sent["reduce_scatter_single"] == 0
            assert sum(sent.values()) + counted == simulated > counted > 0


@pytest.mark.parametrize("shape", [(0, 4), (2, 2)])
@pytest.mark.parametrize("options", [{"weights": "bf16"}, {"weights": WEIGHTS}, {"weights": WEIGHTS, "exempt": NORMS}])
def test_gathers_of_weights_send_what_is_simulated(ranks: Run, shape: Any, options: Any) -> None:
    dense = ranks(work.simulated_beside_sent, 4, shape, "", True, {})
    found = ranks(work.simulated_beside_sent, 4, shape, "", True, {"scheme": "ddp", **options})
    for (sent, simulated, _), (whole, *_) in zip(found, dense, strict=True):
        assert sum(sent.values()) == simulated
        assert sent["all_gather_single"] < 0.6 * whole["all_gather_single"]


@pytest.mark.parametrize("options", [{**EIGHT_BITS, "exempt": NORMS}, {**FOUR_BITS, "exempt": TABLES}])
def test_exempt_kinds_send_what_is_simulated(ranks: Run, options: Any) -> None:
    for sent, simulated, _ in ranks(work.simulated_beside_sent, 4, (0, 4), "", True, options):
        assert sum(sent.values()) == simulated


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "ddp_fp16"},
        {"scheme": "topk", "density": 0.05},
        {"scheme": "powersgd", "compressor": "powersgd(rank=1)"},
        {"scheme": "topk", "density": 0.05, "shards": EIGHT_BITS},
    ],
    ids=["fp16", "topk", "powersgd", "both sums"],
)
def test_sums_over_replicas_send_what_is_simulated(ranks: Run, options: Any) -> None:
    for sent, simulated, counted in ranks(work.simulated_beside_sent, 4, (2, 2), "", True, options):
        assert sum(sent.values()) == simulated > counted > 0
        assert bool(sent["all_to_all_single"]) == ("shards" in options)
