"""ACP-SGD's iteration times, from simulated rows: Figs. 2, 3 and 8 to 13, Table III."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Outcome, Verdict, counted
from experiments.common.evaluation.acpsgd_panels import COLOURS, LABELS, NOTE, bar, iteration_s, line, parts
from experiments.common.evaluation.artifacts import Judged, about
from experiments.common.evaluation.configured import cluster
from experiments.common.evaluation.judging import absent, held
from experiments.common.evaluation.low_rank import mib, of
from experiments.common.evaluation.row_steps import (
    SORTS_NOTHING,
    in_all,
    prediction_bars,
    values_by_calibration,
)
from experiments.common.evaluation.step_plots import Bars, Line, Lines, Panels, Parts
from experiments.common.figures.auto import AUTO
from experiments.common.figures.figure import Figure, simulated
from experiments.common.validation.published_acpsgd import (
    MODELS,
    NETWORKS,
    SMALLEST_BATCH,
    Setup,
    ratios,
    table_3,
    timed,
)
from experiments.common.validation.published_steps import Prediction, Steps, Value, mean, method, number, over, stated
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search.byte_groups import MIB

COMPRESSORS = ("ssgd", "signsgd", "topk", "powersgd")
LOW_RANK = ("ssgd", "powersgd", "powersgd-star", "acpsgd")
FUSED = ("ssgd", "powersgd-star", "acpsgd")
POWER = ("powersgd", "powersgd-star")
SMALL = ("ResNet-50", "BERT-Base")
"""The models that the paper shows where it shows two."""
GAIN = {"over": COLOURS["acpsgd"]}
NO_MEMORY = "what the paper's Sign-SGD keeps in memory is in its code, which keeps more than ours"
GIB = 1 << 30


def seconds(name: str, setup: Setup) -> Value:
    """Return how the iteration time of a method follows from steps."""
    return lambda steps: iteration_s(steps, name, setup)


def lead(steps: Steps, own: str, names: Sequence[str], at: Setup) -> float:
    """Return by what share the fastest other method of `names` takes longer than `own`; negative where it is faster."""
    return min(iteration_s(steps, name, at) for name in names if name != own) / iteration_s(steps, own, at) - 1


# ---- Fig. 2 and Table III: methods on four models --------------------------------------------------------------------


def _fig2(rows: list[Row]) -> list[Bars]:
    """Return one panel a model; the paper prints the times of S-SGD and Power-SGD, and two ratios, of ResNet-50."""
    panels = []
    for model, (_, key, _) in MODELS.items():
        known = {name: number(f"acpsgd.table3.{key}.{name}") / 1e3 for name in ("ssgd", "powersgd")}
        if model == "ResNet-50":
            known |= {
                name: known["ssgd"] * number(f"acpsgd.fig2.{claim}")
                for name, claim in (("signsgd", "sign"), ("topk", "topk"))
            }
        paper = {name: (value, value) for name, value in known.items()}
        bars = [bar(rows, name, Setup(model), paper=paper.get(name)) for name in (*COMPRESSORS, AUTO)]
        panels.append(Bars(model, bars, "iteration (s)"))
    return panels


def _times(steps: Steps, model: str) -> dict[str, float]:
    return {name: iteration_s(steps, name, Setup(model)) for name in COMPRESSORS}


def _dense_faster(steps: Steps) -> tuple[bool, str]:
    times = _times(steps, "ResNet-50")
    slower = [times[name] / times["ssgd"] - 1 for name in COMPRESSORS[1:]]
    low, high = stated("acpsgd.intro.ssgd_faster")
    holds = low - 0.05 <= min(slower) and max(slower) <= high + 0.05
    return holds, f"{100 * min(slower):.0f} to {100 * max(slower):.0f} % slower"


def _topk_large(steps: Steps) -> tuple[list[float], str]:
    times = _times(steps, "BERT-Large")
    return [times["ssgd"] / times["topk"] - 1], f"{times['topk'] / times['ssgd']:.2f}x of S-SGD's time"


def _power_small(steps: Steps) -> tuple[bool, str]:
    wins = [model for model in MODELS if _times(steps, model)["powersgd"] < _times(steps, model)["ssgd"]]
    return set(wins) == {"BERT-Base", "BERT-Large"}, f"faster for {', '.join(wins) or 'none'}"


def _memory(rows: list[Row]) -> list[Verdict]:
    """Return what Sign-SGD takes of a device on BERT-Large here, held against nothing."""
    found = values_by_calibration(rows, lambda steps: steps.row(*timed("signsgd", Setup("BERT-Large"))).manifest)
    return [
        replace(
            absent(
                "acpsgd.fig2.oom",
                NO_MEMORY,
                "not comparable",
                f"{one['needed_bytes'] / GIB:.1f} of {one['device_memory_bytes'] / GIB:.0f} GiB",
                "simulated",
            ),
            calibration=calibration,
        )
        for calibration, one in found.items()
    ]


FIG2 = Figure(
    "acpsgd.fig2",
    "Iteration times of S-SGD and three compressors",
    Panels(_fig2),
    Judged(
        _memory,
        ratios,
        {
            "acpsgd.intro.ssgd_faster": _dense_faster,
            "acpsgd.fig2.topk_large": _topk_large,
            "acpsgd.fig2.power_best": in_all(
                "best for {} of {} models",
                lambda steps: (lead(steps, "powersgd", COMPRESSORS[1:], Setup(model)) for model in MODELS),
            ),
            "acpsgd.fig2.power_small": _power_small,
        },
        not_comparable={"acpsgd.fig2.topk": SORTS_NOTHING},
    ),
    needs=simulated("acpsgd_models"),
    notes=(NOTE,),
)


def _table3(rows: list[Row]) -> list[Bars]:
    """Return one panel a model: simulated times as bars, the paper's as open marks."""
    panels = []
    for model, (_, key, _) in MODELS.items():
        paper = {name: (number(f"acpsgd.table3.{key}.{name}"),) * 2 for name in LOW_RANK}
        bars = [bar(rows, name, Setup(model), scale=1e3, paper=paper.get(name)) for name in (*LOW_RANK, AUTO)]
        panels.append(Bars(model, bars, "iteration (ms)"))
    return panels


