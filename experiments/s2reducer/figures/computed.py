"""What of S2 Reducer is computed from shapes and small examples, or read from the configuration, without a run."""

import numpy as np

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import CONFIGURED, Answer, Claims, Judged
from experiments.common.evaluation.configured import cluster, conf, settings
from experiments.common.evaluation.judging import held, says
from experiments.common.evaluation.sketch_example import (
    ELEMENTS,
    Array,
    bias,
    collisions,
    linearity,
    queried,
    relative_noise,
    sketch,
    wrong_blocks,
    zeros_skipped,
)
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, Picture, Table, plt
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.collectives import collectives
from ssfx.collectives.base import Load
from ssfx.collectives.primitives import split_sizes, traffic
from ssfx.collectives.s2_sketch import draw as draw_hashes
from ssfx.core.rows import Row
from ssfx.lab.workloads.base import models
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes import schemes
from ssfx.schemes.search.byte_groups import MIB

HASHED = Claims(
    "Computed by ssfx: the hash functions of its collective s2_sketch on small made-up vectors; no training run."
)
VOCABULARY = 32_317
"""Of the public GNMT code for WMT-16 English to German, which the paper does not name."""


def lstm(inputs: int, units: int) -> int:
    """Return the parameters of one LSTM layer with both of PyTorch's bias vectors."""
    return 4 * units * (inputs + units) + 8 * units


def gnmt(units: int, layers: int) -> tuple[int, int]:
    """Return the parameters of GNMT's two embedding tables and of all the rest.

    `layers` encoders, the first of them bidirectional, and as many decoders that read an attention context; normalised
    attention, and a classifier of its own.
    """
    embeddings = 2 * VOCABULARY * units
    encoder = 2 * lstm(units, units) + lstm(2 * units, units) + (layers - 2) * lstm(units, units)
    decoder = lstm(units, units) + (layers - 1) * lstm(2 * units, units)
    attention = 2 * units * units + 2 * units + 1
    classifier = units * VOCABULARY + VOCABULARY
    return embeddings, encoder + decoder + attention + classifier


# ---- Algorithm 1 and section 3.3: what sketch and bitmap keep --------------------------------------------------------

ROUNDING = 1e-9
"""Sums in another order differ by this much at most."""


def _alg1(rows: list[Row]) -> dict[str, Answer]:
    """Answer every property: sketches add up, bitmaps unite exactly, zeros may be skipped."""
    sum_error, zero_error = linearity(), zeros_skipped()
    made = collectives.build("s2_sketch")
    _, sent, cols = made.shape(64 * ELEMENTS, 2 * ELEMENTS)  # type: ignore[attr-defined]
    return {
        "s2reducer.alg.linear": (sum_error < ROUNDING, f"largest difference {sum_error:.1g}"),
        "s2reducer.alg.bitmap": wrong_blocks(),
        "s2reducer.alg.sketch_equal": (zero_error < ROUNDING, f"largest difference {zero_error:.1g}"),
        "s2reducer.alg.ratio": cols / (sent * made.options.block),
    }


ALG1 = Figure("s2reducer.alg1", "What the sketch and the bitmap keep exactly", HASHED, Judged(_alg1))

FEW_BUCKETS = 32
ERRORS = 3.0
"""Standard errors within which a mean counts as what theory says."""


def _theory(rows: list[Row]) -> dict[str, Answer]:
    mean, error = bias()
    equal, opposite = collisions(FEW_BUCKETS)
    ratio = number("s2reducer.appB3.best")
    noise = relative_noise(ratio)
    expected = 1 / (2 * FEW_BUCKETS)
    close = max(abs(equal / expected - 1), abs(opposite / expected - 1)) < 0.2
    grows = (
        f"the sketch adds {noise:.2g} times the energy of what was sent at lambda = {ratio:g}, so the operator is no "
        "contraction (S2-06)"
    )
    delta = "s2reducer.theorem2.delta"
    return {
        "s2reducer.theorem1.unbiased": (abs(mean) < ERRORS * error, f"{mean:.3f} +- {error:.3f}"),
        "s2reducer.theorem1.collision": (
            close,
            f"{equal:.4f} and {opposite:.4f} with {FEW_BUCKETS} buckets, theory {expected:.4f}",
        ),
        delta: says(delta, noise < 1e-6, f"error of {noise:.2g} times what was sent", grows),
    }


