"""How a claim of the ledger follows from simulated cells: a value, or 1 where an ordering holds and 0 where not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import inf
from statistics import mean

from experiments.common.claims.evidence import SCHEMES
from experiments.common.claims.ledger import PaperClaim
from ssfx.lab.results.comparisons import Cell

BASELINES = ("hipress", "oktopk", "spardl", "espresso", "omgs", "cupcake")
"""The schemes that SSFusion is compared with, in the paper's order; dense training is not among them."""

METHODS = {
    **SCHEMES,
    **{name: name for name in BASELINES},
    "selective": "ssfusion_naive",
    "multi-tensor": "fused_all",
    "all-gather": "fused_all",
    "all-reduce": "ssgd",
}
"""Methods of the ledger that are schemes here; an all-gather is that of half the elements with their indices."""

SPEED = "throughput_samples_per_s"
CLOSE = 0.10
"""Relative difference within which the ledger calls two times close."""

LEAST = 0.02
"""Share of an iteration below which a part is too small to be the base of a ratio; a reduction of it is -inf."""

VARIANTS = ("ssfusion_oi", "ssfusion_o", "ssfusion_naive", "hipress")
"""From the fastest on, as the paper orders them."""

Rule = Callable[[PaperClaim, Sequence[Cell]], Iterable[float]]


def values(claim: PaperClaim, cells: Sequence[Cell]) -> list[float]:
    """Return what the cells give for a claim, setting by setting; nothing where no rule leads from cells to it."""
    if orders := leads(claim, cells):
        return [float(all(lead > 0 for lead in own)) for own in orders]
    rule = _RULES.get(claim.id) or _METRICS.get(claim.metric)
    return list(rule(claim, cells)) if rule else []


def leads(claim: PaperClaim, cells: Sequence[Cell]) -> list[list[float]]:
    """Return by how much each is ahead of the next, as a share, order by order; nothing for claims of no order."""
    if claim.id in ACROSS:
        return [own for own in ACROSS[claim.id](claim, cells) if own]
    return [own for own in map(LEADS[claim.id], cells) if own is not None] if claim.id in LEADS else []