def _table3_predictions() -> Iterator[Prediction]:
    """Yield every time, and the ratios that the text takes from the table."""
    yield from table_3()
    gain = {name: [over(timed(name, Setup(m)), timed("acpsgd", Setup(m))) for m in MODELS] for name in LOW_RANK}
    slower = [over(timed(name, Setup("ResNet-50")), timed("ssgd", Setup("ResNet-50"))) for name in POWER]
    large = list(MODELS).index("BERT-Large")
    for claim, value in {
        "acpsgd.headline.ssgd_avg": mean(gain["ssgd"]),
        "acpsgd.headline.power_avg": mean([value for name in POWER for value in gain[name]]),
        "acpsgd.headline.ssgd_max": gain["ssgd"][large],
        "acpsgd.headline.power_max": gain["powersgd-star"][large],
        "acpsgd.table3.avg_power": mean(gain["powersgd"]),
        "acpsgd.table3.avg_powerstar": mean(gain["powersgd-star"]),
        "acpsgd.table3.resnet50_slow": mean(slower),
        "acpsgd.table3.bertlarge_power": gain["powersgd"][large],
    }.items():
        yield Prediction(claim, "Table III", "averages", value)


def _table3_finding(rows: list[Row]) -> str:
    """Return what ACP-SGD gains over S-SGD on average, by calibration."""
    gain = mean([over(timed("ssgd", Setup(model)), timed("acpsgd", Setup(model))) for model in MODELS])
    said = [f"{value:.2f}x ({calibration})" for calibration, value in values_by_calibration(rows, gain).items()]
    paper = number("acpsgd.headline.ssgd_avg")
    return f"ACP-SGD over S-SGD on average: {', '.join(said)}; paper {paper:g}x ({counted(TABLE3.judge(rows))})"


