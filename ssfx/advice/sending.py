"""What a plan sends, in the words that scores and quality records share: dense, 16 bits, low rank, ..."""

from __future__ import annotations

from collections.abc import Iterator

from ssfx.compressors import build
from ssfx.planning.plan import Plan, Segment
from ssfx.schemes.search.auto_budget import MORE_STEPS, measured_steps

DENSE = "dense sums"
SUMS = ("all_reduce", "hierarchical_all_reduce", "block_all_reduce", "row_sparse")
_SUMMED = {"fp16": "16-bit sums", "bf16": "16-bit sums", "acpsgd": "low-rank sums", "powersgd": "low-rank sums"}
_OF_SUMMED = {"all_reduce": ("all_reduce", "hierarchical_all_reduce")}
LIMIT = MORE_STEPS["normal"]
"""How many more steps than dense training, as a share, a method of an answer may have needed in its recorded runs."""


def ways(plan: Plan) -> tuple[str, ...]:
    """Return in what ways a plan sends gradients, sorted; DENSE only where it sends nothing else."""
    found = {_way(collective, one) for collective, one in _segments(plan)}
    return tuple(sorted(found - {DENSE})) or (DENSE,)


def more_steps(plan: Plan) -> float | None:
    """Return how many more steps than dense training the plan's methods needed in recorded runs, as a share.

    That of the worst method; 0.0 where all is dense. None where no run is recorded of a method at its density or at a
    smaller density, where a run missed its target, or where the share is above LIMIT.
    """
    worst = 0.0
    for collective, one in _segments(plan):
        if one.compressor is not None:
            known = _recorded(collective, one)
            if known is None or known > LIMIT:
                return None
            worst = max(worst, known)
    return worst


def recorded_spec(compressor: str) -> str:
    """Return the compressor with the options whose recorded runs needed the fewest steps, within LIMIT.

    The compressor itself where it selects elements, or no record is within LIMIT.
    """
    if build(compressor).sparse:
        return compressor
    name = compressor.partition("(")[0]
    known = [row for row in measured_steps() if row["compressor"].partition("(")[0] == name and not row["density"]]
    good = [row for row in known if row["more_steps"] is not None and row["more_steps"] <= LIMIT]
    return str(min(good, key=lambda row: row["more_steps"])["compressor"]) if good else compressor


def _segments(plan: Plan) -> Iterator[tuple[str, Segment]]:
    for _, lane in plan.lanes():
        for one in lane.segments:
            yield lane.collective.partition("(")[0], one


def _way(collective: str, one: Segment) -> str:
    if one.compressor is None:
        # A tensor that travels dense in a gather of others is part of that gather, which another segment stands for.
        return DENSE if collective in SUMS or collective.startswith("all_gather") else collective
    if collective in SUMS:
        return _SUMMED.get(one.compressor.partition("(")[0], "sums of agreed positions")
    if collective.startswith("all_gather"):
        return "gathered selections" if build(one.compressor).sparse else "gathered values of few bits"
    return collective


def _recorded(collective: str, one: Segment) -> float | None:
    """Return the share of more steps that is recorded of a segment's method; None where there is none."""
    selects = build(str(one.compressor)).sparse
    calls = "each" if selects and len(one.tensors) == 1 else "joint"
    shares = [
        row["more_steps"]
        for row in measured_steps()
        if row["compressor"] == one.compressor and collective in _OF_SUMMED.get(row["collective"], (row["collective"],))
        and (not selects or (row["calls"] == calls and one.density >= row["density"]))
    ]  # fmt: skip
    return min((share for share in shares if share is not None), default=None)
