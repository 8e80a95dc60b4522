"""Generated parts of docs/validation.md: what holds at each bandwidth, and what the paper implies about compute."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.common.pages.markdown import table
from experiments.common.validation.published_steps import number, stated
from ssfx.perf_model.roofline import analytic_profile

ORDERINGS = 6
FIG9, CARDS = 57.0, 192.0
"""Gbit/s that the paper's Fig. 9 shows, and that its network cards can reach."""
Line = dict[str, str]


def conditions_block(file: Path) -> str:
    """Return a paragraph and a table of what holds where; `file` is the CSV of the figure ssfusion.conditions."""
    with file.open(newline="") as text:
        lines = list(csv.DictReader(text))
    models = list(dict.fromkeys(line["model"] for line in lines))
    rates = sorted({float(line["busbw_gbps"]) for line in lines})
    header = ("Gbit/s", "model", f"orderings of {ORDERINGS}", "O+I over HiPress", "best over dense", "best over 16-bit")
    cells = [
        (f"{rate:g}", model, *_cells([one for one in lines if one["model"] == model and _rate(one) == rate]))
        for rate in rates
        for model in models
    ]
    return "\n\n".join((*_sentences(lines, rates), table(header, cells)))


def _sentences(lines: Sequence[Line], rates: Sequence[float]) -> Iterable[str]:
    every = [one for one in lines if int(one["orderings"]) == ORDERINGS]
    whole = [rate for rate in rates if all(one in every for one in lines if _rate(one) == rate)]
    some = max((_rate(one) for one in every), default=0.0)
    always = f"at {' and '.join(f'{rate:g}' for rate in whole)} Gbit/s whatever the model and the compressor"
    yield (
        f"**All {ORDERINGS} orderings hold** in {len(every)} of {len(lines)} settings, the fastest of them at {some:g} "
        f"Gbit/s; {always if whole else 'at no bandwidth for every model and compressor'}."
    )
    for rate, what in (
        (FIG9, "the rate that the paper's Fig. 9 shows"),
        (CARDS, "what the network it names can reach"),
    ):
        found = [one for one in lines if _rate(one) == rate]
        if found:
            held = [int(one["orderings"]) for one in found]
            yield (
                f"**At {rate:g} Gbit/s**, {what}: {min(held)} to {max(held)} orderings hold. O+I as the paper ran it "
                f"is {_span(found, 'oi_vs_hipress')} against HiPress, "
                f"{_span(found, 'oi_vs_cupcake')} against Cupcake and {_span(found, 'oi_vs_dense')} against dense DDP; "
                f"SSFusion at its best {_span(found, 'best_vs_dense')} against dense DDP with fp32 messages and "
                f"{_span(found, 'best_vs_dense16')} with 16-bit messages."
            )


def _cells(lines: Sequence[Line]) -> tuple[str, ...]:
    held = sorted({int(one["orderings"]) for one in lines})
    count = f"{held[0]}" if len(held) == 1 else f"{held[0]} to {held[-1]}"
    return (count, *(_span(lines, key) for key in ("oi_vs_hipress", "best_vs_dense", "best_vs_dense16")))


def _span(lines: Sequence[Line], key: str) -> str:
    """Return the least and the largest gain in percent."""
    low, high = (f"{round(100 * bound(float(one[key]) for one in lines)):+d}" for bound in (min, max))
    return (f"{low} %" if low == high else f"{low} to {high} %").replace("+0", "0")


def _rate(line: Line) -> float:
    return float(line["busbw_gbps"])


MODELS = {"bertl": "bert_large", "resnet152": "resnet152"}
"""Those of Experiment 3, by the paper's name in ids of claims."""
GPUS, DENSITY, PAIR_BYTES = 64, 0.01, 8
"""Of Experiment 3: every GPU receives an index and a value for each element that another one kept."""


def algebra_block() -> str:
    """Return how large compute can be at most, from the printed gains alone; without a simulator.

    With K, S and C of HiPress's iteration, c and s the shares of C and S that SSFusion leaves, and r its throughput
    over HiPress's: K + S + C = r (K + s S + c C).
    """
    lines, sentences = [], []
    for short, model in MODELS.items():
        comm = 1 - number(f"ssfusion.exp3.comm.{short}.hipress")
        spars = 1 - number(f"ssfusion.exp3.spars.{short}")
        alone_s = analytic_profile(model, "a100").alone_s()
        needed_s = []
        for gain in stated("ssfusion.exp1.oi_vs_hipress"):
            ratio = 1 + gain
            of_comm, of_spars = compute(ratio, comm), compute(ratio, spars)
            most = max(0.0, *(part / (1 + part) for part in (of_comm, of_spars)))
            lines.append(
                (
                    model,
                    f"{ratio:.3f}",
                    f"{comm:.1%}",
                    f"{spars:.1%}",
                    f"{of_comm:+.2f} C {of_spars:+.2f} S",
                    f"{most:.0%}" if most else "none",
                )
            )
            needed_s.append(alone_s / of_comm if of_comm > 0 else float("inf"))
        sentences.append(_needed(model, alone_s, needed_s))
    header = ("model", "r", "c", "s", "K", "compute at most, of HiPress's iteration")
    return "\n\n".join((table(header, lines), *sentences))


def compute(ratio: float, left: float) -> float:
    """Return the seconds of compute for each of HiPress's of which SSFusion, `ratio` times faster, leaves `left`."""
    return (1 - left * ratio) / (ratio - 1)


def _needed(model: str, alone_s: float, needed_s: list[float]) -> str:
    profile = analytic_profile(model, "a100")
    received = PAIR_BYTES * DENSITY * sum(profile.numel) * (GPUS - 1)
    least_s, most_s = min(needed_s), max(needed_s)
    span = f"at least {least_s:.2g} s" if most_s == float("inf") else f"{least_s:.2g} to {most_s:.2g} s"
    rate = (
        f"at most {received / least_s / 1e9:.2g}"
        if most_s == float("inf")
        else (f"{received / most_s / 1e9:.2g} to {received / least_s / 1e9:.2g}")
    )
    return (
        f"An A100 computes a step of `{model}` at the customary batch in {alone_s:.2g} s by its data sheet. If "
        f"sparsifying took nothing, HiPress's exposed communication would have to take {span}: the "
        f"{received / 1e9:.2g} GB that a GPU receives at density {DENSITY:g} would arrive at {rate} GB/s through a "
        "card of 25."
    )