def _star_small(steps: Steps) -> tuple[list[float], str]:
    ratio = {model: over(*(timed(name, Setup(model)) for name in reversed(POWER)))(steps) for model in MODELS}
    leads = [(1 / ratio[model] if model.startswith("ResNet") else ratio[model]) - 1 for model in MODELS]
    return leads, ", ".join(f"{model} {value:.2f}x" for model, value in ratio.items())


TABLE3 = Figure(
    "acpsgd.table3",
    "Iteration times of ACP-SGD and three other methods",
    Panels(_table3),
    Judged(
        predictions=_table3_predictions,
        orders={
            "acpsgd.table3.best": in_all(
                "fastest for {} of {} models",
                lambda steps: (lead(steps, "acpsgd", LOW_RANK, Setup(model)) for model in MODELS),
            ),
            "acpsgd.table3.star_small": _star_small,
        },
    ),
    needs=simulated("acpsgd_models"),
    said=_table3_finding,
    notes=(NOTE,),
)


# ---- Figs. 3 and 8: parts of an iteration ----------------------------------------------------------------------------


def _sign_cheap(steps: Steps) -> tuple[list[float], str]:
    times = {name: steps.step(*timed(name, Setup("BERT-Base"))).sparsify_s for name in COMPRESSORS[1:]}
    leads = [times[name] / times["signsgd"] - 1 for name in times if name != "signsgd"]
    return leads, ", ".join(f"{n} {1e3 * t:.0f} ms" for n, t in times.items())


def _fig3_predictions() -> Iterator[Prediction]:
    yield from ratios()
    bert = Setup("BERT-Base")
    yield Prediction("acpsgd.fig3.power", "", "", over(timed("ssgd", bert), timed("powersgd", bert)))
    yield Prediction(
        "acpsgd.fig3.topk_comp", "", "", over(timed("topk", bert), timed("signsgd", bert), part="sparsify_s")
    )


FIG3 = Figure(
    "acpsgd.fig3",
    "Parts of an iteration: S-SGD and three compressors",
    Parts(lambda rows: {model: parts(rows, (*COMPRESSORS, AUTO), model) for model in SMALL}),
    Judged(
        predictions=_fig3_predictions,
        orders={"acpsgd.fig3.sign_cheap": _sign_cheap},
        not_comparable={"acpsgd.fig3.topk_comp": SORTS_NOTHING},
    ),
    needs=simulated("acpsgd_models"),
    notes=(NOTE,),
)

NO_NUMBER = "the paper does not say which share of linear scaling is almost linear; its own time of a step gives 81 %"


def _linear(steps: Steps) -> tuple[Outcome, str]:
    shares = [steps.alone_s(Setup(m).setting) / iteration_s(steps, "acpsgd", Setup(m)) for m in SMALL]
    return "not comparable", f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of linear"


FIG8 = Figure(
    "acpsgd.fig8",
    "Parts of an iteration: ACP-SGD and three other methods",
    Parts(lambda rows: {model: parts(rows, (*LOW_RANK, AUTO), model) for model in SMALL}),
    Judged(orders={"acpsgd.fig8.linear": _linear}, not_comparable={"acpsgd.fig8.linear": NO_NUMBER}),
    needs=simulated("acpsgd_models"),
    notes=(NOTE,),
)


# ---- Figs. 9 and 10: overlap, fusion and the size of buffers ---------------------------------------------------------

LARGE = ("ResNet-152", "BERT-Large")
VARIANTS = {"(naive)": "naive", "(WFBP)": "WFBP", "": "WFBP\n+TF"}
ONE_PLAN = "Power-SGD* waits for the device at the end of every bucket here, so that both variants are one plan"


def _fig9(rows: list[Row]) -> list[Bars]:
    """Return three bars a method, one panel a model and method; the paper prints ratios, which are in the last one."""
    panels = [
        Bars(
            f"{LABELS[name]}, {model}",
            [bar(rows, f"{name}{variant}", Setup(model), label) for variant, label in VARIANTS.items()],
            "iteration (s)",
        )
        for name in FUSED
        for model in LARGE
    ]
    own = [one for one in about("acpsgd.fig9", ratios()) if "fusion" in one.panel]
    return [*panels, prediction_bars(rows, own, "gain of fusion over WFBP", COLOURS)]


