"""What of MergeComp is computed, without a simulated run: algorithms, examples, Table 1, section 4, the server."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import comb, log2

import numpy as np
from numpy.typing import NDArray

from experiments.common.claims.verdicts import Verdict, counted, span
from experiments.common.evaluation.artifacts import CONFIGURED, Answer, Claims, Judged, both
from experiments.common.evaluation.configured import cluster, conf, settings
from experiments.common.evaluation.gpu_times import COMMAND, COST, NAME, OTHER_CARD, times_ms
from experiments.common.evaluation.judging import absent, says
from experiments.common.evaluation.low_rank import EACH, step
from experiments.common.evaluation.mergecomp_panels import COLOURS, LABELS
from experiments.common.evaluation.step_plots import PAPER
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Picture, Table, plt
from experiments.common.figures.tables import Tabular
from experiments.common.figures.timelines import Timelines
from experiments.common.validation.published_mergecomp import Setup, timed
from experiments.common.validation.published_steps import Simulations, number, stated
from ssfx.compressors import build
from ssfx.compressors.memories import memories
from ssfx.core.errors import SsfxError
from ssfx.core.rows import Row
from ssfx.lab.workloads.base import models
from ssfx.lab.workloads.samples import networks
from ssfx.perf_model.operator_counts import model_work
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes
from ssfx.schemes.search.mergecomp_search import SearchResult, algorithm_2, search_last_cut

# ---- Algorithms 1 and 2 ----------------------------------------------------------------------------------------------


def plan() -> Plan:
    """Return the plan of the scheme: groups of ResNet50."""
    return Simulations("nominal").plan(*timed("Y=2", "dgc", Setup("ResNet50", "CIFAR10", 8)))


def _alg1(figure: Figure, rows: list[Row]) -> Table:
    """Return one line for every group of the plan."""
    made = plan()
    return [
        {
            "group": i + 1,
            "tensors": len(lane.tensors),
            "elements": made.numel(lane),
            "calls": len(lane.segments),
            "collective": lane.collective,
            "last": lane.tensors[-1],
        }
        for i, (_, lane) in enumerate(made.lanes())
    ]


def _alg1_finding(rows: list[Row]) -> str:
    lanes = list(plan().lanes())
    return f"{len(lanes)} groups, each compressed by {len(lanes[0][1].segments)} call and sent by one collective"


ALG1 = Figure(
    "mergecomp.alg1",
    "Groups that MergeComp makes of ResNet50",
    Tabular(
        {
            "group": "group",
            "tensors": "tensors",
            "elements": "elements",
            "calls": "compressor\ncalls",
            "collective": "collective",
            "last": "ends behind",
        },
        _alg1,
        "The plan of scheme mergecomp by nominal times: DGC at density 0.01, 8 GPUs over PCIe.",
    ),
    Judged(),
    said=_alg1_finding,
)

ALPHA = 0.02


def probes(optimum: int) -> int:
    """Return how many two-group splits of ResNet101 the search tries until it finds the best one."""
    tensors, tried = len(model_work("resnet101").tensors), 0

    def end_s(cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        nonlocal tried
        tried += 1
        seconds: NDArray[np.float64] = 1.0 + np.abs(cuts - optimum) / tensors
        return seconds

    cut, _ = search_last_cut(end_s, np.array([1]), np.array([tensors - 1]))
    assert int(cut[0]) == optimum
    return tried


def _alg2(rows: list[Row]) -> dict[str, Answer]:
    ends_s = (1.0, 0.9, 0.89, 0.5)
    chosen = algorithm_2((SearchResult(tuple(range(i)), end_s) for i, end_s in enumerate(ends_s)), ALPHA)
    stops = chosen.total_s == ends_s[2]
    return {
        "mergecomp.alg2.iters": max(probes(optimum) for optimum in (1, 100, 157, 312)),
        "mergecomp.alg2.params": (stops, f"stops at the first gain below alpha = {ALPHA:g}"),
    }


ALG2 = Figure(
    "mergecomp.alg2",
    "Search over the number of groups",
    Claims("Computed by ssfx: the search of scheme mergecomp on a made-up valley of times; no run."),
    Judged(_alg2),
)


# ---- Figs. 1, 3 and 6 ------------------------------------------------------------------------------------------------

FIG1 = Figure(
    "mergecomp.fig1",
    "Fig. 1: distributed training without and with WFBP",
    Timelines(lambda: {"without WFBP": step(EACH, overlap=False), "with WFBP": step(EACH)}),
    Judged(),
)

NETWORKS = {"ResNet50": "resnet50", "ResNet101": "resnet101"}


def times(rows: list[Row]) -> dict[str, list[tuple[int, float]]]:
    """Return compressor -> (elements, ms) by size, for the compressors of the paper that were measured."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        name = (row.case.compressor or "").partition("(")[0]
        seconds = row.metrics.get("compress_s")
        if name in LABELS and seconds is not None:
            numel = int(row.case.model.partition("numel=")[2].rstrip(")"))
            found.setdefault(name, []).append((numel, 1e3 * seconds))
    return {name: sorted(points) for name, points in sorted(found.items())}


def _fig3(figure: Figure, rows: list[Row]) -> Picture:
    """Return CPU times by size with the paper's lower bound, and the sizes of tensors."""
    table: list[dict[str, object]] = []
    canvas, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.6), layout="constrained")
    for name, points in times(rows).items():
        left.plot(*zip(*points, strict=True), marker="o", markersize=2.5, color=COLOURS[name], label=LABELS[name])
        table += [{"panel": "encode", "method": name, "elements": x, "ms": y} for x, y in points]
    bound = number("mergecomp.fig3.enc")
    ends = [number("mergecomp.fig3.lo"), number("mergecomp.fig3.hi")]
    left.plot(ends, [bound, bound], **PAPER, label="paper: most take more (V100)")
    left.set_xscale("log", base=2)
    left.set(yscale="log", xlabel="elements", ylabel="encode (ms)")
    left.set_title("one CPU thread", loc="left", fontweight="bold")
    for (name, model), colour in zip(NETWORKS.items(), ("#0072b2", "#d55e00"), strict=True):
        sizes = sorted(spec.numel for spec in model_work(model).tensors)
        shares = [100 * (i + 1) / len(sizes) for i in range(len(sizes))]
        right.step(sizes, shares, where="post", color=colour, label=f"{name}, {len(sizes)} tensors")
        table.append({"panel": "sizes", "method": name, "tensors": len(sizes)})
    right.set_xscale("log", base=2)
    right.set(xlabel="elements in a tensor", ylabel="tensors with fewer (%)")
    right.set_title("(c) tensor sizes", loc="left", fontweight="bold")
    for axis in (left, right):
        axis.grid()
        axis.legend()
    hardware = "; ".join(sorted({row.origin.hardware for row in rows}))
    say_origin(canvas, f"Left: measured on {hardware}, other hardware than the paper's. Right: computed from shapes.")
    return canvas, table


