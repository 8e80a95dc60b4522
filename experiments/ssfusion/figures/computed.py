"""SSFusion's equations, and what its text says of settings and of other work."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Literal

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.evaluation.configured import cluster, taken
from experiments.common.evaluation.judging import absent, half_digit, held, says
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, Table, subplots
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.advice.cases import simulate_case
from ssfx.config.groups import choices
from ssfx.config.simulations import resolve_simulations
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work
from ssfx.perf_model.plan_costs import costs_on
from ssfx.perf_model.recorded_times import recorded_system
from ssfx.perf_model.target import profile_for
from ssfx.planning.plan import Bucket
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, BufferRules
from ssfx.schemes.transport import Transport
from ssfx.simulator.pricing.message_sizes import payload_bytes

# ---- Eqs. 1, 3 and 4: formulas of exchanges, against measured ones of emulated hosts ---------------------------------


LINKS = ("100mbit", "1gbit")
FEW, MANY = 2, 4
"""Hosts whose exchanges give latency and bandwidth, and hosts whose exchanges are predicted by them."""
CLOSE, FAR = 0.10, 0.25
"""Median relative error up to which a formula agrees, and partly agrees, with what was measured."""
LARGE_BYTES = 1024
"""Messages from here on count: below, a measured time is what starting an exchange takes."""
COST = "the recorded exchanges: ssfx profile network, minutes each, as root"


@dataclass(frozen=True)
class Fit:
    """One link: measured (bytes, seconds) of MANY hosts, and the formula's seconds with what FEW hosts gave."""

    link: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    predicted: tuple[float, ...]
    latency_s: float
    s_per_byte: float

    @property
    def error(self) -> float:
        """Median relative error."""
        pairs = zip(self.predicted, self.seconds, strict=True)
        return median(abs(ours / theirs - 1) for ours, theirs in pairs)


Factors = Callable[[int], tuple[float, float]]
"""Ranks -> how many latencies, and how many times the message's bytes, an exchange takes one after the other."""


def fits(collective: str, factors: Factors, tried: int) -> list[Fit]:
    """Return a Fit per link: latency and seconds per byte from FEW hosts, times predicted for `tried` hosts."""
    found = []
    for link in LINKS:
        known, other = (_points(f"emulated_{ranks}x{link}", ranks, collective) for ranks in (FEW, tried))
        starts, bytes_factor = factors(FEW)
        latency_s, s_per_byte = _line([(starts, bytes_factor * size, seconds) for size, seconds in known])
        starts, bytes_factor = factors(tried)
        predicted = tuple(starts * latency_s + bytes_factor * s_per_byte * size for size, _ in other)
        sizes, seconds = zip(*other, strict=True)
        found.append(Fit(link, sizes, seconds, predicted, latency_s, s_per_byte))
    return found


def verdict(claim: str, found: Sequence[Fit], said: str) -> Verdict:
    """Return whether a formula meets what was measured, by the median relative error over both links."""
    worst = max(fit.error for fit in found)
    outcome: Outcome = "agrees" if worst <= CLOSE else "partly" if worst <= FAR else "disagrees"
    here = "median error " + ", ".join(f"{100 * fit.error:.0f} % ({fit.link})" for fit in found)
    return Verdict(claim, outcome, here, "emulated", reason=said, cost=COST)


def draw_fits(found: Sequence[Fit], title: str, formula: str, origin: str) -> Picture:
    """Return a panel per link: measured points and the formula's line, over the bytes that one rank contributes."""
    figure, grid = subplots(1, len(found), figsize=(2 * COLUMN_IN, 2.5), sharey=True)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=8)
    for fit, axis in zip(found, grid.flat, strict=True):
        _draw(fit, axis, formula)
    grid.flat[0].set_ylabel("time (ms)")
    figure.supxlabel(origin, x=0.01, ha="left", **ORIGIN_LINE)
    table = [
        {"link": fit.link, "bytes": size, "measured_ms": 1e3 * seconds, "formula_ms": 1e3 * ours}
        for fit in found
        for size, seconds, ours in zip(fit.sizes, fit.seconds, fit.predicted, strict=True)
    ]
    return figure, table