def _fusion_power_most(steps: Steps) -> tuple[list[float], str]:
    gains = {
        name: mean([over(timed(f"{name}(WFBP)", Setup(m)), timed(name, Setup(m))) for m in LARGE])(steps)
        for name in FUSED
    }
    leads = [gains["powersgd-star"] / gains[name] - 1 for name in ("acpsgd", "ssgd")]
    return leads, ", ".join(f"{LABELS[name]} {gain:.2f}x" for name, gain in gains.items())


FIG9 = Figure(
    "acpsgd.fig9",
    "Gain of overlap (WFBP) and fusion (TF)",
    Panels(_fig9),
    Judged(
        lambda _: [absent("acpsgd.fig9.power_wfbp", ONE_PLAN, "not comparable")],
        ratios,
        {"acpsgd.fig9.tf_power_most": _fusion_power_most},
    ),
    needs=simulated("acpsgd_fusion"),
)

SIZES_MB = (0, 1, 5, 25, 100, 500, 1500)
BUFFER_RANKS = (32, 256)


def buffered_s(name: str, rank: int, mb: int) -> Value:
    """Return how the iteration time with buffers of a size follows from steps; a method of the ledger but for it."""
    how, at = timed(name, Setup("BERT-Large", rank=rank))
    sized = method(how.scheme, **{**dict(how.options), "buffer_bytes": mb * MIB})
    return lambda steps: steps.step(sized, at).iteration_s


def _fig10(rows: list[Row]) -> list[Bars | Lines]:
    """Return one panel a rank, iteration time over buffer size; the paper prints gains only."""
    panels: list[Bars | Lines] = []
    for rank in BUFFER_RANKS:
        lines = [line(rows, name, [(mb, buffered_s(name, rank, mb)) for mb in SIZES_MB]) for name in FUSED[1:]]
        title = f"BERT-Large, rank {rank}"
        panels.append(Lines(title, lines, "buffer (MB)", "iteration (s)", ticks=SIZES_MB))
    return [*panels, prediction_bars(rows, about("acpsgd.fig10", ratios()), "gain of 25 MB at rank 256", GAIN)]


def _fig10_sizes(rows: list[Row]) -> list[Verdict]:
    rank = claims_by_id()["acpsgd.fig10.rank256_ratio"].conditions["rank"]
    found = of("BERT-Large", rank)
    two = f"{found.turns_ratio:.2f}x if P or Q is sent in a step, {found.power_ratio:.2f}x as Table I counts (ACP-02)"
    return [
        held("acpsgd.fig10.model_size", mib(found.numel)),
        held("acpsgd.fig10.rank256_ratio", (found.power_ratio, found.turns_ratio), reason=two),
        held("acpsgd.fig10.buf_range", (float(min(SIZES_MB)), float(max(SIZES_MB))), tolerance=0.0),
    ]


FIG10 = Figure(
    "acpsgd.fig10",
    "Iteration time by buffer size",
    Panels(_fig10),
    Judged(
        _fig10_sizes,
        ratios,
        {
            "acpsgd.fig10.acp_below": in_all(
                "below in {} of {} points",
                lambda steps: (
                    buffered_s("powersgd-star", rank, mb)(steps) / buffered_s("acpsgd", rank, mb)(steps) - 1
                    for rank in BUFFER_RANKS
                    for mb in SIZES_MB
                ),
            ),
        },
    ),
    needs=simulated("acpsgd_fusion"),
)


# ---- Figs. 11 to 13: sweeps ------------------------------------------------------------------------------------------

BATCHES, RANKS, GPUS = (8, 16, 24, 32), (32, 64, 128, 256), (8, 16, 32, 64)
SHOWN = {"1GbE": "1 Gb/s Ethernet", "10GbE": "10 Gb/s Ethernet", "100GbIB": "100 Gb/s InfiniBand"}


def _swept(rows: list[Row], setups: dict[int, Setup]) -> list[Line]:
    return [line(rows, name, [(x, seconds(name, at)) for x, at in setups.items()]) for name in (*FUSED, AUTO)]


