"""Why a simulated value is what it is, in a sentence: what could be gained at most, and orders too close to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from experiments.common.claims.ledger import PaperClaim
from experiments.common.claims.values import BASELINES, SPEED, pairs
from ssfx.advice.trust import trust_in
from ssfx.lab.results.simulated_cells import Cell

DENSE = "ddp"
VARIANTS = ("ssfusion_oi", "ssfusion_o", "ssfusion_naive", "hipress")


def explained(claim: PaperClaim, cells: Sequence[Cell]) -> str:
    """Return why the cells give what they give for a claim; "" where no sentence is known for its kind."""
    if claim.metric == "throughput_speedup" and claim.bounds is not None:
        return _bound(claim, cells, claim.bounds[0])
    return ""


def too_close(claim: PaperClaim, cells: Sequence[Cell]) -> str:
    """Return by how much an order holds where that is less than the error of the simulator; else "".

    The error is the mean of validation's comparisons for times of this kind, as `ssfx advise` takes it.
    """
    rule = _GAPS.get(claim.id)
    gaps = [gap for gap in rule(cells) if gap > 0] if rule and cells else []
    trust = trust_in(cells[0].calibration) if cells else None  # type: ignore[arg-type]
    if not gaps or trust is None:
        return ""
    # Two times are in an order where they differ by more than both errors together: see ssfx.advice.ranking.
    near = [gap for gap in gaps if gap < (1 + trust.mean) / (1 - trust.mean) - 1]
    if not near:
        return ""
    least, most = (f"{100 * end:.1f}" for end in (min(near), max(near)))
    by = f"{least} %" if least == most else f"{least} to {most} %"
    return (
        f"{len(near)} of {len(gaps)} pairs in this order differ by {by} only, less than simulated times are off "
        f"({trust.mean:.0%} on average), so that they are too close to call"
    )


def _bound(claim: PaperClaim, cells: Sequence[Cell], stated: float) -> str:
    """Return how much a step without any exchange would gain over the other schemes, beside what the paper states."""
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
    reach = sum(one >= stated for one, _ in most)
    return (
        f"{hidden}a step that exchanges and selects nothing would gain {stated:.0%} or more in {reach} of {len(most)} "
        f"comparisons, at most {bound:.0%} (over {other})"
    )


def _variants(cells: Sequence[Cell]) -> Iterator[float]:
    for cell in cells:
        if all(one in cell.rows for one in VARIANTS):
            yield from (a / b - 1 for a, b in pairwise(cell.value(one, SPEED) for one in VARIANTS))


def _best(cells: Sequence[Cell]) -> Iterator[float]:
    for cell in cells:
        others = [one for one in (*BASELINES, "ssfusion_naive", "ssfusion_o") if one in cell.rows]
        if "ssfusion_oi" in cell.rows and others:
            yield cell.value("ssfusion_oi", SPEED) / max(cell.value(one, SPEED) for one in others) - 1


def _reducing_first(cells: Sequence[Cell]) -> Iterator[float]:
    for cell in cells:
        reducing = min(cell.value(one, SPEED) for one in ("oktopk", "spardl"))
        yield reducing / max(cell.value(one, SPEED) for one in ("espresso", "omgs")) - 1


def _between(cells: Sequence[Cell]) -> Iterator[float]:
    for cell in cells:
        joint, selective, each = (
            cell.value(one, "iteration_s") for one in ("fused_all", "ssfusion_naive", "per_tensor")
        )
        yield from (selective / joint - 1, each / selective - 1)


_GAPS: dict[str, Callable[[Sequence[Cell]], Iterator[float]]] = {
    "ssfusion.exp1.variant_order": _variants,
    "ssfusion.exp5.dense_order": _reducing_first,
    "ssfusion.fig5.close": _between,
    **{f"ssfusion.exp{number}.best": _best for number in (1, 4, 5, 6)},
}
"""By claim: how much faster each scheme of an order is than the next one, as a share, in every cell."""