def _draw(fit: Fit, axis: Axes, formula: str) -> None:
    axis.plot(fit.sizes, [1e3 * s for s in fit.predicted], color="#0072b2", linewidth=1.2, label=formula)
    axis.plot(fit.sizes, [1e3 * s for s in fit.seconds], "o", color="#d55e00", markersize=4, label="measured")
    axis.set(xscale="log", yscale="log", xlabel="message of one rank (bytes)")
    speed = fit.link.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
    axis.set_title(f"{speed}: median error {100 * fit.error:.0f} %", loc="left")
    axis.grid()
    axis.legend(loc="upper left")


def _points(cluster: str, ranks: int, collective: str) -> list[tuple[float, float]]:
    system = recorded_system(cluster, ranks, shipped=True)
    assert system is not None, f"the package ships exchanges of {cluster}"
    curve = system.exchange[collective]
    return [pair for pair in zip(curve.sizes, curve.seconds, strict=True) if pair[0] >= LARGE_BYTES]


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return latency and seconds per byte of least relative error for (latencies, bytes, seconds); none negative."""
    import numpy as np

    matrix = np.array([(starts / seconds, size / seconds) for starts, size, seconds in points])
    latency_s, s_per_byte = np.linalg.lstsq(matrix, np.ones(len(points)), rcond=None)[0]
    return max(0.0, float(latency_s)), float(s_per_byte)


def _ring(number: int, title: str, collective: str, formula: str, factors: Factors) -> Figure:
    """Return a figure of a ring collective: times of four hosts, predicted with latency and bandwidth of two."""
    name = f"ssfusion.eq{number}"
    said = "Of four hosts, predicted with latency and bandwidth of two; messages from 1 KiB on."

    def found() -> list[Fit]:
        return fits(collective, factors, MANY)

    def finding(_: list[Row]) -> str:
        parts = [f"{fit.link} {100 * fit.error:.0f} %" for fit in found()]
        return f"median relative error of the formula: {', '.join(parts)}"

    origin = "Emulated: hosts in network namespaces on one machine. Latency and bandwidth fitted to two hosts."
    return Figure(
        name,
        title,
        lambda *_: draw_fits(found(), title, formula, origin),
        lambda *_: [verdict(f"{name}.form", found(), said)],
        command=f"ssfx profile network cluster=emulated_4x1gbit && ssfx figures {name}",
        said=finding,
        notes=("Latency and bandwidth are fitted to exchanges of two hosts alone; those of four hosts are predicted.",),
    )


def _sends() -> list[Fit]:
    return fits("send", lambda _: (1.0, 1.0), FEW)


EQ1 = Figure(
    "ssfusion.eq1",
    "Eq. 1: the time of one message is a latency plus a time per byte",
    lambda figure, _: draw_fits(
        _sends(),
        figure.title,
        r"$\alpha + D\beta$, fitted",
        "Emulated: messages between two hosts in network namespaces on one machine; latency and bandwidth fitted.",
    ),
    lambda *_: [verdict("ssfusion.eq1.form", _sends(), "Of a line fitted to messages from 1 KiB on.")],
    command="ssfx profile network cluster=emulated_2x1gbit && ssfx figures ssfusion.eq1",
    said=lambda _: (
        "a line fits: "
        + "; ".join(
            f"{fit.link}: {1e6 * fit.latency_s:.0f} us and {8e-9 / fit.s_per_byte:.3g} Gbit/s" for fit in _sends()
        )
    ),
    notes=("Latency and bandwidth are fitted to the very points that are shown; what is tested is that a line fits.",),
)
EQ3 = _ring(
    3,
    "Eq. 3: the time of a ring All-Gather on four hosts, from latency and bandwidth of two",
    "all_gather",
    r"$(P-1)(\alpha + D\beta)$",
    lambda ranks: (ranks - 1.0, ranks - 1.0),
)
EQ4 = _ring(
    4,
    "Eq. 4: the time of a ring All-Reduce on four hosts, from latency and bandwidth of two",
    "all_reduce",
    r"$2(P-1)\alpha + 2\frac{P-1}{P}D\beta$",
    lambda ranks: (2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks),
)


# ---- Eq. 2: whether backward and encodes of a buffer fit into the exchange before, worked out on plans ---------------

CLUSTER, COMPRESSOR, DENSITY, ROUNDING_S = "64gpu", "dgc", 0.01, 1e-12
MODELS = {
    "ResNet-152": "resnet152_cifar100",
    "ViT-large": "vit_large",
    "BERT-large": "bert_large",
    "GPT2-large": "gpt2_large",
}
"""Each with its customary batch size and optimizer."""


Keep = Literal["printed", "rule"]
ALONE: tuple[Keep, str] = ("printed", "Eq. 2 alone")
GUARDED: tuple[Keep, str] = ("rule", "with the guard")


def _eq2(figure: Figure, rows: list[Row]) -> Table:
    """Return, for each model, how the buffers of both plans come to their stop."""
    table = []
    for model in MODELS:
        for keep, said in ALONE, GUARDED:
            table.append({"model": model if keep == "printed" else "", "rule": said, **buffers(model, keep)})
    return table


def _eq2_finding(rows: list[Row]) -> str:
    """Return how many buffers of all models stop as the equation says."""
    fits, dense = (sum(buffers(model, "printed")[how] for model in MODELS) for how in ("fits", "dense"))
    return f"Eq. 2 alone: {fits} buffers stop at the inequality, {dense} leave every tensor out"


def _eq2_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return whether every buffer stops as the equation says."""
    alone, guarded = ([buffers(model, keep) for model in MODELS] for keep, _ in (ALONE, GUARDED))
    holds = not any(one["neither"] for one in alone)
    late = sum(one["neither"] for one in guarded)
    count = sum(sum(one.values()) for one in guarded)
    said = f"With the guard that keeps the density, {late} of {count} buffers stop before the inequality holds."
    shares = {keep: [selected_share(model, keep) / DENSITY for model in MODELS] for keep, _ in (ALONE, GUARDED)}
    words = "; ".join(
        f"{said}: {min(shares[keep]):.3g} to {max(shares[keep]):.3g} times the elements asked for"
        for keep, said in (ALONE, GUARDED)
    )
    meets = max(abs(one - 1) for one in shares["printed"]) <= MET
    return [
        says("ssfusion.design.eq2", holds, _eq2_finding([]), said),
        says("ssfusion.design.compensate", meets, words, "the least density leaves nothing to lower"),
    ]


