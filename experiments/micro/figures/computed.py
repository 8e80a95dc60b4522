"""What of MiCRO is computed on made-up gradients or read from the configuration, without a run."""

from itertools import pairwise

import numpy as np

from experiments.common.claims.ledger import claims_by_id, claims_of
from experiments.common.claims.verdicts import counted
from experiments.common.evaluation import selection_times
from experiments.common.evaluation.artifacts import CONFIGURED, Answer, Claims, Judged
from experiments.common.evaluation.configured import settings
from experiments.common.evaluation.selection_example import DENSITY, SPARSIFIERS, WORKERS, run
from experiments.common.figures.figure import Figure, Sketch
from experiments.common.figures.style import Axes, Table
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.collectives.micro import partition_of, threshold_scale
from ssfx.collectives.primitives import split_starts
from ssfx.compressors import build
from ssfx.compressors.hard_threshold import threshold_for
from ssfx.config.groups import choices
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

MODEL = "resnet18_cifar10"


# ---- Algorithm 1: parts that rotate, a selection in which all take part, a steered threshold -------------------------


def _alg1(rows: list[Row]) -> dict[str, Answer]:
    workers, numel = int(claims_by_id()["micro.micro.search_range"].conditions["n"]), model_work(MODEL).numel
    tried = run("micro")
    return {
        "micro.micro.search_range": max(b - a for a, b in pairwise(split_starts(numel, workers))) / numel,
        "micro.micro.no_buildup": (tried.overlap == 0, f"{tried.overlap:g} elements selected twice"),
        "micro.micro.coverage": coverage(workers),
        "micro.micro.invariance": (same_set(), "the same indices with and without parts"),
        "micro.micro.k_error": (
            "partly" if threshold_scale(2, 1) > 1 > threshold_scale(1, 2) else "disagrees",
            f"{tried.ratio:.3f} of the wanted count",
        ),
        "micro.micro.all_workers": tried.deciding,
    }


def coverage(workers: int) -> int:
    """Return in how many steps every worker sees every part; parts are disjoint in each of them."""
    most = 2 * workers
    parts = np.array([[partition_of(rank, step, workers) for rank in range(workers)] for step in range(most)])
    assert (np.sort(parts) == np.arange(workers)).all()
    return next((n for n in range(1, most) if all(len(set(own[:n])) == workers for own in parts.T)), most)


def same_set() -> bool:
    """Return whether filtering part by part selects what filtering the whole vector does."""
    vector = np.abs(np.random.default_rng(0).standard_normal(10_007))
    parts = [a + np.flatnonzero(vector[a:b] > 2.0) for a, b in pairwise(split_starts(len(vector), 16))]
    return bool(np.array_equal(np.concatenate(parts), np.flatnonzero(vector > 2.0)))


ALG1 = Figure(
    "micro.alg1",
    "What holds in every step of MiCRO",
    Claims(
        "Computed by ssfx: the partition and threshold rules of its compressor on made-up gradients; no training run."
    ),
    Judged(_alg1),
)


# ---- Eq. (1): the mean norm of what workers have not sent yet --------------------------------------------------------


def _eq1(axis: Axes, rows: list[Row]) -> Table:
    names = ("step", "error_norm", "threshold", "density_ratio")
    table = [dict(zip(names, (step, *one[::-1]), strict=True)) for step, one in enumerate(run("micro").history)]
    axis.plot([line["step"] for line in table], [line["error_norm"] for line in table], color="#c9a0dc")
    return table


EQ1: Figure = Figure(
    "micro.eq1",
    "Mean norm of the workers' errors",
    Sketch(
        _eq1,
        [(f"{{}}: {WORKERS} workers, density {DENSITY:g}", "step", "error")],
        "Computed by ssfx on made-up gradients; no training run.",
    ),
    Judged(lambda _: {"micro.eq1.form": ("agrees", f"{run('micro').history[-1][2]:.3g} in the last step drawn")}),
    said=lambda rows: f"{EQ1.judge(rows)[0].ours} ({counted(EQ1.judge(rows))})",
)


# ---- Fig. 3: parts that rotate over the workers, and a threshold that follows the count ------------------------------

FEW, STEPS = 4, 8
PARTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def _fig3(left: Axes, right: Axes, rows: list[Row]) -> Table:
    """Draw which part each worker selects from, step by step, and how many elements are selected in the end."""
    places = [(step, worker, partition_of(worker, step, FEW)) for step in range(STEPS) for worker in range(FEW)]
    for step, worker, part in places:
        left.barh(worker, 0.94, 0.86, left=step, color=PARTS[part])
        left.text(step + 0.47, worker, part, ha="center", va="center", color="white")
    left.set_yticks(range(FEW), [f"worker {worker}" for worker in range(FEW)])
    left.set(ylim=(FEW - 0.5, -0.5))
    right.plot([ratio for ratio, _, _ in run("micro").history], color="#5b2a86", linewidth=0.9)
    right.axhline(1, color="black", linewidth=0.7, linestyle=(0, (4, 2)))
    right.set(yscale="log")
    return [dict(zip(("step", "worker", "part"), place, strict=True)) for place in places]


