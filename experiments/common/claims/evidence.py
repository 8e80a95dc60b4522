"""What our rows say about the papers' claims, and how far the runs are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.common.claims.ledger import Ledger, PaperClaim
from ssfx.core.case import Case
from ssfx.core.files import read
from ssfx.core.rows import Row
from ssfx.lab.results.store import Store

SCHEMES = {
    "dense": "ddp",
    "per-tensor": "per_tensor",
    "multi-tensor(100)": "fused_all",
    "ssfusion-naive": "ssfusion_naive",
    "ssfusion-o": "ssfusion_o",
    "ssfusion-i": "ssfusion_i",
    "ssfusion-oi": "ssfusion_oi",
}
"""Methods of the claim ledger that are schemes here."""

PARTLY_FUSED = {f"multi-tensor({degree})": degree for degree in (20, 40, 60, 80)}
"""Methods that are fused_all with this fusion degree, which only experiment=missing_rate runs."""

MODELS = {"ResNet-152": "resnet152", "BERT-large": "bert_large", "ViT-large": "vit_large", "GPT2-large": "gpt2_large"}
"""Models of the claim ledger that are models here; a claim about another one is never compared."""

STAND_INS = {"resnet152_digits": "ResNet-152", "bert_large_narrow": "BERT-large"}
"""Models here that have every tensor of one of the ledger's: their rows speak of that one alone."""


@dataclass(frozen=True)
class Measure:
    """How a claim's metric follows from rows of its subject (and of its baseline), and which experiment gives them."""

    experiment: str
    unit: str
    value: Callable[[Sequence[Row], Sequence[Row]], float | None]
    relative: bool = False


def _median(rows: Iterable[Row], name: str) -> float | None:
    values = [value for row in rows if (value := row.metrics.get(name)) is not None]
    return median(values) if values else None


def _speedup(subject: Sequence[Row], baseline: Sequence[Row]) -> float | None:
    ours, theirs = (_median(rows, "throughput_samples_per_s") for rows in (subject, baseline))
    return ours / theirs - 1 if ours and theirs else None


def _percent(name: str, of: str | None = None) -> Callable[[Sequence[Row], Sequence[Row]], float | None]:
    def value(subject: Sequence[Row], _: Sequence[Row]) -> float | None:
        part, whole = _median(subject, name), _median(subject, of) if of else 1.0
        return None if part is None or not whole else 100 * part / whole

    return value


MEASURES = {
    "throughput_speedup": Measure("throughput", "fraction", _speedup, relative=True),
    "sparsification_share": Measure("missing_rate", "percent", _percent("sparsify_s", "iteration_s")),
    "missing_rate": Measure("missing_rate", "percent", _percent("tensor_missing_rate")),
    "accuracy": Measure("convergence", "percent", _percent("top1")),
}


@dataclass(frozen=True)
class Evidence:
    """One claim beside what our rows give for it.

    `verdict` is agree, partial or disagree where the rows were obtained under the claim's conditions, "not comparable"
    where they were not (`why` says in what they differ), and "not run" without rows. `runs` counts rows of the subject.
    """

    claim: PaperClaim
    low: float | None
    high: float | None
    how: str
    runs: int
    verdict: str
    why: str
    command: str


def evidence(ledger: Ledger, rows: Sequence[Row]) -> list[Evidence]:
    """Return one entry for every claim of `ledger` that an experiment of ours can speak to by real runs.

    What simulated rows say is never mixed in; see experiments.common.claims.simulated.
    """
    real = [row for row in rows if row.origin.kind != "simulated"]
    return [_evidence(claim, real) for claim in ledger.claims if _speaks_to(claim)]