MET = 0.05
"""Relative difference within which as many elements are selected as were asked for."""


def planner_of(model: str) -> BufferPlanner:
    """Return the planner of a model's buffers on CLUSTER."""
    work, on = model_work(MODELS[model]), cluster(CLUSTER)
    profile = profile_for(work.model, on, work.batch_size, work.optimizer)
    return BufferPlanner(profile, costs_on(on, COMPRESSOR, DENSITY), Transport(COMPRESSOR, DENSITY, "all_gather"))


@cache
def selected_share(model: str, keep: Keep) -> float:
    """Return the share of elements that the naive variant's plan sends, those of tensors that it leaves out too."""
    planner = planner_of(model)
    numel = {spec.name: spec.numel for spec in planner.part.tensors}
    segments = [
        segment
        for bucket in planner.buckets(BufferRules(keep=keep))
        for lane in bucket.lanes
        for segment in lane.segments
    ]
    return sum(one.density * numel[name] for one in segments for name in one.tensors) / sum(numel.values())


@cache
def buffers(model: str, keep: Keep) -> Mapping[str, int]:
    """Return how many buffers behind the first of the naive variant's plan stop in which way.

    They satisfy the inequality, hold no compressed tensor, or do neither; the planner's choice is not asked. The
    exchange before is that of the previous buffer with all its tensors compressed, since it is decided later.
    """
    planner = planner_of(model)
    profile, costs = planner.part, planner.costs
    gap_s = {spec.name: gap for spec, gap in zip(profile.tensors, profile.ready_gap_s, strict=True)}
    numel = {spec.name: spec.numel for spec in profile.tensors}

    counts = {"fits": 0, "dense": 0, "neither": 0}
    for before, bucket in pairwise(planner.buckets(BufferRules(keep=keep))):
        names = sorted(_tensors(bucket), key=list(numel).index)
        packed = _tensors(bucket, compressed=True)
        shares_s = dict(zip(names, costs.shares_s([numel[name] for name in names]), strict=True))
        work_s = sum(gap_s[name] for name in names) + sum(shares_s[name] for name in packed)
        sent = sum(payload_bytes(COMPRESSOR, numel[name], DENSITY) for name in _tensors(before))
        fits = work_s <= costs.exchange_s("all_gather", sent) + ROUNDING_S
        counts["fits" if fits else "neither" if packed else "dense"] += 1
    return counts


