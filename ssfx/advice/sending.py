"""What a plan sends, in the words that scores and quality records share: dense, 16 bits, low rank, ..."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from ssfx.compressors import build
from ssfx.core.spec import name_of
from ssfx.planning.plan import Plan, Segment
from ssfx.schemes.search.extra_steps import MORE_STEPS, TRAIN_STEPS, ExtraSteps, recorded_methods, steps_of_method
from ssfx.schemes.search.recorded_network import Network

DENSE = "dense sums"
SUMS = ("all_reduce", "hierarchical_all_reduce", "block_all_reduce", "row_sparse")
_SUMMED = {"fp16": "16-bit sums", "bf16": "16-bit sums", "acpsgd": "low-rank sums", "powersgd": "low-rank sums"}
LIMIT = MORE_STEPS["normal"]
"""How many more steps than dense training, as a share, a method of an answer may need at the upper end."""

DENSE_STEPS = ExtraSteps(0.0, 0.0, 0.0, "every element in 32 bits")
"""Of a plan that compresses nothing."""
ROUNDED_STEPS = ExtraSteps(0.0, 0.0, 0.0, "in 16 bits, of which no run is recorded here")
"""Of 16 bits where no record holds."""


def ways(plan: Plan) -> tuple[str, ...]:
    """Return in what ways a plan sends gradients, sorted; DENSE only where it sends nothing else."""
    found = {_way(collective, one) for collective, one in _segments(plan)}
    return tuple(sorted(found - {DENSE})) or (DENSE,)


def more_steps(plan: Plan, network: Network, train_steps: int = TRAIN_STEPS) -> float | None:
    """Return how many more steps than dense training the plan's methods need on `network`, as a share.

    That of the worst method; 0.0 where all is dense. None where the quality is unknown, or its upper end above LIMIT.
    """
    found = steps_of(plan, network, train_steps)
    return found.share if found.within(LIMIT) else None


def steps_of(plan: Plan, network: Network, train_steps: int) -> ExtraSteps:
    """Return what a training of so many dense steps of `network` needs with the plan's methods on the plan's ranks:
    that of the worst, of equal ones that with the fewest runs, resting on as many as the method with the fewest.

    """
    network = replace(network, ranks=plan.world_size)
    records = [  # in the order of the plan, which decides between equally good ones
        _of_method(collective, one, network, train_steps) for collective, one in _segments(plan) if one.compressor
    ]
    worst = max(records, key=_least_sure, default=DENSE_STEPS)
    return replace(worst, runs=min((known.runs for known in records if known.runs), default=0))


def _least_sure(known: ExtraSteps) -> tuple[float, float]:
    """Return a key by which the worst record is the largest, and of equal ones the one of fewest runs, if of any."""
    return inf if known.high is None else known.high, -known.runs if known.runs else -inf


def _of_method(collective: str, one: Segment, network: Network, train_steps: int) -> ExtraSteps:
    found = steps_of_method(
        network,
        "all_reduce" if collective == "hierarchical_all_reduce" else collective,
        str(one.compressor),
        one.density,
        "each" if len(one.tensors) == 1 else "joint",
        train_steps,
    )
    return ROUNDED_STEPS if found.unknown and build(str(one.compressor)).lossless else found


def recorded_spec(compressor: str, network: Network, train_steps: int = TRAIN_STEPS) -> str:
    """Return the compressor with the options whose recorded runs need the fewest steps on `network`, within LIMIT.

    The compressor itself where it selects elements, or no record is within LIMIT.
    """
    if build(compressor).sparse:
        return compressor
    name = name_of(compressor)
    found = {
        row["compressor"]: steps_of_method(
            network, row["collective"], row["compressor"], row["density"] or 1.0, row["calls"], train_steps
        )
        for row in recorded_methods()
        if name_of(row["compressor"]) == name and not row["density"]
    }
    shares = {spec: known.share for spec, known in found.items() if known.share is not None and known.within(LIMIT)}
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
        return "gathered selections" if one.density < 1 else "gathered values of few bits"
    return collective
