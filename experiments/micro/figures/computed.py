"""What of MiCRO is computed on made-up gradients or read from the configuration, without a run."""

from itertools import pairwise

import numpy as np

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict, counted
from experiments.common.evaluation.artifacts import CONFIGURED, Claims, Judged
from experiments.common.evaluation.configured import bytes_per_element, settings
from experiments.common.evaluation.judging import absent, held, says
from experiments.common.evaluation.selection_example import DENSITY, SPARSIFIERS, WORKERS, run
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Picture, Table, plt
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.compressors import build
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

MODEL = "resnet18_cifar10"


# ---- Algorithm 1: parts that rotate, a selection in which all take part, a steered threshold -------------------------


def _alg1(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every property of the algorithm."""
    workers = int(claims_by_id()["micro.micro.search_range"].conditions["n"])
    numel = model_work(MODEL).numel
    starts = split_starts(numel, workers)
    largest = max(b - a for a, b in pairwise(starts))
    tried = run("micro")
    rises, falls = threshold_scale(2, 1) > 1, threshold_scale(1, 2) < 1
    return [
        held("micro.micro.search_range", largest / numel, tolerance=1 / numel * workers),
        says("micro.micro.no_buildup", tried.overlap == 0, f"{tried.overlap:g} elements selected twice"),
        held("micro.micro.coverage", coverage(workers), tolerance=0.0),
        says("micro.micro.invariance", same_set(), "the same indices with and without parts"),
        says(
            "micro.micro.k_error", "partly" if rises and falls else "disagrees",
            f"{tried.ratio:.3f} of the wanted count",
            "steered by the sum over workers, as the authors' code does; the text has one worker's (MI-01)",
        ),
        held(
            "micro.micro.all_workers", tried.deciding, tolerance=0.0,
            reason="a worker that finds nothing sends one element, as in the authors' code", source="restated",
        ),
    ]  # fmt: skip


def coverage(workers: int) -> int:
    """Return in how many steps every worker sees every part; parts are disjoint in each of them."""
    seen: list[set[int]] = [set() for _ in range(workers)]
    for step in range(2 * workers):
        parts = [partition_of(rank, step, workers) for rank in range(workers)]
        assert sorted(parts) == list(range(workers))
        for own, part in zip(seen, parts, strict=True):
            own.add(part)
        if all(len(own) == workers for own in seen):
            return step + 1
    return 2 * workers


def same_set() -> bool:
    """Return whether filtering part by part selects what filtering the whole vector does."""
    vector = np.abs(np.random.default_rng(0).standard_normal(10_007))
    starts = split_starts(len(vector), 16)
    parts = [a + np.flatnonzero(vector[a:b] > 2.0) for a, b in pairwise(starts)]
    return bool(np.array_equal(np.concatenate(parts), np.flatnonzero(vector > 2.0)))


ALG1 = Figure(
    "micro.alg1", "What holds in every step of MiCRO",
    Claims("Computed by ssfx: the partition and threshold rules of its compressor on made-up gradients; no training "
           "run."),
    Judged(_alg1),
)  # fmt: skip


# ---- Eq. (1): the mean norm of what workers have not sent yet --------------------------------------------------------


def _eq1(figure: Figure, rows: list[Row]) -> Picture:
    """Return the error of MiCRO on made-up gradients, step by step, beside its threshold."""
    table = [
        {"step": step, "error_norm": norm, "threshold": threshold, "density_ratio": ratio}
        for step, (ratio, threshold, norm) in enumerate(run("micro").history)
    ]
    canvas, axis = plt.subplots(figsize=(1.4 * COLUMN_IN, 2.2), layout="constrained")
    axis.plot([line["step"] for line in table], [line["error_norm"] for line in table], color="#c9a0dc")
    axis.set_title(f"{figure.title}: {WORKERS} workers, density {DENSITY:g}", loc="left", fontweight="bold")
    axis.set(xlabel="step", ylabel="error")
    axis.grid()
    say_origin(canvas, "Computed by ssfx on made-up gradients; no training run.")
    return canvas, table


def _eq1_verdict(rows: list[Row]) -> list[Verdict]:
    last = run("micro").history[-1][2]
    why = "a definition, used here as it stands; the paper swaps the indices of worker and step (MI-03)"
    return [says("micro.eq1.form", "agrees", f"{last:.3g} in the last step drawn", why, source="restated")]


EQ1: Figure = Figure(
    "micro.eq1", "Mean norm of the workers' errors", _eq1, Judged(_eq1_verdict),
    said=lambda rows: f"{EQ1.judge(rows)[0].ours} ({counted(EQ1.judge(rows))})",
)  # fmt: skip


# ---- Fig. 3: parts that rotate over the workers, and a threshold that follows the count ------------------------------

FEW, STEPS = 4, 8
PARTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def _fig3(figure: Figure, rows: list[Row]) -> Picture:
    """Return which part each worker selects from, step by step, and how many elements are selected in the end."""
    table = [
        {"step": step, "worker": worker, "part": partition_of(worker, step, FEW)}
        for step in range(STEPS)
        for worker in range(FEW)
    ]
    canvas, (left, right) = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.1), layout="constrained")
    for line in table:
        left.barh(line["worker"], 0.94, 0.86, left=line["step"], color=PARTS[line["part"]])
        left.text(line["step"] + 0.47, line["worker"], line["part"], ha="center", va="center", color="white")
    left.set_yticks(range(FEW), [f"worker {worker}" for worker in range(FEW)])
    left.set(ylim=(FEW - 0.5, -0.5), xlabel="step")
    left.set_title("part of the vector that a worker selects from", loc="left", fontweight="bold")
    right.plot([ratio for ratio, _, _ in run("micro").history], color="#5b2a86", linewidth=0.9)
    right.axhline(1, color="black", linewidth=0.7, linestyle=(0, (4, 2)))
    right.set(yscale="log", xlabel="step", ylabel="selected over wanted")
    right.set_title("count that the threshold follows", loc="left", fontweight="bold")
    right.grid()
    origin = "Computed by ssfx: the rules of its collective on made-up gradients of 16 workers; no training run."
    say_origin(canvas, origin)
    return canvas, table


FIG3 = Figure(
    "micro.fig3", "Exclusive parts and the steered threshold", _fig3, Judged(),
    said=lambda _: f"{run('micro').ratio:.2f} of the wanted elements in the last quarter of the steps",
)  # fmt: skip


# ---- Table I: weaknesses of sparsifiers, the rules of the methods worked through on made-up gradients ----------------

NAMES = {"topk": "Top-k", "cltk": "CLT-k", "hardthr": "hard threshold", "sidco": "SIDCo", "micro": "MiCRO"}
OURS = {"topk": "topk", "cltk": "cltk", "hardthr": "hard_threshold", "sidco": "sidco"}
CRITERIA = {
    "buildup": "gradient build-up", "density": "unpredictable high density", "tuning": "tuning of a threshold",
    "fidelity": "loss of fidelity", "idling": "worker idling", "selection": "selection cost",
    "overhead": "further overhead",
}  # fmt: skip
FAR = 1.1
"""More than this times the density that was set counts as high, and as another density."""
OTHER_SCALE = 4.0
"""How much larger gradients are in the second run, where a hand-set threshold is no longer right."""


def word(claim_id: str) -> str:
    """Return what a cell says: the ledger's statement behind its equals sign."""
    return claims_by_id()[claim_id].statement.rpartition("= ")[2]


def _table1(figure: Figure, rows: list[Row]) -> Table:
    """Return one line per sparsifier and criterion: the paper's word, and the number behind ours."""
    found = {one.claim: one for one in figure.judge(rows)}
    return [
        {
            "sparsifier": name if first else "",
            "criterion": heading,
            "paper": word(f"{figure.name}.{key}.{criterion}"),
            "here": found[f"{figure.name}.{key}.{criterion}"].ours,
            "outcome": found[f"{figure.name}.{key}.{criterion}"].outcome,
        }
        for key, name in NAMES.items()
        for first, (criterion, heading) in zip([True] + [False] * 6, CRITERIA.items(), strict=True)
    ]


def _table1_verdicts(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every cell of the table and on the two sentences about CLT-k."""
    leading = run("cltk")
    return [
        *(verdict for key in SPARSIFIERS for verdict in cells(key)),
        held("micro.iii.cltk_equal", leading.ratio, tolerance=0.0, source="restated"),
        held("micro.iii.cltk_idle", leading.deciding / WORKERS, tolerance=0.0, source="restated"),
    ]


def cells(key: str) -> list[Verdict]:
    """Return the verdicts on one line of the table."""
    here, larger = run(key), run(key, OTHER_SCALE)
    moves = abs(larger.ratio / here.ratio - 1)
    properties = {
        "buildup": (here.overlap > 0 or (key != "cltk" and here.ratio > FAR), f"{here.ratio:.1f}x selected"),
        "density": (here.ratio > FAR, f"{here.ratio:.1f}x of what was set"),
        "tuning": (moves > FAR - 1, f"{100 * moves:.0f} % other density with {OTHER_SCALE:g}x larger gradients"),
        "fidelity": (here.deciding < WORKERS, f"{here.deciding:.0f} of {WORKERS} decide"),
        "idling": (here.idle > 0, f"{here.idle:.0f} of {WORKERS} wait"),
    }
    start = f"micro.table1.{key}"
    moved = f"{bytes_per_element(OURS[key]):.0f} bytes moved per element" if key in OURS else (
        f"1/{WORKERS} of the elements read")  # fmt: skip
    slower = "levels of the paper's implementations on GPUs; ours select without sorting"
    return [
        *(says(f"{start}.{criterion}", (word(f"{start}.{criterion}") == "yes") == yes, ours, source="restated")
          for criterion, (yes, ours) in properties.items()),
        absent(f"{start}.selection", slower, "not comparable", moved),
    ]  # fmt: skip


TABLE1 = Figure(
    "micro.table1", f"Weaknesses of sparsifiers, tried with error feedback on {WORKERS} made-up workers",
    Tabular(
        {"sparsifier": "sparsifier", "criterion": "criterion", "paper": "paper", "here": "ssfx", "outcome": "outcome"},
        _table1,
        "Computed by ssfx: rules of its compressors on made-up gradients, last quarter of the steps; no training run.",
    ),
    Judged(_table1_verdicts),
)  # fmt: skip


# ---- Table II and section V-A: settings ------------------------------------------------------------------------------

SETTINGS = {
    "n": "workers", "bl": "batch per\nworker", "ne": "epochs", "d1": "first\ndensity", "d2": "second\ndensity",
    "nds": "data sets",
}  # fmt: skip


def _table2(figure: Figure, rows: list[Row]) -> Table:
    """Return the paper's table with our settings beside its own."""
    found = {one.claim: one for one in figure.judge(rows)}
    table = []
    for name in ("ResNet-18", "GoogLeNet", "SENet-18"):
        line: dict[str, str | float] = {"model": name}
        for setting in SETTINGS:
            claim = f"micro.table2.{name.lower().replace('-', '')}.{setting}"
            line |= {f"paper_{setting}": number(claim), setting: found[claim].ours or "-"}
        table.append(line)
    return table


COLUMNS = {
    key: heading
    for setting, words in SETTINGS.items()
    for key, heading in ((f"paper_{setting}", "paper:\n" + words), (setting, "ssfx"))
}
TABLE2 = Figure(
    "micro.table2", "Settings of every model", Tabular({"model": "model", **COLUMNS}, _table2, CONFIGURED.origin),
    Judged(lambda _: settings("micro.table2")),
)  # fmt: skip


def _setup(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every setting and on the two formulas."""
    numel = model_work(MODEL).numel
    k = build("topk").layout(numel, DENSITY).values
    formulas = [
        says("micro.def.density", abs(k / numel - DENSITY) < 1 / numel, f"k = {k:,} of {numel:,} elements",
             source="restated"),
        says("micro.setup.delta0", "partly", f"{threshold_for(k):.3g} for hard threshold, counted here",
             "the paper prints no rule, the authors' code has 1 / (2 sqrt k) for both; MiCRO takes that here only with "
             "delta0, because runs of 100 steps end before half a percent a step has corrected it", source="restated"),
    ]  # fmt: skip
    return [*settings("micro.text.setup", but=[one.claim for one in formulas]), *formulas]


SETUP = Figure("micro.text.setup", "Cluster and settings of MiCRO", CONFIGURED, Judged(_setup))