def _tensors(bucket: Bucket, compressed: bool = False) -> list[str]:
    segments = [one for lane in bucket.lanes for one in lane.segments]
    return [name for one in segments if not (compressed and one.dense) for name in one.tensors]


EQ2 = Figure(
    "ssfusion.eq2",
    "Eq. 2: where tensors stop being left out of compression",
    Tabular(
        {
            "model": "model",
            "rule": "buffers behind the first,\non 64 GPUs",
            "fits": "exchange before covers\nbackward and encodes",
            "dense": "every tensor\nleft out",
            "neither": "neither",
        },
        _eq2,
    ),
    _eq2_verdicts,
    about=("ssfusion.eq2", "ssfusion.design.compensate"),
    said=_eq2_finding,
    notes=(
        "Eq. 2 alone leaves whole buffers uncompressed; the guard of ssfx (D-52) stops it at the density asked for, "
        "after which the inequality need not hold.",
    ),
)


# ---- Sections I and II: background figures, from public shapes and the simulator -------------------------------------

GPT3_LAYERS, GPT3_WIDTH, GPT3_WORDS, GPT3_CONTEXT = 96, 12288, 50257, 2048
"""Shapes of GPT-3 as its authors publish them."""
SLOW_GBPS = 10
"""The slowest network of the paper's experiments."""
DENSE_WORDS = (
    "model=resnet152,vit_large,bert_large,gpt2_large",
    "cluster=64gpu",
    f"cluster.inter.gbps={SLOW_GBPS}",
    "scheme=ddp",
)


def _background(figure: Figure, rows: list[Row]) -> Table:
    """Return the table: what the paper says, and what it comes to here."""
    table = []
    for one in figure.judge(rows):
        claim, printed = claims_by_id()[one.claim], number(one.claim)
        paper = f"{100 * printed:g} %" if claim.unit == "fraction" else f"{printed:g} {claim.unit}"
        table.append(
            {
                "what": claim.statement,
                "paper": paper,
                "ssfx": one.ours or "-",
                "verdict": one.outcome,
                "how": one.reason,
                "claim": one.claim,
            }
        )
    return table