def _fig3_answers(rows: list[Row]) -> dict[str, Answer]:
    """Answer the numbers of tensors, and times of a GPU; those of our CPU are held against nothing."""
    return {
        "mergecomp.fig3.enc": _on_gpu(),
        "mergecomp.fig3.t50": len(model_work("resnet50").tensors),
        "mergecomp.fig3.t101": len(model_work("resnet101").tensors),
    }


def _on_gpu() -> list[Verdict]:
    """Return verdicts on what the paper says of most or many compressors: more than half of those in its figure.

    How long an H200 takes says nothing of the paper's cards; by how much its time grows with a tensor is held.
    """
    sizes = number("mergecomp.fig3.lo"), number("mergecomp.fig3.hi")
    found = {name: [pair for numel, pair in times_ms(name).items() if sizes[0] <= numel <= sizes[1]] for name in LABELS}
    encode, decode = ({name: min(pair[i] for pair in pairs) for name, pairs in found.items()} for i in (0, 1))
    rise = {name: sum(pairs[-1]) / sum(pairs[0]) - 1 for name, pairs in found.items()}
    verdicts = []
    for claim, values in (("mergecomp.fig3.enc", encode), ("mergecomp.fig3.dec", decode)):
        longer = sum(value > stated(claim)[1] for value in values.values())
        least = span(min(values.values()), max(values.values()), "ms")
        ours = f"{longer} of {len(values)} take longer at every size; the least of each: {least}"
        verdicts.append(absent(claim, OTHER_CARD, "not comparable", ours, "measured"))
    less = sum(value < stated("mergecomp.fig3.flat")[1] for value in rise.values())
    by = f"{min(rise.values()):+.0%} to {max(rise.values()):+.0%} from 256 to 2^20 elements"
    ours = f"{less} of {len(rise)} rise by less: {by}"
    flat = says("mergecomp.fig3.flat", less > len(rise) / 2, ours, f"timed on one {NAME}", source="measured")
    verdicts.append(flat)
    return [replace(one, command=COMMAND, cost=COST) for one in verdicts]