def _fig11(rows: list[Row]) -> list[Bars | Lines]:
    """Return panel (a) over batch size and panel (b) over rank; the paper prints ratios only."""
    batch = _swept(rows, {size: Setup("ResNet-152", batch_size=size) for size in BATCHES})
    rank = _swept(rows, {rank: Setup("BERT-Large", rank=rank) for rank in RANKS})
    gains = {part: [one for one in ratios() if one.panel == f"Fig. 11{part} gain of ACP-SGD"] for part in "ab"}
    return [
        Lines("(a) ResNet-152 by batch size", batch, "batch size per GPU", "iteration (s)"),
        Lines("(b) BERT-Large by rank", rank, "rank", "iteration (s)"),
        *(prediction_bars(rows, own, f"({part}) gain of ACP-SGD", GAIN) for part, own in gains.items()),
    ]


def _fig11_settings(rows: list[Row]) -> list[Verdict]:
    units = max(spec.shape[-1] for spec in model_work("bert_large_pretraining").tensors if "position" in spec.name)
    impossible = f"swept from {SMALLEST_BATCH}: gains of 2.4x to 3.7x by doubling a batch are impossible (ACP-01)"
    return [
        held("acpsgd.fig11a.range", (float(min(BATCHES)), stated("acpsgd.fig11a.range")[1]), reason=impossible),
        held("acpsgd.fig11b.hidden", float(units), tolerance=0.0),
    ]


FIG11 = Figure(
    "acpsgd.fig11",
    "Iteration time by batch size and by rank",
    Panels(_fig11),
    Judged(_fig11_settings, ratios),
    needs=simulated("acpsgd_sweeps"),
    notes=(f"{NOTE} It chooses ranks of its own, so that its line in (b) is level.",),
)


def _fig12(rows: list[Row]) -> list[Bars | Lines]:
    """Return one panel a model; the paper prints growths only, and does not name its models."""
    panels = [
        Lines(model, _swept(rows, {n: Setup(model, gpus=n) for n in GPUS}), "GPUs", "iteration (s)") for model in SMALL
    ]
    growth = prediction_bars(rows, about("acpsgd.fig12", ratios()), "64 over 8 GPUs, mean of four models", COLOURS)
    return [*panels, growth]


FIG12 = Figure(
    "acpsgd.fig12",
    "Iteration time by number of GPUs",
    Panels(_fig12, lambda rows: [row for row in rows if row.case.cluster.name == "acpsgd_10gbe"]),
    Judged(lambda _: [held("acpsgd.headline.gpus", (float(min(GPUS)), float(max(GPUS))), tolerance=0.0)], ratios),
    needs=simulated("acpsgd_sweeps"),
    notes=(NOTE,),
)


def _fig13(rows: list[Row]) -> list[Bars]:
    """Return one panel a network and model; the paper prints ratios only."""
    panels = [
        Bars(
            f"{model}, {label}",
            [bar(rows, name, Setup(model, network=network)) for name in (*FUSED, AUTO)],
            "iteration (s)",
        )
        for network, label in SHOWN.items()
        for model in SMALL
    ]
    title = "gain over S-SGD: ResNet-50, then BERT-Base"
    return [*panels, prediction_bars(rows, about("acpsgd.fig13", ratios()), title, COLOURS, logarithmic=True)]


def _networks(rows: list[Row]) -> list[Verdict]:
    rates = sorted(cluster(name).inter.gbps for name in NETWORKS.values())
    return [held("acpsgd.headline.network", (rates[0], rates[-1]), tolerance=0.0)]


FIG13 = Figure(
    "acpsgd.fig13",
    "Iteration time on three networks",
    Panels(_fig13),
    Judged(
        _networks,
        ratios,
        {
            "acpsgd.fig13.best": in_all(
                "fastest in {} of {} cases",
                lambda steps: (
                    lead(steps, "acpsgd", FUSED, Setup(model, network=network)) for model in SMALL for network in SHOWN
                ),
            )
        },
    ),
    needs=simulated("acpsgd_sweeps"),
    notes=(NOTE,),
)