THEORY = Figure(
    "s2reducer.text.theory", "Theorems of S2 Reducer, tried on small made-up vectors", HASHED, Judged(_theory)
)


# ---- Fig. 1: a ring all-reduce adds parts up, an all-gather of sparse gradients puts them in a row -------------------

WORKERS = 4
SHADES = ("#deebf7", "#9ecae1", "#4292c6", "#08519c")


def ring() -> list[list[list[int]]]:
    """Return, before and after every step of the adding half, worker -> part -> how many workers are summed there."""
    state = [[1] * WORKERS for _ in range(WORKERS)]
    states = [[list(parts) for parts in state]]
    for step in range(WORKERS - 1):
        sent = [(worker, (worker - step) % WORKERS) for worker in range(WORKERS)]
        moved = [(worker, part, state[worker][part]) for worker, part in sent]
        for worker, part, count in moved:
            state[(worker + 1) % WORKERS][part] += count
        states.append([list(parts) for parts in state])
    return states


def _fig1(figure: Figure, rows: list[Row]) -> Picture:
    """Return how many workers' values are in each part after every step of the ring, and what a gather leaves."""
    table: list[dict[str, object]] = []
    states = ring()
    canvas, axes = plt.subplots(1, len(states) + 1, figsize=(2 * COLUMN_IN, 2.0), layout="constrained", sharey=True)
    for step, (axis, state) in enumerate(zip(axes, states, strict=False)):
        for worker, parts in enumerate(state):
            for part, count in enumerate(parts):
                axis.barh(worker, 0.92, 0.8, left=part, color=SHADES[count - 1])
                colour = "white" if count > 2 else "black"
                axis.text(part + 0.46, worker, count, ha="center", va="center", color=colour)
                table.append({"panel": f"ring step {step}", "worker": worker, "part": part, "summed": count})
        axis.set_title("start" if step == 0 else f"step {step}", loc="left", fontweight="bold")
        axis.set_xticks([])
    last = axes[-1]
    for worker in range(WORKERS):
        for part in range(WORKERS):
            last.barh(worker, 0.92, 0.8, left=part, color=SHADES[0])
            last.text(part + 0.46, worker, f"g{part}", ha="center", va="center")
            table.append({"panel": "all-gather", "worker": worker, "part": part, "summed": 1})
    last.set_title("all-gather", loc="left", fontweight="bold")
    last.set_xticks([])
    axes[0].set_yticks(range(WORKERS), [f"worker {worker}" for worker in range(WORKERS)])
    axes[0].set_ylim(WORKERS - 0.5, -0.5)
    say_origin(
        canvas,
        "Number: workers whose values are summed in a part of the vector, while a ring adds up; right: the four "
        "messages that every worker holds after an all-gather. No run.",
    )
    return canvas, table


def _fig1_answers(rows: list[Row]) -> dict[str, Answer]:
    """Answer the number of parts and steps, by the convention by which all traffic is counted here."""
    last = ring()[-1]
    complete_parts = sum(WORKERS in (last[worker][part] for worker in range(WORKERS)) for part in range(WORKERS))
    steps = traffic("all_reduce", 4 * WORKERS, WORKERS, item_bytes=4).messages // 2
    parts = len(split_sizes(WORKERS, WORKERS))
    holds = steps == WORKERS - 1 == len(ring()) - 1 and parts == complete_parts == WORKERS
    return {"s2reducer.ii.ring_parts": (holds, f"{parts} parts, {steps} steps for {WORKERS} workers")}


FIG1: Figure = Figure(
    "s2reducer.fig1",
    "How all-reduce and sparse all-gather move gradients",
    _fig1,
    Judged(_fig1_answers),
    said=lambda rows: FIG1.judge(rows)[0].ours,
)