def _speedup(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    for cell, subject, baseline in pairs(claim, cells):
        yield cell.value(subject, SPEED) / cell.value(baseline, SPEED) - 1


def _reduction(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    # Four parts make up the paper's iteration, so its communication is what computing does not hide.
    part = "exposed_comm_s" if ".comm." in claim.id else "sparsify_s"
    for cell, subject, baseline in pairs(claim, cells):
        if cell.value(baseline, part) < LEAST * cell.value(baseline, "iteration_s"):
            yield -inf
        else:
            yield 1 - cell.value(subject, part) / cell.value(baseline, part)


def _seconds(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    scheme, part = METHODS[claim.subject], "comm_s" if claim.artifact == "ssfusion.fig9" else "iteration_s"
    return (cell.value(scheme, part) for cell in cells if scheme in cell.rows)


def _memory(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    scheme = METHODS[claim.subject]
    return (cell.value(scheme, "peak_memory_bytes") / 1e9 for cell in cells if scheme in cell.rows)


def _smaller_cards(_: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    speeds = {
        cell.cluster.endswith("_40gb"): cell.value("ssfusion_oi", SPEED) for cell in cells if cell.fits("ssfusion_oi")
    }
    if len(speeds) == 2:
        yield speeds[True] / speeds[False]


def _growth(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    scheme = METHODS[claim.subject]
    for _, group in groupby(cells, key=lambda cell: cell.case.model):
        times = {cell.case.world_size: cell.value(scheme, "comm_s") for cell in group if scheme in cell.rows}
        if {8, 64} <= set(times):
            yield times[64] / times[8]


def _best(cell: Cell) -> list[float] | None:
    """Return SSFusion's lead over the fastest other scheme that fits."""
    if "ssfusion_oi" not in cell.rows:
        return None
    others = [name for name in (*BASELINES, "ssfusion_naive", "ssfusion_o") if name in cell.rows and cell.fits(name)]
    most = max((cell.value(name, SPEED) for name in others), default=0.0)
    ours = cell.value("ssfusion_oi", SPEED) if cell.fits("ssfusion_oi") else 0.0
    return [ours / most - 1 if most else inf]


def _variant_order(cell: Cell) -> list[float] | None:
    if not all(scheme in cell.rows for scheme in VARIANTS):
        return None
    return [a / b - 1 for a, b in pairwise(cell.value(scheme, SPEED) for scheme in VARIANTS)]


def _gap_widens(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[list[float]]:
    by_size = sorted(cells, key=lambda cell: (cell.case.model, cell.case.world_size))
    for _, group in groupby(by_size, key=lambda cell: cell.case.model):
        gains = [mean(speedups) for cell in group if (speedups := list(_speedup(claim, [cell])))]
        yield [(1 + b) / (1 + a) - 1 for a, b in pairwise(gains)]


def _dense_order(cell: Cell) -> list[float] | None:
    if not all(name in cell.rows for name in ("oktopk", "spardl", "espresso", "omgs")):
        return None
    reducing, gathering = (
        [cell.value(scheme, SPEED) for scheme in pair] for pair in (("oktopk", "spardl"), ("espresso", "omgs"))
    )
    return [min(reducing) / max(gathering) - 1]


def _more_on_slow_networks(_: PaperClaim, cells: Sequence[Cell]) -> Iterator[list[float]]:
    by_rate = sorted(cells, key=lambda cell: float(cell.options.get("inter.gbps", "inf")))
    both = [cell for cell in by_rate if {"ssfusion_oi", "ssfusion_o"} <= set(cell.rows)]
    gains = [cell.value("ssfusion_oi", SPEED) / cell.value("ssfusion_o", SPEED) for cell in both]
    yield [a / b - 1 for a, b in pairwise(gains)]


def _close(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    for cell, subject, baseline in pairs(claim, cells):
        yield float(abs(cell.value(subject, "sparsify_s") / cell.value(baseline, "sparsify_s") - 1) <= CLOSE)


def _spardl_backward(_: PaperClaim, cells: Sequence[Cell]) -> Iterator[float]:
    for cell in cells:
        if not {"spardl", "oktopk"} <= set(cell.rows):
            continue
        schemes = [scheme for scheme in (*BASELINES, "ssfusion_oi") if scheme in cell.rows]
        backward = {scheme: cell.value(scheme, "backward_s") for scheme in schemes}
        less = cell.value("spardl", "exposed_comm_s") < cell.value("oktopk", "exposed_comm_s")
        yield float(less and backward.pop("spardl") > max(backward.values()))


def _like_joint(cell: Cell) -> list[float] | None:
    """Return by how much selective is before per-tensor, and, where it is not CLOSE to joint, by how much it is off."""
    if not {"fused_all", "ssfusion_naive", "per_tensor"} <= set(cell.rows):
        return None
    joint, selective, each = (
        cell.value(scheme, "iteration_s") for scheme in ("fused_all", "ssfusion_naive", "per_tensor")
    )
    apart = abs(selective / joint - 1)  # faster than joint is close, too
    return [each / selective - 1, *([-apart] if apart > CLOSE else [])]


def pairs(claim: PaperClaim, cells: Sequence[Cell]) -> Iterator[tuple[Cell, str, str]]:
    """Yield every cell with the subject and one baseline of the claim, where both were simulated and fit."""
    subject = METHODS.get(claim.subject, "")
    every = BASELINES if (claim.baseline or "").startswith("all") else (claim.baseline or "").split("|")
    for cell in cells:
        for name in every:
            pair = (subject, METHODS.get(name, ""))
            if all(scheme in cell.rows and cell.fits(scheme) for scheme in pair):
                yield (cell, *pair)


_METRICS: dict[str, Rule] = {
    "throughput_speedup": _speedup,
    "time_reduction": _reduction,
    "time_s": _seconds,
    "memory": _memory,
}
_RULES: dict[str, Rule] = {
    "ssfusion.exp3.spardl_backward": _spardl_backward,
    "ssfusion.exp3.spars.close": _close,
    "ssfusion.exp7.ratio40": _smaller_cards,
    "ssfusion.fig9.ar_marginal": _growth,
    "ssfusion.fig9.linear": _growth,
}
LEADS: dict[str, Callable[[Cell], list[float] | None]] = {
    "ssfusion.exp1.variant_order": _variant_order,
    "ssfusion.exp5.dense_order": _dense_order,
    "ssfusion.fig5.close": _like_joint,
    **{f"ssfusion.exp{number}.best": _best for number in (1, 4, 5, 6)},
}
"""By claim of an order: how much faster each scheme is than the next one, as a share; None where one is missing."""
ACROSS: dict[str, Callable[[PaperClaim, Sequence[Cell]], Iterable[list[float]]]] = {
    "ssfusion.exp7.gap_widens": _gap_widens,
    "ssfusion.ssfusion_i.slow_networks": _more_on_slow_networks,
}
"""The same of orders of gains, each in another setting."""
