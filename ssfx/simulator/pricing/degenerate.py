"""What is odd about a plan, in one line: nothing left dense, nothing compressed, far from the density asked for."""

from ssfx.compressors.base import k_floor
from ssfx.planning.plan import Plan, Segment
from ssfx.simulator.pricing.message_sizes import segment_layout

FAR = 2.0
"""How many times as much or as little as asked for counts as far."""

LITTLE = 0.02
"""The share of the budget below which SSFusion's dense tensors are almost none."""


def asked_and_sent(plan: Plan, density: float | None) -> str:
    """Return "sends 92.5 % of all elements, asked for 1 %" where these are far apart; "" elsewhere."""
    if plan.world_size == 1 or density is None or density == 1:
        return ""
    total = sum(spec.numel for spec in plan.tensors)
    share = sum(_kept(plan, one) for _, lane in plan.lanes() for one in lane.segments) / max(1, total)
    if density / FAR <= share <= FAR * density:
        return ""
    return f"sends {100 * share:.3g} % of all elements, asked for {100 * density:g} %"


def degenerated(plan: Plan, density: float | None) -> str:
    """Return why `plan` is hardly a plan of its scheme, "" if it is; `density`: what was asked for, None: none."""
    if plan.world_size == 1 or density is None or density == 1:
        return ""
    segments = [segment for _, lane in plan.lanes() for segment in lane.segments]
    packed = [segment for segment in segments if not segment.dense]
    total = sum(spec.numel for spec in plan.tensors)
    if not packed:
        return f"{plan.scheme} compresses nothing here: every tensor travels dense, as with scheme=ddp"
    if plan.scheme == "auto":
        return ""  # its budget need not be a density
    found = []
    dense = sum(plan.numel(segment) for segment in segments if segment.dense) / total
    if plan.scheme.startswith("ssfusion") and dense < LITTLE * density:
        found.append("leaves almost nothing dense, so it is per-tensor compression in buffers")
    if far := asked_and_sent(plan, density):
        found.append(f"{far} ({100 * dense:.3g} % in dense tensors)")
    return f"{plan.scheme} {' and '.join(found)}" if found else ""


def _kept(plan: Plan, segment: Segment) -> int:
    """Return how many elements a segment sends; of a message of changing length as many as it is planned for."""
    layout, numel = segment_layout(plan, segment), plan.numel(segment)
    entries = k_floor(numel, segment.density) if layout.counts else max(layout.values, layout.selected)
    return min(numel, entries) if segment.compressor is not None and entries else numel
