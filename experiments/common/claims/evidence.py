"""What our rows say about the papers' claims, and how far the runs are."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.common.claims.ledger import Ledger, PaperClaim
from experiments.common.claims.verdicts import Source, Verdict, compared
from ssfx.core.case import Case
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import median_of

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


Value = Callable[[Sequence[Row], Sequence[Row]], float | None]


def _speedup(subject: Sequence[Row], baseline: Sequence[Row]) -> float | None:
    ours, theirs = (median_of(rows, "throughput_samples_per_s") for rows in (subject, baseline))
    return ours / theirs - 1 if ours and theirs else None


def _share(subject: Sequence[Row], _: Sequence[Row]) -> float | None:
    part, whole = (median_of(subject, name) for name in ("sparsify_s", "iteration_s"))
    return None if part is None or not whole else 100 * part / whole


def _missing(subject: Sequence[Row], _: Sequence[Row]) -> float | None:
    rate = median_of(subject, "tensor_missing_rate")
    return None if rate is None else 100 * rate


MEASURES: dict[str, tuple[str, str, Value]] = {
    "throughput_speedup": ("throughput", "fraction", _speedup),
    "sparsification_share": ("missing_rate", "percent", _share),
    "missing_rate": ("missing_rate", "percent", _missing),
}
"""By the metric of a claim: the experiment whose rows give it, its unit, and how it follows from the rows of its
subject and of its baseline, which a speedup alone has."""


def evidence(ledger: Ledger, rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on every claim of `ledger` to which our real runs speak; no simulated row is among them.

    "not comparable" where the runs had other conditions than the claim; the reason says in what they differ.
    """
    real = [row for row in rows if row.origin.kind != "simulated"]
    return [verdict for claim in ledger.claims if _speaks_to(claim) and (verdict := _verdict(claim, real))]


def _speaks_to(claim: PaperClaim) -> bool:
    experiment, unit, _ = MEASURES.get(claim.metric, ("", "", None))
    if not experiment or claim.bounds is None or claim.unit != unit or claim.type != "result":
        return False
    if claim.subject in PARTLY_FUSED:
        return experiment == "missing_rate"
    return claim.subject in SCHEMES and (experiment == "missing_rate" or claim.baseline in SCHEMES)


def _ran(case: Case, method: str | None) -> bool:
    """True when `case` ran a method of the ledger; schemes without a fusion degree fuse as they are made to."""
    scheme, degree = ("fused_all", PARTLY_FUSED[method]) if method in PARTLY_FUSED else (SCHEMES.get(method or ""), 100)
    return case.scheme == scheme and case.scheme_options.get("fusion_degree", 100) == degree


def _verdict(claim: PaperClaim, rows: Sequence[Row]) -> Verdict | None:
    experiment, _, value_of = MEASURES[claim.metric]
    model = claim.conditions.get("model")
    measured = [row for row in rows if row.case.experiment == experiment and row.case.world_size > 1]
    measured = [row for row in measured if STAND_INS.get(row.case.model, model) == model]
    subject = [row for row in measured if _ran(row.case, claim.subject)]
    baseline = [row for row in measured if _ran(row.case, claim.baseline)]
    values, used = [], []
    apart = value_of is not _speedup  # a baseline is compressed otherwise than what it is compared with
    for key in sorted({_setting(row, compression=apart) for row in subject}):
        part = [row for row in subject if _setting(row, compression=apart) == key]
        value = value_of(part, [row for row in baseline if _setting(row, compression=apart) == key])
        if value is not None:
            values.append(value)
            used += part
    if not values:
        return None
    assert claim.bounds is not None
    source: Source = "emulated" if any(row.origin.kind == "emulated" for row in used) else "measured"
    single = claim.bounds[0] == claim.bounds[1]
    verdict = compared(
        claim.id,
        claim.bounds,
        (min(values), max(values)),
        relative=NEAR if single else 0.0,
        unit="%" if claim.unit == "percent" else claim.unit or "",
        source=source,
    )
    verdict = replace(verdict, command=f"ssfx run experiment={experiment} preset=short", cost="minutes on this machine")
    cases = [row.case for row in used]
    if all(_fits(claim, case) for case in cases):
        return verdict
    models = "/".join(sorted({case.model for case in cases}))
    why = f"{models} on {cases[0].world_size} {cases[0].device} ranks here"
    return replace(verdict, outcome="not comparable", reason=why)


def _setting(row: Row, *, compression: bool) -> tuple[str, ...]:
    case = row.case
    parts = (
        case.model,
        case.dataset,
        case.world_size,
        case.device,
        case.batch_size,
        case.precision,
        case.threads,
        case.sharding,
    )
    how = (case.compressor, case.density, case.memory) if compression else ()
    return (row.origin.kind, row.origin.hardware, *map(str, (*parts, case.steps, *how)))


def _fits(claim: PaperClaim, case: Case) -> bool:
    """True when the case ran under the claim's conditions; times also need the network, which "local" does not say."""
    stated = claim.conditions
    models = {MODELS.get(name, name) for name in stated.get("models", [stated.get("model")])}
    gpus = stated.get("gpus", case.world_size)
    timed = claim.metric == "throughput_speedup"
    return (
        case.device == "cuda"
        and case.model in models
        and case.dataset == str(stated.get("dataset", case.dataset)).lower().replace("-", "")
        and case.world_size in (gpus if isinstance(gpus, list) else [gpus])
        and case.density in (None, stated.get("density", case.density))
        and case.compressor in (None, stated.get("compressor", case.compressor))
        and not (timed and case.cluster.name == "local")
    )
