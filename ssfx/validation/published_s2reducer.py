"""S2 Reducer: block-sparse ResNet-50 on 1 Gb/s Ethernet, against three other exchanges of the same blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ssfx.perf_model.target import Target
from ssfx.planning.plan import Plan
from ssfx.simulator import Simulated
from ssfx.validation.published_steps import factor, number, planned, remainder, step, target
from ssfx.validation.scores import Pair


def _setup() -> Target:
    return target("s2reducer_1gbe(calibration=published)", "resnet50_cifar100", number("s2reducer.table2.bs_cnn"))


def _filled(at: Target) -> float:
    """Return the share of blocks that some rank sends when ranks choose independently: the paper prints no overlap."""
    return 1 - (1 - number("s2reducer.setup.rate")) ** at.system.world_size


METHODS: dict[str, Callable[[Target, float], Plan]] = {
    "s2reducer": lambda at, rate: planned(at, "s2reducer", density=rate),
    "allgather": lambda at, rate: planned(at, "fused_all", compressor="block_topk", density=rate),
    "sparcml": lambda at, rate: planned(at, "sparcml", density=rate),
    "omnireduce": lambda at, _: planned(at, "omnireduce", filled=_filled(at)),
}


def simulated() -> dict[str, Simulated]:
    """Return one step of each method."""
    at, rate = _setup(), number("s2reducer.setup.rate")
    return {name: step(at, plan(at, rate)) for name, plan in METHODS.items()}


def ratios() -> Iterator[Pair]:
    """Yield what S2 Reducer leaves of the others' communication, and its speedups, on block-sparse ResNet-50."""
    found = simulated()
    ours = found["s2reducer"]
    for name, claim_id in (
        ("sparcml", "s2reducer.appB2.resnet50.sparcml"),
        ("allgather", "s2reducer.appB2.resnet50.allgather"),
        ("omnireduce", "s2reducer.fig3.d.comm"),
    ):
        left = ours.comm_s / found[name].comm_s
        yield Pair("communication left by S2 Reducer", f"of {name}", left, remainder(claim_id), claim=claim_id)
    for name in ("sparcml", "allgather"):
        gain = found[name].iteration_s / ours.iteration_s
        claim_id = f"s2reducer.fig3.d.resnet50.{name}"
        yield Pair("gain of S2 Reducer", f"over {name}", gain, factor(claim_id), claim=claim_id)
