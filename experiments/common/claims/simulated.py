"""What simulations say about claims of the ledger: each claim of a figure beside the simulated value, by calibration.

A value is held against claims that the ledger calls reproducible by simulation, that do not contradict the paper's
other numbers, whose setting the paper names, and that the calibration was not made from; else it is "not comparable".
The reason says what could be gained at most, and which orders are too close to call.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from experiments.common.claims.evidence import MODELS, NEAR
from experiments.common.claims.ledger import USED, PaperClaim, claims_by_id, claims_of, used_by
from experiments.common.claims.values import METHODS, leads, pairs, values
from experiments.common.claims.verdicts import Outcome, Verdict, outcome_of, outcome_of_order
from ssfx.advice.trust import trust_besides
from ssfx.core.rows import Row
from ssfx.lab.results.comparisons import Cell, as_the_paper_ran, cells

CLOUD = ("16gpu", "32gpu", "64gpu")
TESTBEDS = {"ssfusion.fig5": ("ssfusion_local",), "ssfusion.fig17": ("64gpu", "64gpu_40gb")}
"""Clusters that stand for the paper's, by figure; CLOUD for the others."""
GBPS = 200.0
"""Line rate between their nodes where no option says otherwise and the paper names a rate."""
NAMES = {**MODELS, "GPT2-XL": "gpt2_xl", "BLOOM-3B": "bloom_3b", "modelA": "bert_large", "modelB": "gpt2_large"}
"""Models of the ledger; the last two are not named in the paper and have about the ratio of sizes that its times do."""
NO_RATIO = "no ratio: the other scheme has next to nothing to reduce here"
EXPOSED = "a ratio of what overlap leaves over, and the paper does not say that its communication is only that"
OF_SPEED = ("throughput_speedup", "ordering")
"""Metrics of claims about methods that select; times and memory are those of any plan."""
ALL_DENSE = "the plan of a method that the claim is about sends over twice the density asked for"
AT_MOST = ("ssfusion.fig9.ar_marginal",)
"""Growths that the paper calls marginal: less growth agrees, too."""
COST = "about a minute on one core"
FITTED = 0.10
"""Relative difference within which the ledger calls the growth of Fig. 9 reproduced."""
DENSE = "ddp"


