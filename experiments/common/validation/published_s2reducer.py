"""S2 Reducer: block-sparse ResNet-50 and GNMT-8 on slow Ethernet, against three other exchanges of the same blocks."""

from collections.abc import Callable, Iterator

from experiments.common.validation.published_steps import (
    PaperMethod,
    PaperSetting,
    Prediction,
    Timed,
    method,
    number,
    over,
    remainder,
)
from ssfx.core.case import ClusterChoice
from ssfx.perf_model.cluster_file import cluster_on

CLUSTER = "s2reducer_1gbe"
MODEL = "resnet50_cifar100"


def filled() -> float:
    """Return the share of blocks that some rank sends when ranks choose independently, the most that it can be.

    The paper prints no overlap; the least is the rate itself, of ranks that all choose alike.
    """
    ranks = cluster_on(ClusterChoice(CLUSTER), None, "auto").world_size
    return 1 - (1 - number("s2reducer.setup.rate")) ** ranks


METHODS: dict[str, Callable[[float], PaperMethod]] = {
    "s2reducer": lambda rate: method("s2reducer", density=rate),
    "allgather": lambda rate: method("fused_all", compressor="block_topk", density=rate),
    "sparcml": lambda rate: method("sparcml", density=rate),
    "omnireduce": lambda _: method("omnireduce", filled=filled()),
    "omnireduce, ranks alike": lambda rate: method("omnireduce", filled=rate),
}


RESNET = PaperSetting(CLUSTER, MODEL, int(number("s2reducer.table2.bs_cnn")))
GNMT = PaperSetting("s2reducer_10gbe", "gnmt8", int(number("s2reducer.table2.bs_gnmt_block")))
"""By the code that the paper names; its dense part is 2.6 times what the paper prints (S2-05)."""


def timed(name: str, at: PaperSetting = RESNET) -> Timed:
    """Return a method of the paper in one of its set-ups."""
    return METHODS[name](number("s2reducer.setup.rate")), at


def ratios() -> Iterator[Prediction]:
    """Yield what S2 Reducer leaves of the others' communication, and its speedups, on block-sparse ResNet-50."""
    for name, claim_id in (
        ("sparcml", "s2reducer.appB2.resnet50.sparcml"),
        ("allgather", "s2reducer.appB2.resnet50.allgather"),
        ("omnireduce", "s2reducer.fig3.d.comm"),
        ("omnireduce, ranks alike", "s2reducer.fig3.d.comm"),
    ):
        left = over(timed("s2reducer"), timed(name), part="comm_s")
        yield Prediction(claim_id, "communication left by S2 Reducer", f"of {name}", left, remainder, False)
    for name in ("sparcml", "allgather"):
        claim_id = f"s2reducer.fig3.d.resnet50.{name}"
        yield Prediction(claim_id, "gain of S2 Reducer", f"over {name}", over(timed(name), timed("s2reducer")))


def gnmt_ratios() -> Iterator[Prediction]:
    """Yield the same of block-sparse GNMT-8, which is not scored, as its size is not the printed one."""
    ours = timed("s2reducer", GNMT)
    for name in ("omnireduce", "omnireduce, ranks alike"):
        other = timed(name, GNMT)
        left = over(ours, other, part="comm_s")
        yield Prediction("s2reducer.fig3.f.comm", "GNMT-8: communication left", f"of {name}", left, remainder, False)
        for claim_id in ("s2reducer.fig3.f.gnmt8.omni", "s2reducer.headline.speedup"):
            yield Prediction(claim_id, "GNMT-8: gain of S2 Reducer", f"over {name}", over(other, ours))
    for name in ("sparcml", "allgather"):
        claim_id = f"s2reducer.appB2.gnmt8.{name}"
        left = over(ours, timed(name, GNMT), part="comm_s")
        yield Prediction(claim_id, "GNMT-8: communication left", f"of {name}", left, remainder, False)