def _background_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the two figures that can be worked out, and why the third cannot."""
    # Attention and feed-forward matrices, embeddings of words and places.
    gpt3 = 12 * GPT3_LAYERS * GPT3_WIDTH**2 + (GPT3_WORDS + GPT3_CONTEXT) * GPT3_WIDTH
    low, high = waiting_shares()
    said = (
        f"Dense DDP of the paper's four models on 64 GPUs, {SLOW_GBPS} Gbit/s between nodes, simulated with nominal "
        "times: the share of a step that waits for exchanges."
    )
    outcome: Outcome = "agrees" if high >= 0.9 - half_digit(90) / 100 else "partly" if high >= 0.5 else "disagrees"
    share = compared("ssfusion.bg.comm90", (0.9, 0.9), (low, high), unit="fraction").ours
    return [
        compared(
            "ssfusion.bg.gpt3_params",
            175,
            gpt3 / 1e9,
            decimals=0,
            unit="billion",
            reason="Layers, width and vocabulary as its authors publish them.",
        ),
        says("ssfusion.bg.comm90", outcome, share, said, source="simulated", calibration="nominal"),
        absent("ssfusion.bg.gpt3_data", "The size of a training text cannot be worked out; ssfx does not train GPT-3."),
    ]


@cache
def waiting_shares() -> tuple[float, float]:
    """Return the least and the largest share of a step that dense DDP waits for exchanges."""
    steps = [simulate_case(case)[1] for case in resolve_simulations(DENSE_WORDS)]
    found = [step.exposed_comm_s / step.iteration_s for step in steps]
    return min(found), max(found)


BACKGROUND = Figure(
    "ssfusion.text.background",
    "Sections I and II: background figures",
    Tabular(
        {"what": "statement", "paper": "paper", "ssfx": "ssfx", "verdict": "verdict", "how": "how"},
        _background,
        "Computed from published shapes, and simulated with data-sheet times (nominal); no run.",
    ),
    _background_verdicts,
    said=lambda _: (
        f"of a step of dense DDP on 64 GPUs at {SLOW_GBPS} Gbit/s, exchanges take "
        f"{100 * waiting_shares()[0]:.0f} to {100 * waiting_shares()[1]:.0f} %"
    ),
)


# ---- Section V-A: settings of the paper and of ssfx ------------------------------------------------------------------

TAKEN = (
    *(
        f"ssfusion.setup.{one}"
        for one in (
            "cloud.gpus",
            "cloud.nodes",
            "cloud.gpus_per_node",
            "cloud.bw",
            "local.nodes",
            "local.bw",
            "density",
        )
    ),
    "ssfusion.iii.setting.density",
    "ssfusion.design.density",
    "ssfusion.design.density_floor",
    "ssfusion.design.warmup",
    "ssfusion.setup.exp1_gpus16",
    "ssfusion.setup.exp1_gpus32",
    "ssfusion.setup.exp1_gpus64",
    "ssfusion.exp7.gpus",
    "ssfusion.setup.cloud.cpu_cores",
    "ssfusion.setup.local.cpu_cores",
    "ssfusion.design.traces",
)
"""Claims of settings, with their place here in the ledger; the last three have none."""
TASKS = ("resnet152_cifar100", "bert_large_squad", "gpt2_large_wikitext103")
"""Those of section III as they are called here."""


def _settings(figure: Figure, rows: list[Row]) -> Table:
    """Return what is set, the paper's value, ours, and where ours is."""
    table = []
    for one in figure.judge(rows):
        claim = claims_by_id()[one.claim]
        where = re.sub(r"^scheme (\S+) ", r"scheme=\1, ", claim.here)
        where = re.sub(r"^cluster (\S+) ", r"conf/cluster/\1.yaml, ", where)
        table.append(
            {
                "what": claim.statement,
                "paper": f"{claim.bounds[0]:g}" if claim.bounds else "",
                "ssfx": one.ours,
                "verdict": one.outcome,
                "where": where or one.reason,
                "claim": claim.id,
            }
        )
    return table


def _settings_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every setting: agrees where ssfx takes the paper's value."""
    found = [held("ssfusion.iii.setting.tasks", sum(name in choices("workload") for name in TASKS))]
    for claim in (claims_by_id()[name] for name in TAKEN):
        if claim.here:
            printed = number(claim.id)
            found.append(compared(claim.id, printed, taken(claim.here), decimals=4))
        else:
            found.append(absent(claim.id, claim.not_here))
    return found


SETTINGS: Figure = Figure(
    "ssfusion.text.setup",
    "Section V-A: settings of the paper and of ssfx",
    Tabular(
        {"what": "setting", "paper": "paper", "ssfx": "ssfx", "verdict": "verdict", "where": "where, or why not"},
        _settings,
        "Read from the configuration files and the schemes' defaults; no run.",
    ),
    _settings_verdicts,
    said=lambda rows: (
        f"{sum(one.outcome == 'agrees' for one in SETTINGS.judge(rows))} of {len(TAKEN) + 1} settings are "
        f"the paper's; {sum(not one.ours for one in SETTINGS.judge(rows))} have no counterpart"
    ),
)
