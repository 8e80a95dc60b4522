"""The groups of predictions that `ssfx validate` scores; of published numbers also what each simulation rests on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from experiments.common.claims.ledger import claims_by_id
from experiments.common.validation import published_acpsgd as acpsgd
from experiments.common.validation import published_mergecomp as mergecomp
from experiments.common.validation import published_s2reducer as s2reducer
from experiments.common.validation.exchanges import NAME, exchanges
from experiments.common.validation.gains import NAME as GAINS
from experiments.common.validation.gains import gains
from experiments.common.validation.groups import Group, Part, parts_by, recorded
from experiments.common.validation.one_gpu import NAME as GPU
from experiments.common.validation.one_gpu import one_gpu
from experiments.common.validation.published_steps import Prediction, Simulations, number
from experiments.common.validation.quality import NAME as QUALITY
from experiments.common.validation.quality import quality
from experiments.common.validation.rounds import NAME as ROUNDS
from experiments.common.validation.rounds import rounds
from experiments.common.validation.scores import Pair
from ssfx.core.case import ClusterChoice
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster_file import cluster_on

COMPUTING = "data sheets of the devices (roofline of every operator and compressor)"
ACPSGD = (
    f"{COMPUTING}; four all-reduces timed alone (claims acpsgd.iv.ar.*) for latency and bandwidth of Ethernet; "
    "none of the scored numbers"
)


def published() -> list[Group]:
    """Return a group for each paper and kind of number; ratios are all of two times, so that their errors compare."""
    steps = Simulations()

    def group(
        title: str,
        calibrated_on: str,
        tested_on: str,
        predictions: Iterable[Prediction],
        *names: Callable[[Pair], str],
        notes: tuple[str, ...],
        unit: Literal["s", "x"] = "x",
    ) -> Group:
        """Return a group with a part for every name that a function of `names` gives, in order of appearance.

        Numbers that other numbers of their paper contradict are left out.
        """
        claims = claims_by_id()
        pairs = tuple(one.pair(steps) for one in predictions if not claims[one.claim].contradiction)
        parts = tuple(part for name_of in names for part in _named(pairs, name_of))
        return Group(title, calibrated_on, tested_on, pairs, parts, notes, unit)

    return [
        group(
            "ACP-SGD times: iteration times of 4 models with 4 methods on 32 GPUs, 10 Gb/s Ethernet",
            ACPSGD,
            "claims acpsgd.table3.*, 16 times",
            acpsgd.table_3(),
            lambda pair: pair.panel,
            lambda pair: pair.label,
            notes=(
                "Power-SGD* is simulated as PyTorch's hook executes it: three messages a bucket, and a wait for the "
                "device at the end of each, so that nothing overlaps",
                "left out: what the host takes to issue kernels (QR of every matrix), and filling the device again "
                "after each wait of the hook",
            ),
            unit="s",
        ),
        group(
            "ACP-SGD ratios: what the text quotes of its figures, as ratios of times (12 % more is 1.12)",
            f"{ACPSGD}; of 100 Gb/s InfiniBand no timing alone is printed, so its links are nominal",
            "claims acpsgd.fig2, fig3, fig9 to fig13, headline.sysopt, intro.ssgd_naive",
            acpsgd.ratios(),
            lambda pair: " ".join(pair.panel.split()[:2]),
            notes=(
                "Fig. 2, 3: their Top-k and Sign-SGD are PyTorch code, ours kernels; their all-gather is slower still",
                "Fig. 9: hundreds of small messages hide behind backward here, hardly on their cluster",
                "Fig. 10, 11b at rank 256: a basis is charged column by column, of which 256 are too many: computing "
                "them hides nearly all that ACP-SGD sends, and the exposed rest is a ratio of almost nothing",
                "Fig. 11a at batch 8: their steps hardly get shorter, as where a slower host than assumed holds them",
            ),
        ),
        group(
            "MergeComp: scaling factors, gains, and Tables 2 and 3 on up to 8 V100",
            f"{COMPUTING}; claims mergecomp.budget.* (2 GPUs) and fig3.* for MPI over PCIe and the calls of "
            "compressors; NVLink is nominal; none of the scored numbers",
            "claims mergecomp.fig4, fig5, fig7, fig8 (gains), table2, table3; not Mask R-CNN, a model that is not here",
            [*mergecomp.scaling_factors(), *mergecomp.ratios()],
            lambda pair: pair.panel.partition(",")[0].partition(" x")[0],
            notes=(
                "FP32 on NVLink: Horovod's coordination is not simulated, nor is a timing of the link alone printed",
            ),
        ),
        group(
            "S2 Reducer: communication and speed on block-sparse ResNet-50, 16 GPUs, 1 Gb/s Ethernet",
            f"{COMPUTING}; claim s2reducer.appB1.ratio for all-gather; links nominal; none of the scored numbers",
            "claims s2reducer.appB2.resnet50.*, fig3.d.*; not GNMT, whose printed sizes fit no definition (S2-05)",
            s2reducer.ratios(),
            lambda pair: pair.panel,
            notes=(
                "not printed, so assumed: blocks of 64, one row of the sketch, and ranks that choose without overlap; "
                "if all chose alike, SparCML would send a quarter and OmniReduce a thirteenth",
                "SparCML's rounds inside a node are charged like those between nodes",
                "without communication their step takes about four of their sketch's exchanges (S2-08), here about two",
            ),
        ),
        Group(
            "SSFusion: growth of an all-gather from 8 to 64 GPUs",
            "the ring formula; the links' rates cancel",
            "claims ssfusion.fig9.*.ag*; not their level and not all-reduce: both depend on the messages of models "
            "that are not named, and no one latency and bandwidth explains them (SSF-13)",
            tuple(growths()),
            unit="x",
        ),
    ]


def _named(pairs: Iterable[Pair], name_of: Callable[[Pair], str]) -> tuple[Part, ...]:
    return parts_by(dict.fromkeys(map(name_of, pairs)), lambda pair, name: name_of(pair) == name)


MESSAGE_BYTES = 1e8
"""Any size at which bandwidth counts: the growth does not depend on it, and the paper names neither model nor size."""


def growths() -> Iterator[Pair]:
    """Yield all-gather on 64 GPUs over all-gather on 8.

    All-reduce is left out. Its growth depends on the number and size of messages, which the paper does not print: by
    the ring formulas 1.125 where bandwidth decides, 9 where latency does.
    """
    for model in ("modelA", "modelB"):
        ids = [f"ssfusion.fig9.{model}.ag{gpus}" for gpus in (8, 64)]
        few_s, many_s = (_all_gather_s(claims_by_id()[claim_id].conditions["gpus"]) for claim_id in ids)
        few, many = map(number, ids)
        yield Pair("Fig. 9 growth of all-gather", model, many_s / few_s, many / few, claim=ids[-1])


def _all_gather_s(gpus: int) -> float:
    whole = cluster_on(ClusterChoice("64gpu", {"calibration": "published"}), None, "auto")
    nodes = gpus // whole.devices_per_node
    some = cluster_on(ClusterChoice("64gpu", {"calibration": "published", "nodes": nodes}), None, "auto")
    return system_on(some).exchange["all_gather"](MESSAGE_BYTES)


NAMES: Mapping[str, Callable[[], list[Group]]] = {
    "recorded": recorded,
    "published": published,
    NAME: exchanges,
    GPU: one_gpu,
    QUALITY: quality,
    ROUNDS: rounds,
    GAINS: gains,
}


def load(name: str) -> list[Group]:
    """Return the groups called `name`, one of NAMES; RunError when there is no ground truth for them."""
    return NAMES[name]()