def judged(artifact: str, rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts on a figure of the paper to which its simulated rows speak, by claim and calibration.

    They are held against the methods as the paper ran them, where these were simulated, and not at their best. What
    then sends everything dense is no sparsifier, and is left out; where nothing else is there, nothing compares. An
    ordering agrees where it holds in every setting.
    """
    settings = [as_the_paper_ran(cell) for cell in cells(rows)]
    verdicts = []
    for claim in claims_of(artifact):
        if claim.type == "setup":
            continue
        for calibration in sorted({cell.calibration for cell in settings}):
            there = [cell for cell in settings if cell.calibration == calibration and meets(claim, cell)]
            sparse = [_that_select(cell) for cell in there] if claim.metric in OF_SPEED else there
            if given := tuple(values(claim, sparse)):
                verdicts.append(_verdict(claim, calibration, sparse, given))
            elif given := tuple(values(claim, there)):
                found = _verdict(claim, calibration, there, given)
                verdicts.append(replace(found, outcome="not comparable", reason=ALL_DENSE))
    return verdicts


def claim_columns(artifact: str, rows: Sequence[Row]) -> list[dict[str, str | float | int]]:
    """Return the lines about claims in a figure's CSV, one for each verdict of `judged`."""
    changed = any(as_the_paper_ran(cell) is not cell for cell in cells(rows))
    return [
        {
            "origin": f"simulated ({verdict.calibration})",
            "claim": verdict.claim,
            "claim_low": verdict.stated[0],
            "claim_high": verdict.stated[1],
            "value_low": min(verdict.values),
            "value_high": max(verdict.values),
            "claim_unit": claims_by_id()[verdict.claim].unit or "",
            "values": len(verdict.values),
            "verdict": verdict.outcome,
            "why": verdict.reason if verdict.outcome == "not comparable" else "",
            **({"methods": "as the paper ran them"} if changed else {}),
        }
        for verdict in judged(artifact, rows)
        if verdict.stated is not None
    ]


def _that_select(cell: Cell) -> Cell:
    """Return the cell without schemes that were asked for a density and send over twice as much."""
    return replace(cell, rows={label: row for label, row in cell.rows.items() if not cell.sent(label)})


def _verdict(claim: PaperClaim, calibration: str, there: Sequence[Cell], given: tuple[float, ...]) -> Verdict:
    """Return the verdict on a claim of the values that the cells of a calibration give for it."""
    stated, ends = _stated(claim), (min(given), max(given))
    why = USED if used_by(calibration, claim) else _why_not(claim)
    why = why or (NO_RATIO if not isfinite(ends[0]) else "")
    outcome: Outcome
    close = ""
    if claim.metric == "ordering":
        outcome = "agrees" if all(given) else "disagrees"
        if every := [lead for own in leads(claim, there) for lead in own]:
            outcome, close = outcome_of_order(every, error_of(calibration, claim.id))
        here, paper = f"in {sum(given):.0f} of {len(given)}", "holds"
    else:
        outcome = outcome_of(stated, ends, FITTED if _is_growth(claim) else NEAR if stated[0] == stated[1] else 0.0)
        here, paper = _range(claim, *ends), _range(claim, *stated)
    outcome = "not comparable" if why else outcome
    why = why or close or explained(claim, there)
    if not why and outcome != "agrees":
        why = f"simulated with {calibration} times: {here}; the paper: {paper}"
    return Verdict(claim.id, outcome, here, "simulated", calibration, why, "", COST, stated, given)


def error_of(calibration: str, claim_id: str) -> float | None:
    """Return how far simulated steps of other papers than the claim's are off on average; None where unknown."""
    trust = trust_besides(calibration, claim_id.partition(".")[0])  # type: ignore[arg-type]
    return trust.mean if trust else None


def meets(claim: PaperClaim, cell: Cell) -> bool:
    """True when the cell has what the claim's conditions name."""
    stated = claim.conditions
    # Only Fig. 5 has ResNet-152 on CIFAR-100.
    names = {**NAMES, "ResNet-152": "resnet152_cifar100"} if claim.artifact == "ssfusion.fig5" else NAMES
    models = {names.get(name, name) for name in stated.get("models", [stated.get("model")]) if name}
    gpus = stated.get("gpus", cell.case.world_size)
    subject = cell.rows.get(METHODS.get(claim.subject, "ssfusion_oi"))
    sparsifier = subject.case.compressor if subject else None
    rate = cell.options.get("inter.gbps")
    if "network" in stated:
        right_rate = float(rate or GBPS) == float(stated["network"].split()[0])
    else:
        right_rate = rate is None or claim.artifact == "ssfusion.fig16"
    return (
        cell.cluster in TESTBEDS.get(claim.artifact, CLOUD)
        and set(cell.options) <= {"nodes", "inter.gbps"}
        and (claim.metric == "ratio" or not cell.cluster.endswith("_40gb"))
        and (not models or cell.case.model in models)
        and cell.case.world_size in (gpus if isinstance(gpus, list) else [gpus])
        and cell.density == stated.get("density", cell.density)
        and stated.get("compressor", sparsifier) == sparsifier
        and right_rate
    )


def _is_growth(claim: PaperClaim) -> bool:
    return claim.artifact == "ssfusion.fig9" and claim.metric == "ratio"


def _stated(claim: PaperClaim) -> tuple[float, float]:
    if _is_growth(claim):
        printed = {
            (one.conditions["model"], one.conditions["gpus"]): one.bounds[0]
            for one in claims_of(claim.artifact)
            if one.bounds and one.subject == claim.subject and set(one.conditions) == {"model", "gpus"}
        }
        growth = [printed[model, 64] / printed[model, 8] for model in ("modelA", "modelB")]
        return 1.0 if claim.id in AT_MOST else min(growth), max(growth)
    return claim.bounds or (1.0, 1.0)


def _why_not(claim: PaperClaim) -> str:
    if claim.contradiction:
        return claim.contradiction
    if claim.reproducible_by not in ("simulation", "static"):
        return "asks for a run on the paper's GPUs"
    if claim.artifact == "ssfusion.fig9" and claim.metric == "time_s":
        return f"the paper names neither models nor cluster ({claim.issue})"
    if claim.metric == "time_reduction" and ".comm." in claim.id:
        return EXPOSED
    return ""


def _range(claim: PaperClaim, low: float, high: float) -> str:
    """Return a range of values in the claim's unit, gains with their sign; "no ratio" where one has no end."""
    if not isfinite(low):
        return "no ratio"
    if claim.unit == "fraction":
        sign = "" if claim.metric == "ratio" else "+"
        ends = [f"{100 * value:{sign}.0f}" for value in (low, high)]
    else:
        ends = [f"{value:.3g}" for value in (low, high)]
    unit = {"fraction": " %", "qualitative": ""}.get(claim.unit or "", f" {claim.unit or ''}".rstrip())
    return f"{ends[0]}{unit}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}{unit}"


def explained(claim: PaperClaim, cells: Sequence[Cell]) -> str:
    """Return how much a step without any exchange would gain over the other schemes, beside what the paper states.

    "" for claims that are no gains.
    """
    if claim.metric != "throughput_speedup" or claim.bounds is None:
        return ""
    stated = claim.bounds[0]
    most = [
        (cell.value(other, "iteration_s") / alone_s - 1, other)
        for cell, _, other in pairs(claim, cells)
        if (alone_s := cell.ideal("iteration_s"))
    ]
    if not most:
        return ""
    bound, other = max(most)
    dense = [
        cell.value(DENSE, "exposed_comm_s") / cell.value(DENSE, "iteration_s") for cell in cells if DENSE in cell.rows
    ]
    rates = {str(cell.options.get("inter.gbps", "200")) for cell in cells}
    at = f"at {'/'.join(sorted(rates, key=float))} Gbit/s "
    hidden = f"{at}dense DDP waits for its exchange in only {max(dense):.0%} of a step at most; " if dense else at
    if bound < stated:
        return (
            f"{hidden}a step that exchanges and selects nothing would gain at most {bound:.0%} (over {other}), so that "
            f"nothing can gain {stated:.0%}"
        )
    reach = sum(gain >= stated for gain, _ in most)
    return (
        f"{hidden}a step that exchanges and selects nothing would gain {stated:.0%} or more in {reach} of {len(most)} "
        f"comparisons, at most {bound:.0%} (over {other})"
    )
