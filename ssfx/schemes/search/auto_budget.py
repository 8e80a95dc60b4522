"""What `auto` may send with: kinds of exchange under a quality, density or compressor that was asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ssfx.compressors import build
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.schemes.search.auto_methods import Kind
from ssfx.schemes.search.extra_steps import (
    MORE_STEPS,
    TRAIN_STEPS,
    Quality,
    recorded_methods,
    steps_anywhere,
    steps_of_method,
)
from ssfx.schemes.search.recorded_network import Network
from ssfx.schemes.transport import check_density, keeps_fraction

USUAL_DENSITY = 0.01
"""Of a compressor that selects, where none was asked for: as with other schemes."""
DENSE = Kind("dense", "all_reduce")
HALF = Kind("in 16 bits", "all_reduce", "fp16")
HALF_IN_32 = Kind("in 16 bits, summed in 32", "quantized_all_reduce", "bf16")
WHOLE = (DENSE, HALF_IN_32, HALF)
"""What every budget allows: no element is left out, and the error of 16 bits is below the noise of gradients."""
ONE_BIT = "onebit(bucket=1024)"
FOUR_BITS = "qsgd(bits=4,bucket=48,norm=max)"
EIGHT_BITS = "qsgd(norm=max)"
"""Codes whose error may be fed back: means, and levels of buckets smaller than the square of their number."""


@dataclass(frozen=True)
class Budget:
    """The kinds that may be used. words: the budget in words. left_out: what may not be used, and why, in words.

    promises: whether it says what training loses, which was recorded or is known of these kinds at their densities and
    of nothing else.
    """

    kinds: tuple[Kind, ...]
    words: str
    left_out: tuple[str, ...] = ()
    promises: bool = False


def budget(
    costs: Costs,
    quality: Quality,
    density: float | None,
    compressor: str | None,
    ranks_per_node: int,
    train_steps: int = TRAIN_STEPS,
    network: Network | None = None,
) -> Budget:
    """Return what may be used on the ranks of `costs`; ConfigError for a density that would have no effect.

    One rank alone, or density 1, sends everything as it is. A quality allows what it does for `network`; None: for any.
    """
    if compressor is not None:
        if density is not None:
            check_density(compressor, density)
        given = _of_compressor(compressor, USUAL_DENSITY if density is None else density)
        found = Budget((DENSE, *given), f"compressor={compressor}{_at(compressor, density)} or dense")
    elif density is not None:
        kinds = WHOLE if density == 1 else (*WHOLE, *_at_density(density), *_of_every_element())
        found = Budget(kinds, f"density={density:g}, whatever it costs in steps")
    else:
        found = _measured(quality, train_steps, network)
    if costs.world_size == 1 or density == 1:
        return replace(found, kinds=(DENSE,), left_out=())
    usable: list[Kind] = []
    reasons = list(found.left_out)
    for kind in _variants(found.kinds, ranks_per_node):
        if reason := _impossible(kind, costs):
            reasons.append(f"{kind.words}: {reason}")
        else:
            usable.append(kind)
    return replace(found, kinds=tuple(usable), left_out=tuple(dict.fromkeys(reasons)))


def _at(compressor: str, density: float | None) -> str:
    return f" at density {density or USUAL_DENSITY:g}" if keeps_fraction(compressor) else ""


# ---- the kinds ------------------------------------------------------------------------------------------------------


def _at_density(density: float) -> Iterator[Kind]:
    """Yield the kinds that send a fraction of each tensor's elements."""
    for half in ("", "(value_dtype=float16)"):
        words = " with 16-bit values" if half else ""
        gathered = f"top-k of each tensor gathered{words}"
        yield Kind(gathered, "all_gather", f"dgc{half}", density, "each", compensates=True)
        yield Kind(f"the positions of one rank's top-k{words}, summed", "all_reduce", f"cltk{half}", density)
    yield Kind("agreed blocks summed", "all_reduce", "block_topk(agreed=True)", density, "each")
    yield Kind("shards exchanged, then gathered", "a2a_ag", "dgc", density)
    for name, words in (
        ("micro", "disjoint shards (MiCRO)"),
        ("spar_reduce_scatter", "sparse reduce-scatter (SparDL)"),
        ("ok_topk", "sparse regions (Ok-Topk)"),
    ):
        yield Kind(words, name, "topk", density)