FIG3 = Figure(
    "mergecomp.fig3",
    "Time to compress one tensor, and sizes of tensors",
    _fig3,
    Judged(_fig3_answers),
    needs={"experiment": "compressors", "dataset": "laplace"},
    command="python benchmarks/compressors.py",
)

NO_MASK_RCNN = (
    "Mask R-CNN is not simulated: how many regions it works on, and which tensors it trains, is not stated (MC-03)"
)


def _few_tensors(rows: list[Row]) -> dict[str, Answer]:
    """Answer whether Mask R-CNN trains fewer tensors than the paper's other networks, in both ways of training it."""
    every, backbone = networks()["mask_rcnn"]["size"][1], model_work("resnet50").tensors
    norms = sum(len(spec.shape) == 1 for spec in backbone) - 1  # but for the bias of the classifier
    stem = sum(len(spec.shape) == 4 and spec.name.startswith(("conv1", "layer1")) for spec in backbone)
    frozen, fewest = every - norms - stem, len(backbone)
    words = f"{every} tensors, {frozen} with frozen norms and stem; ResNet50 has {fewest}"
    return {"mergecomp.intro.fewtensors": (both(every < fewest, frozen < fewest), words)}


FIG6 = Figure(
    "mergecomp.fig6",
    "Scaling factors of Mask R-CNN",
    Claims("The paper's printed numbers; nothing was run here."),
    Judged(_few_tensors, reason=NO_MASK_RCNN),
)


# ---- Table 1: whose messages may be summed ---------------------------------------------------------------------------

COMPRESSORS = {
    "FP16": ("fp16", None),
    "DGC": ("dgc", None),
    "Top-k": ("topk", None),
    "Rand-k": ("randomk", None),
    "EFSignSGD": ("ef_signsgd", None),
    "QSGD": ("qsgd", None),
    "SignSGD": ("signsgd", None),
    "OneBit": ("onebit", None),
    "SigNUM": ("signsgd", "signum"),
}
"""Compressor of the paper -> ours, and the memory that makes it what it is."""
SUMMED, GATHERED = "all-reduce (NCCL)", "all-gather (MPI)"


def taken() -> list[str]:
    """Return the paper's compressors that scheme=mergecomp takes here, with their memories."""
    found = []
    for name, (spec, memory) in COMPRESSORS.items():
        try:
            schemes["mergecomp"].options({"compressor": spec})
            if memory is not None:
                memories.build(memory)
        except SsfxError:
            continue
        found.append(name)
    return found


def _table1(figure: Figure, rows: list[Row]) -> Table:
    """Return one line per compressor: the paper's collective, and what ours allows."""
    return [
        {"compressor": "FP32", "paper": SUMMED, "here": "all-reduce", "as": "ddp"},
        *(
            {
                "compressor": name,
                "paper": SUMMED if name == "FP16" else GATHERED,
                "here": "all-reduce" if build(spec).additive else "all-gather",
                "as": f"{spec}, memory {memory}" if memory else spec,
            }
            for name, (spec, memory) in COMPRESSORS.items()
        ),
    ]


TABLE1: Figure = Figure(
    "mergecomp.table1",
    "Collective of each compressor",
    Tabular(
        {"compressor": "compressor", "paper": "paper", "here": "ssfx", "as": "called here"},
        _table1,
        "What the compressors of ssfx declare about their messages; no run.",
    ),
    Judged(lambda _: {"mergecomp.headline.nine": len(taken())}),
    said=lambda rows: f"{len(taken())} compressors of the paper can be merged here ({counted(TABLE1.judge(rows))})",
)