# ---- Fig. 2: a worked example of sketch and bitmap, from two workers to the recovered sum ----------------------------

SLOTS, BLOCK, BUCKETS = 16, 4, 8
SEED = 3


def vectors() -> dict[str, Array]:
    """Return the vectors of the example in the order in which they arise."""
    first, second = np.zeros(SLOTS), np.zeros(SLOTS)
    first[4:8], second[4:8], second[12:16] = (2, 0, 1, 3), (1, 4, 0, 2), (5, 0, 0, 1)
    hashed = draw_hashes(SEED, SLOTS, 0)
    sketches = [sketch(hashed, vector, np.arange(SLOTS), BUCKETS) for vector in (first, second)]
    bitmaps = [vector.reshape(-1, BLOCK).any(axis=1).astype(float) for vector in (first, second)]
    together, counted = sketches[0] + sketches[1], bitmaps[0] + bitmaps[1]
    at = np.flatnonzero(np.repeat(counted > 0, BLOCK))
    read = np.zeros(SLOTS)
    read[at] = queried(hashed, together, at)
    return {
        "gradient of worker 1": first,
        "gradient of worker 2": second,
        "sketch of worker 1": sketches[0],
        "sketch of worker 2": sketches[1],
        "sum of sketches": together,
        "bitmap of worker 1": bitmaps[0],
        "bitmap of worker 2": bitmaps[1],
        "sum of bitmaps": counted,
        "read back": read,
        "true sum": first + second,
    }


def _fig2(figure: Figure, rows: list[Row]) -> Table:
    """Return every vector of the example as one line of a table."""
    table = []
    for name, vector in vectors().items():
        cells = {f"c{i}": (f"{value:g}" if value else "0") for i, value in enumerate(vector)}
        table.append({"what": name, **cells, **{f"c{i}": "" for i in range(len(vector), SLOTS)}})
    return table


def _fig2_finding(rows: list[Row]) -> str:
    found = vectors()
    exact = int((found["read back"] == found["true sum"]).sum())
    return f"{exact} of {SLOTS} elements are read back exactly"


FIG2 = Figure(
    "s2reducer.fig2",
    "Sketch and bitmap of two workers, added up and read back",
    Tabular(
        {"what": "", **{f"c{i}": str(i) for i in range(SLOTS)}},
        _fig2,
        f"Computed by ssfx: hash functions of its collective s2_sketch, blocks of {BLOCK}, {BUCKETS} buckets; elements "
        "that share a bucket are read back with an error.",
    ),
    Judged(),
    said=_fig2_finding,
)


# ---- Table 1: sizes of gradients -------------------------------------------------------------------------------------

MB = 1e6
MODELS = {"lstm": "LSTM", "gnmt8": "GNMT-8", "gnmt16": "GNMT-16", "densenet": "DenseNet", "resnet50": "ResNet-50"}
LAYERS = {"gnmt8": 4, "gnmt16": 8}
TRAINED = ("lstm_650", "gnmt8", "gnmt16", "densenet40_cifar100", "resnet50_cifar100")
"""The same as they are called here."""
UNITS = (512, 1024)
"""Widths of public GNMT variants; the paper names none."""
DISTINCT = 255.9
"""Different words in a batch of WikiText-2 in lower case, 16 streams of 30 words that go on batch by batch.

The mean over both held-out parts, 253.6 in 511 batches and 258.5 in 453: a fifth of the data set.
"""
SHARED = 2196
"""The same of 16 such batches at once: 2,190 and 2,196 in the held-out parts, 2,226 in what there is of the other."""
SENTENCES = {64: 699, 128: 1177}
"""Different words in so many sentences of at most 50 words, 25 on average: 30 draws of one held-out part.

Means of the other part are 690 and 1,171.
"""


def lstm_sparsity() -> float:
    """Return the share of rows without a gradient in the LSTM's embedding, which has one for each word."""
    return 1 - DISTINCT / max(spec.shape[0] for spec in model_work("lstm_650").tensors)


