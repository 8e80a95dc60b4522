"""What our rows say about the papers' claims, and how far the runs are."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from experiments.common.claims.ledger import Ledger, PaperClaim
from experiments.common.claims.verdicts import Source, Verdict, compared
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


NEAR = 0.05
"""Relative difference within which a single stated value counts as met."""


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
}


def evidence(ledger: Ledger, rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on every claim of `ledger` to which our real runs speak; no simulated row is among them.

    "not comparable" where the runs had other conditions than the claim; the reason says in what they differ.
    """
    real = [row for row in rows if row.origin.kind != "simulated"]
    return [verdict for claim in ledger.claims if _speaks_to(claim) and (verdict := _verdict(claim, real))]


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


def _verdict(claim: PaperClaim, rows: Sequence[Row]) -> Verdict | None:
    measure = MEASURES[claim.metric]
    model = claim.conditions.get("model")
    measured = [row for row in rows if row.case.experiment == measure.experiment and row.case.world_size > 1]
    measured = [row for row in measured if STAND_INS.get(row.case.model, model) == model]
    subject = [row for row in measured if _ran(row.case, claim.subject)]
    baseline = [row for row in measured if _ran(row.case, claim.baseline)]
    values, used = [], []
    apart = not measure.relative  # a baseline is compressed otherwise than what it is compared with
    for key in sorted({_setting(row, compression=apart) for row in subject}):
        part = [row for row in subject if _setting(row, compression=apart) == key]
        value = measure.value(part, [row for row in baseline if _setting(row, compression=apart) == key])
        if value is not None:
            values.append(value)
            used += part
    if not values:
        return None
    assert claim.bounds is not None
    source: Source = "emulated" if any(row.origin.kind == "emulated" for row in used) else "measured"
    single = claim.bounds[0] == claim.bounds[1]
    verdict = compared(
        claim.id, claim.bounds, (min(values), max(values)), relative=NEAR if single else 0.0,
        unit="%" if claim.unit == "percent" else claim.unit or "", source=source,
        command=f"ssfx run experiment={measure.experiment} preset=short", cost="minutes on this machine",
    )  # fmt: skip
    why = _difference(claim, used)
    return replace(verdict, outcome="not comparable", reason=why) if why else verdict


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