# ---- Section 4: lemmas and theorems, tried on small numbers ----------------------------------------------------------

TENSORS = 12
"""Of the example on which every grouping is listed."""
GROUPS = (3, 4)
"""Numbers of groups for which the bound on the search is tried; with two groups both sides are log N."""


def groupings(tensors: int) -> list[tuple[int, ...]]:
    """Return the cuts of every division of so many tensors into contiguous groups."""
    return [cuts for count in range(tensors) for cuts in combinations(range(1, tensors), count)]


def cost(cuts: tuple[int, ...]) -> float:
    """Return compression and communication of a grouping whose calls cost 3 and whose elements cost 1 each, linearly.

    Tensor i has i + 1 elements, so that groups differ in size.
    """
    ends = (0, *cuts, TENSORS)
    sizes = [sum(range(a + 1, b + 1)) for a, b in pairwise(ends)]
    return sum(3 + size for size in sizes)


def _theory(rows: list[Row]) -> dict[str, Answer]:
    found = groupings(TENSORS)
    costs = {count: {cost(cuts) for cuts in found if len(cuts) == count - 1} for count in range(1, TENSORS + 1)}
    alike = all(len(one) == 1 for one in costs.values())
    rising = [next(iter(costs[count])) for count in sorted(costs)]
    tensors = len(model_work("resnet101").tensors)
    smaller = all(comb(tensors - 2, y - 2) * log2(tensors) < tensors ** (y - 2) * log2(tensors) for y in GROUPS)
    return {
        "mergecomp.lemma1": (len(found) == 2 ** (TENSORS - 1), f"{len(found)} groupings of {TENSORS} tensors"),
        "mergecomp.lemma2": (
            alike and rising == sorted(rising),
            f"one cost for each number of groups, rising, in all {len(found)} groupings",
        ),
        "mergecomp.theorem3": (smaller, f"holds for {tensors} tensors and Y = 3, 4"),
    }


THEORY = Figure(
    "mergecomp.text.theory", "Lemmas and theorems of MergeComp, tried on small numbers", Claims(), Judged(_theory)
)


# ---- Section 5: the server and the defaults --------------------------------------------------------------------------

PCIE_3_GBPS_PER_LANE = 126.0 / 16
"""8 GT/s with 128/130 coding."""


def qsgd_bits() -> float:
    """Return the bits that QSGD sends for an element of a long vector here."""
    numel = 1 << 20
    return round(8 * build("qsgd").layout(numel, 1.0).code_bytes / numel, 6)


def groups_tried() -> set[int]:
    """Return the most groups that MergeComp is simulated with, where it searches."""
    default = int(schemes["mergecomp"].options({"compressor": "dgc"}).max_groups)  # type: ignore[attr-defined]
    also = conf("experiment", "mergecomp_groups")["experiment"]["also"]
    return {default, *next(one["scheme.max_groups"] for one in also if "scheme.max_groups" in one)}


def _setup(rows: list[Row]) -> dict[str, Answer]:
    """Return a verdict on every setting, and on the definition of the scaling factor."""
    here = {
        "mergecomp.setup.pcie_lanes": cluster("mergecomp_pcie").intra.gbps / PCIE_3_GBPS_PER_LANE,
        "mergecomp.setup.sparsity": 100 * (1 - conf("experiment", "mergecomp_groups")["density"]),
        "mergecomp.setup.qsgd_bits": qsgd_bits(),
        "mergecomp.setup.models": float(sum(name in models for name in (*NETWORKS.values(), "mask_rcnn"))),
        "mergecomp.setup.Ys": float(len(groups_tried())),
    }
    found = settings("mergecomp.text.setup", here, but=["mergecomp.def.sf"])
    return {**{one.claim: one for one in found}, "mergecomp.def.sf": ("agrees", "T_n / (n T_1)")}


SETUP = Figure("mergecomp.text.setup", "Server and defaults of MergeComp", CONFIGURED, Judged(_setup))
