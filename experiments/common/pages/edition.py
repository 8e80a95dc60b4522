"""The generated parts of docs/edition2026.md: the sentence with its counts, and the bandwidths that models need."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isinf

from experiments.common.evaluation.set_ups import (
    CheckedPlace,
    corrected,
    counted,
    needed_gbps,
    on_the_map,
    places,
    sharded_sentence,
)
from experiments.common.pages.markdown import code, table
from ssfx.core.rows import Row
from ssfx.perf_model.devices import device

EXPERIMENT = "edition2026"
NO_ROWS = "*No rows are committed yet.*"
USED = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares of a device's time that are to compute."""
DEVICES = ("a100", "h100", "b200")
MAP, MEASURED, SITES = (
    "On eight nodes of eight GPUs, by kinds of links",
    "On measured clusters",
    "Between two sites, 20 or 80 ms there and back",
)


def edition_block(rows: Sequence[Row]) -> str:
    """Return the sentence, its parts by kind of network, and what it becomes if the simulator errs as it is known."""
    mine = [row for row in rows if row.case.experiment == EXPERIMENT]
    found, too_large = places(mine)
    if not found:
        return NO_ROWS
    whole = counted(found)
    lines = [
        f"**{whole.sentence}.**"
        + (f" Steps on the network of {whole.checked:,} of the {whole.sure:,} were ever checked." if whole.sure else "")
        + f" {too_large} places (a model on a GPU and a network) where dense training does not fit are not counted.",
        "",
    ]
    kinds = [(MAP if on_the_map([one]) else SITES) if one.cluster.startswith("box") else MEASURED for one in found]
    for kind in (MAP, MEASURED, SITES):
        if here := [one for one, its in zip(found, kinds, strict=True) if its == kind]:
            part = counted(here)
            lines.append(
                f"- {kind}: {part.sure:,} of {part.set_ups:,} configurations surely pay"
                + (f", nine in ten of them at or below {part.most_gbps:.3g} Gbit/s per GPU." if part.sure else ".")
            )
    off = counted(corrected(found))
    lines += [
        f"- If the simulator erred by its known bias and by no more: {off.sure:,} of {off.set_ups:,}"
        + (f", nine in ten of them at or below {off.most_gbps:.3g} Gbit/s per GPU." if off.sure else "."),
        f"- By its times alone, with no error at all: {whole.known:,}.",
        "- By method, configurations with a shorter step, of them with a quality that is not unknown and a shorter "
        "time to it, and surely so: " + "; ".join(_by_method(found)) + ".",
    ]
    if sharded := sharded_sentence(mine):
        lines.append(f"- {sharded}.")
    return "\n".join(lines)


METHODS = {
    "powersgd": "low rank",
    "ssfusion_oi": "top-k of 1 %",
    "mergecomp": "4 bits gathered",
    "ddp_quantized": "8 and 4 bits quantised on the way",
    "auto": "auto",
}
"""What the page calls the methods of the map, by scheme."""


def _by_method(found: Sequence[CheckedPlace]) -> Iterator[str]:
    for scheme, words in METHODS.items():
        own = counted(
            replace(place, methods=tuple(one for one in place.methods if one.scheme == scheme)) for place in found
        )
        if own.set_ups:
            yield f"{words} {own.faster:,}, {own.known:,} and {own.sure:,} of {own.set_ups:,}"


def bandwidth_block(rows: Sequence[Row]) -> str:
    """Return the Gbit/s per GPU that each model needs for shares of a device's time, dense and compressed."""
    found = on_the_map(places([row for row in rows if row.case.experiment == EXPERIMENT])[0])
    lines = []
    for model in dict.fromkeys(one.model for one in found):
        for name in DEVICES:
            here = [one for one in found if (one.model, one.device) == (model, name)]
            if here:
                cells = [_said(here, share, compressed) for compressed in (False, True) for share in USED]
                lines.append((code(model), device(name).title.removeprefix("NVIDIA "), *cells))
    shares = [f"{share:.0%}" for share in USED]
    header = ("model", "GPU", *(f"dense {one}" for one in shares), *(f"compressed {one}" for one in shares))
    return table(header, lines) if lines else NO_ROWS


def _said(here: Sequence[CheckedPlace], share: float, compressed: bool) -> str:
    gbps = needed_gbps(here, share, compressed=compressed)
    rates = [one.gbps for one in here]
    if isinf(gbps):
        return f"> {max(rates):.3g}"
    return f"< {gbps:.3g}" if gbps == min(rates) else f"{gbps:.3g}"
