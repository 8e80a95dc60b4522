"""What a plan sends, in the words that scores and quality records share: dense, 16 bits, low rank, ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from ssfx.compressors import build
from ssfx.core.spec import name_of
from ssfx.planning.plan import Plan, Segment
from ssfx.schemes.carrier import keeps_fraction
from ssfx.schemes.search.auto_steps import MORE_STEPS, TRAIN_STEPS, Needed, measured_steps, needed

DENSE = "dense sums"
SUMS = ("all_reduce", "hierarchical_all_reduce", "block_all_reduce", "row_sparse")
_SUMMED = {"fp16": "16-bit sums", "bf16": "16-bit sums", "acpsgd": "low-rank sums", "powersgd": "low-rank sums"}
_OF_SUMMED = {"all_reduce": ("all_reduce", "hierarchical_all_reduce")}
LIMIT = MORE_STEPS["normal"]
"""How many more steps than dense training, as a share, a method of an answer may need by its recorded runs."""

DENSE_STEPS = Needed(0.0, "every element in 32 bits")
"""Of a plan that compresses nothing."""


def ways(plan: Plan) -> tuple[str, ...]:
    """Return in what ways a plan sends gradients, sorted; DENSE only where it sends nothing else."""
    found = {_way(collective, one) for collective, one in _segments(plan)}
    return tuple(sorted(found - {DENSE})) or (DENSE,)


def more_steps(plan: Plan, train_steps: int = TRAIN_STEPS) -> float | None:
    """Return how many more steps than dense training the plan's methods need by recorded runs, as a share.

    That of the worst method; 0.0 where all is dense. None where no run is recorded of a method at its density or at a
    smaller density, where a run missed its target, or where the share is above LIMIT.
    """
    found = steps_of(plan, train_steps)
    return found.share if found.within(LIMIT) else None


def steps_of(plan: Plan, train_steps: int) -> Needed:
    """Return what a training of so many dense steps needs with the plan's methods: that of the worst method.

    Fewer steps than dense training are noise, and count as none. Without a share where no run is recorded of a method
    at its density or at a smaller density, or its runs give none.
    """
    records = [_recorded(collective, one, train_steps) for collective, one in _segments(plan) if one.compressor]
    worst = max(records, key=_share, default=DENSE_STEPS)
    return worst if worst.share is None else replace(worst, share=max(0.0, worst.share))


def recorded_spec(compressor: str, train_steps: int = TRAIN_STEPS) -> str:
    """Return the compressor with the options whose recorded runs need the fewest steps, within LIMIT.

    The compressor itself where it selects elements, or no record is within LIMIT.
    """
    if build(compressor).sparse:
        return compressor
    name = name_of(compressor)
    shares = {
        row["compressor"]: share
        for row in measured_steps()
        if name_of(row["compressor"]) == name and not row["density"]
        and (share := needed(row, train_steps).share) is not None and share <= LIMIT
    }  # fmt: skip
    return min(shares, key=lambda spec: shares[spec]) if shares else compressor


def _segments(plan: Plan) -> Iterator[tuple[str, Segment]]:
    for _, lane in plan.lanes():
        for one in lane.segments:
            yield name_of(lane.collective), one


def _way(collective: str, one: Segment) -> str:
    if one.compressor is None:
        # A tensor that travels dense in a gather of others is part of that gather, which another segment stands for.
        return DENSE if collective in SUMS or collective.startswith("all_gather") else collective
    if collective in SUMS:
        return _SUMMED.get(name_of(one.compressor), "sums of agreed positions")
    if collective.startswith("all_gather"):
        return "gathered selections" if build(one.compressor).sparse else "gathered values of few bits"
    return collective


def _recorded(collective: str, one: Segment, train_steps: int) -> Needed:
    """Return what is recorded of a segment's method: of several records that with the fewest steps."""
    selects = keeps_fraction(str(one.compressor))
    calls = "each" if selects and len(one.tensors) == 1 else "joint"
    records = [
        needed(row, train_steps)
        for row in measured_steps()
        if row["compressor"] == one.compressor and collective in _OF_SUMMED.get(row["collective"], (row["collective"],))
        and (not selects or (row["calls"] == calls and one.density >= row["density"]))
    ]  # fmt: skip
    nothing = Needed(None, f"no run is recorded of {one.compressor} sent like this")
    return min(
        (known for known in records if known.share is not None), key=_share, default=next(iter(records), nothing)
    )


def _share(known: Needed) -> float:
    return inf if known.share is None else known.share