FIG3 = Figure(
    "micro.fig3",
    "Exclusive parts and the steered threshold",
    Sketch(
        _fig3,
        [
            ("part of the vector that a worker selects from", "step", ""),
            ("count that the threshold follows", "step", "selected over wanted"),
        ],
        "Computed by ssfx: the rules of its collective on made-up gradients of 16 workers; no training run.",
        (2, 2.1),
    ),
    Judged(),
    said=lambda _: f"{run('micro').ratio:.2f} of the wanted elements in the last quarter of the steps",
)


# ---- Table I: weaknesses of sparsifiers, the rules of the methods worked through on made-up gradients ----------------

NAMES = {"topk": "Top-k", "cltk": "CLT-k", "hardthr": "hard threshold", "sidco": "SIDCo", "micro": "MiCRO"}
CRITERIA = {
    "buildup": "gradient build-up",
    "density": "unpredictable high density",
    "tuning": "tuning of a threshold",
    "fidelity": "loss of fidelity",
    "idling": "worker idling",
    "selection": "selection cost",
    "overhead": "further overhead",
}
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
            "sparsifier": name if criterion == "buildup" else "",
            "criterion": heading,
            "paper": word(f"{figure.name}.{key}.{criterion}"),
            "here": found[f"{figure.name}.{key}.{criterion}"].ours,
            "outcome": found[f"{figure.name}.{key}.{criterion}"].outcome,
        }
        for key, name in NAMES.items()
        for criterion, heading in CRITERIA.items()
    ]


def _table1_answers(rows: list[Row]) -> dict[str, Answer]:
    """Return every cell of the table, and the two sentences about CLT-k."""
    found: dict[str, Answer] = {
        "micro.iii.cltk_equal": run("cltk").ratio,
        "micro.iii.cltk_idle": run("cltk").deciding / WORKERS,
    }
    for key in SPARSIFIERS:
        here, start = run(key), f"micro.table1.{key}"
        moves = abs(run(key, OTHER_SCALE).ratio / here.ratio - 1)
        cells = {
            "buildup": (here.overlap > 0 or (key != "cltk" and here.ratio > FAR), f"{here.ratio:.1f}x selected"),
            "density": (here.ratio > FAR, f"{here.ratio:.1f}x of what was set"),
            "tuning": (moves > FAR - 1, f"{100 * moves:.0f} % other density with {OTHER_SCALE:g}x larger gradients"),
            "fidelity": (here.deciding < WORKERS, f"{here.deciding:.0f} of {WORKERS} decide"),
            "idling": (here.idle > 0, f"{here.idle:.0f} of {WORKERS} wait"),
        }
        found |= {
            f"{start}.{one}": ((word(f"{start}.{one}") == "yes") == yes, is_) for one, (yes, is_) in cells.items()
        }
    return found | selection_times.cells(rows, {one.id: word(one.id) for one in claims_of("micro.table1")})


TABLE1 = Figure(
    "micro.table1",
    f"Weaknesses of sparsifiers, tried with error feedback on {WORKERS} made-up workers",
    Tabular(
        {"sparsifier": "sparsifier", "criterion": "criterion", "paper": "paper", "here": "ssfx", "outcome": "outcome"},
        _table1,
        "Computed by ssfx: rules of its compressors on made-up gradients, last quarter of the steps; no training run. "
        "Costs: torch's operators on one CPU core.",
    ),
    Judged(_table1_answers),
    needs={"experiment": selection_times.EXPERIMENT},
    command=selection_times.COMMAND,
)


# ---- Table II and section V-A: settings ------------------------------------------------------------------------------

SETTINGS = {"n": "workers", "bl": "batch per\nworker", "ne": "epochs"}
SETTINGS |= {"d1": "first\ndensity", "d2": "second\ndensity", "nds": "data sets"}


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


CIFAR = {"cifar10", "cifar100"} & set(choices("dataset"))
MODELS = ("resnet18", "googlenet", "senet18")
COLUMNS = {"model": "model"}
for _key, _words in SETTINGS.items():
    COLUMNS |= {f"paper_{_key}": "paper:\n" + _words, _key: "ssfx"}
TABLE2 = Figure(
    "micro.table2",
    "Settings of every model",
    Tabular(COLUMNS, _table2, CONFIGURED.origin),
    Judged(lambda _: settings("micro.table2", {f"micro.table2.{model}.nds": float(len(CIFAR)) for model in MODELS})),
)


def _setup(rows: list[Row]) -> dict[str, Answer]:
    """Return every setting, and the two formulas."""
    numel = model_work(MODEL).numel
    k = build("topk").layout(numel, DENSITY).values
    formulas: dict[str, Answer] = {
        "micro.def.density": (abs(k / numel - DENSITY) < 1 / numel, f"k = {k:,} of {numel:,} elements"),
        "micro.setup.delta0": ("partly", f"{threshold_for(k):.3g} for hard threshold, counted here"),
    }
    return {one.claim: one for one in settings("micro.text.setup", but=formulas)} | formulas


SETUP = Figure("micro.text.setup", "Cluster and settings of MiCRO", CONFIGURED, Judged(_setup))