def run_counts(store: Store) -> dict[str, Counter[str]]:
    """Return how many runs of each experiment in the store are finished, failed, half (cut off) or new."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(store.runs.glob("*/case.json")):
        case = read(path, Case.from_json, what="not a case of this version of ssfx: remove the folder")
        counts.setdefault(case.experiment, Counter())[store.status(case)] += 1
    return counts


def _speaks_to(claim: PaperClaim) -> bool:
    measure = MEASURES.get(claim.metric)
    if measure is None or claim.bounds is None or claim.unit != measure.unit or claim.type != "result":
        return False
    if claim.subject in PARTLY_FUSED:
        return measure.experiment == "missing_rate"
    return claim.subject in SCHEMES and (not measure.relative or claim.baseline in SCHEMES)


def _ran(case: Case, method: str | None) -> bool:
    """True when `case` ran a method of the ledger; schemes without a fusion degree fuse as they are made to."""
    scheme, degree = ("fused_all", PARTLY_FUSED[method]) if method in PARTLY_FUSED else (SCHEMES.get(method or ""), 100)
    return case.scheme == scheme and case.scheme_options.get("fusion_degree", 100) == degree


def _evidence(claim: PaperClaim, rows: Sequence[Row]) -> Evidence:
    measure = MEASURES[claim.metric]
    command = f"ssfx run experiment={measure.experiment} preset=short"
    model = claim.conditions.get("model")
    own = [row for row in rows if row.case.experiment == measure.experiment and row.case.world_size > 1]
    own = [row for row in own if STAND_INS.get(row.case.model, model) == model]
    subject = [row for row in own if _ran(row.case, claim.subject)]
    baseline = [row for row in own if _ran(row.case, claim.baseline)]
    values, used = [], []
    apart = not measure.relative  # a baseline is compressed otherwise than what it is compared with
    for key in sorted({_setting(row, compression=apart) for row in subject}):
        part = [row for row in subject if _setting(row, compression=apart) == key]
        value = measure.value(part, [row for row in baseline if _setting(row, compression=apart) == key])
        if value is not None:
            values.append(value)
            used += part
    if not values:
        return Evidence(claim, None, None, "-", 0, "not run", "", command)
    low, high = min(values), max(values)
    why = _difference(claim, used)
    how = ", ".join(sorted({row.origin.kind for row in used}))
    assert claim.bounds is not None
    verdict = "not comparable" if why else compare(claim.bounds, low, high)
    return Evidence(claim, low, high, how, len(used), verdict, why, command)


def _setting(row: Row, *, compression: bool) -> tuple[str, ...]:
    case = row.case
    parts = (
        case.model, case.dataset, case.world_size, case.device, case.batch_size, case.precision, case.threads,
        case.sharding,
    )  # fmt: skip
    how = (case.compressor, case.density, case.memory) if compression else ()
    return (row.origin.kind, row.origin.hardware, *map(str, (*parts, case.steps, *how)))


def _difference(claim: PaperClaim, rows: Sequence[Row]) -> str:
    """Return what the rows were obtained on, if that is not what the claim's conditions say; else ""."""
    cases = [row.case for row in rows]
    if all(_fits(claim, case) for case in cases):
        return ""
    models = "/".join(sorted({case.model for case in cases}))
    return f"{models} on {cases[0].world_size} {cases[0].device} ranks here"


def _fits(claim: PaperClaim, case: Case) -> bool:
    """True when the case ran under the claim's conditions; times also need the network, which "local" does not say."""
    stated = claim.conditions
    models = {MODELS.get(name, name) for name in stated.get("models", [stated.get("model")])}
    gpus = stated.get("gpus", case.world_size)
    timed = MEASURES[claim.metric].experiment == "throughput"
    return (
        case.device == "cuda"
        and case.model in models
        and case.dataset == str(stated.get("dataset", case.dataset)).lower().replace("-", "")
        and case.world_size in (gpus if isinstance(gpus, list) else [gpus])
        and case.density in (None, stated.get("density", case.density))
        and case.compressor in (None, stated.get("compressor", case.compressor))
        and not (timed and case.cluster.name == "local")
    )


def compare(stated: tuple[float, float], low: float, high: float) -> str:
    """Return agree, partial or disagree for a range beside the stated one; 5 percent around a single value are met."""
    stated_low, stated_high = stated
    if stated_low == stated_high:
        stated_low, stated_high = sorted((0.95 * stated_low, 1.05 * stated_high))
    if stated_low <= low and high <= stated_high:
        return "agree"
    return "partial" if low <= stated_high and stated_low <= high else "disagree"