def _table1(figure: Figure, rows: list[Row]) -> Table:
    """Return the paper's table with our sizes beside its own."""
    found = {one.claim: one for one in figure.judge(rows)}
    table = []
    for key, name in MODELS.items():
        line: dict[str, str | float] = {"model": name}
        start = f"{figure.name}.{key}"
        whole = f"{start}.dense" if f"{start}.dense" in found else start
        for column, claim in (("embedding", f"{start}.emb"), ("dense", whole)):
            if claim in found:
                line |= {
                    f"paper_{column}": number(claim),
                    column: found[claim].ours,
                    f"{column}_is": found[claim].outcome,
                }
        table.append(line)
    return table


def _table1_answers(rows: list[Row]) -> dict[str, Answer]:
    start = "s2reducer.table1"
    lstm = {spec.name: spec.numel for spec in model_work("lstm_650").tensors}
    embedding = max((name for name in lstm if "embed" in name or "encoder" in name), key=lstm.__getitem__)
    found: dict[str, Answer] = {
        f"{start}.lstm.emb": lstm[embedding] * 4 / MB,
        f"{start}.lstm.sparsity": 100 * lstm_sparsity(),
        f"{start}.lstm.dense": (sum(lstm.values()) - lstm[embedding]) * 4 / MB,
        f"{start}.densenet": model_work("densenet40_cifar100").numel * 4 / MIB,
        f"{start}.resnet50": model_work("resnet50_cifar100").numel * 4 / MB,
        "s2reducer.headline.models": float(sum(model in models for model in TRAINED)),
    }
    for key, layers in LAYERS.items():
        (_, narrow_mb), (embedding_mb, dense_mb) = (
            [elements * 4 / MB for elements in gnmt(units, layers)] for units in UNITS
        )
        why = f"embeddings of this size need 1024 units; with 512 the rest is {narrow_mb:.1f} MB, they half (S2-05)"
        found[f"{start}.{key}.emb"] = embedding_mb
        found[f"{start}.{key}.dense"] = held(f"{start}.{key}.dense", dense_mb, reason=why)
        found[f"{start}.{key}.sparsity"] = ", ".join(
            f"{100 * (1 - words / VOCABULARY):.1f} % of {count} sentences" for count, words in SENTENCES.items()
        )
    return found


TABLE1 = Figure(
    "s2reducer.table1",
    "Sizes of embedding and dense gradients (MB)",
    Tabular(
        {
            "model": "model",
            "paper_embedding": "paper:\nembedding",
            "embedding": "ssfx",
            "embedding_is": "outcome",
            "paper_dense": "paper:\ndense",
            "dense": "ssfx",
            "dense_is": "outcome",
        },
        _table1,
    ),
    Judged(_table1_answers),
)


# ---- Table 2, sections 1 and 4: settings -----------------------------------------------------------------------------


def _table2_settings(rows: list[Row]) -> list[Verdict]:
    scaled = conf("workload", "resnet50_cifar100")["scale_lr_by_ranks"]
    scale = float(cluster("s2reducer_1gbe").world_size) if scaled else 1.0
    return settings("s2reducer.table2", {"s2reducer.table2.lr_sgd_scale": scale})


TABLE2 = Figure("s2reducer.table2", "Training settings of S2 Reducer", CONFIGURED, Judged(_table2_settings))

RIVALS = ("fused_all", "parallax", "sparcml", "omnireduce")
"""AllGather, Parallax, SparCML and OmniReduce as they are called here."""


def _setup(rows: list[Row]) -> list[Verdict]:
    phases = collectives.build("all_gather_twice").phases(Load(numel=8, nbytes=16, kept=2, world_size=2))
    here = {
        "s2reducer.intro.emb_sparsity": lstm_sparsity(),
        "s2reducer.headline.baselines": float(sum(name in schemes for name in RIVALS)),
        "s2reducer.intro.two_allgather": float(sum(phase.primitive == "all_gather" for phase in phases)),
    }
    return settings("s2reducer.text.setup", here)


SETUP = Figure("s2reducer.text.setup", "Cluster, rivals and compression rate of S2 Reducer", CONFIGURED, Judged(_setup))