def _of_every_element() -> Iterator[Kind]:
    """Yield the kinds for which density means nothing."""
    yield Kind("low rank, factors in turns (ACP-SGD)", "all_reduce", "acpsgd")
    yield Kind("low rank (PowerSGD)", "all_reduce", "powersgd")
    yield Kind("one bit an element", "all_gather", "onebit", 1.0, "each")
    yield Kind("four bits an element", "all_gather", FOUR_BITS, 1.0, "each")
    yield Kind("one bit an element, quantised on the way", "quantized_all_reduce", ONE_BIT)
    yield Kind("four bits an element, quantised on the way", "quantized_all_reduce", FOUR_BITS)
    yield Kind("eight bits an element, quantised on the way", "quantized_all_reduce", EIGHT_BITS)


def _of_compressor(spec: str, density: float) -> Iterator[Kind]:
    """Yield the kinds of one compressor."""
    one = build(spec)
    selects = keeps_fraction(spec)
    kept = density if selects else 1.0
    if selects and density == 1:
        return
    if one.additive:
        yield Kind(f"{spec} summed", "all_reduce", spec, kept)
    else:
        yield Kind(f"{spec} of each tensor gathered", "all_gather", spec, kept, "each", compensates=selects)
    if selects and one.sparse and not one.additive:
        yield Kind(f"{spec}, shards exchanged, then gathered", "a2a_ag", spec, kept)
    if spec == "topk":
        yield from (kind for kind in _at_density(density) if kind.compressor == "topk")


def _variants(kinds: tuple[Kind, ...], ranks_per_node: int) -> Iterator[Kind]:
    """Yield the kinds; those that add up also by way of nodes of so many ranks, if that is known."""
    for kind in kinds:
        yield kind
        if ranks_per_node > 1 and kind.collective == "all_reduce":
            spec = f"hierarchical_all_reduce(ranks_per_node={ranks_per_node})"
            yield replace(kind, words=f"{kind.words}, inside nodes first", collective=spec)
        if ranks_per_node > 1 and kind.collective == "quantized_all_reduce":
            spec = f"quantized_all_reduce(ranks_per_node={ranks_per_node})"
            yield replace(kind, words=f"{kind.words} between nodes", collective=spec)


def _impossible(kind: Kind, costs: Costs) -> str:
    """Return why the kind cannot be used on these ranks or is not priced, "" if it can."""
    try:
        if kind.compressor is not None:
            costs.codec(kind.compressor)
    except ConfigError as error:
        return str(error).partition(";")[0]
    return ""


# ---- quality as measured --------------------------------------------------------------------------------------------


def _measured(quality: Quality, train_steps: int, network: Network | None) -> Budget:
    """Return the kinds of a quality: 16 bits count as dense, the upper end of what others need admits them.

    Without a network all are that some recorded training may use.
    """
    if quality == "dense":
        return Budget(WHOLE, "quality=dense, every element in 32 or 16 bits", ("all that leaves anything out",))
    limit, kinds, reasons = MORE_STEPS[quality], [*WHOLE], []
    for row in recorded_methods():
        kind = Kind(row["words"], row["collective"], row["compressor"], row["density"] or 1.0, row["calls"])
        if kind.compressor in (HALF.compressor, HALF_IN_32.compressor):
            continue
        found = (
            steps_anywhere(row, train_steps)
            if network is None
            else steps_of_method(network, kind.collective, row["compressor"], kind.density, kind.calls, train_steps)
        )
        if found.within(limit):
            kinds.append(kind)
        else:
            reasons.append(f"{kind.words}{'' if row['density'] is None else f' at {kind.density:g}'}: {found}")
    reasons.append("methods and densities of which no run is recorded")
    words = (
        f"quality={quality}, at most {limit:.0%} more steps than a dense training of {train_steps:,} steps, by the "
        f"upper end of what recorded runs say of {'any network' if network is None else network.text}"
    )
    return Budget(tuple(kinds), words, tuple(reasons), promises=True)
