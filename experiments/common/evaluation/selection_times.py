"""MiCRO's claims about the cost of selecting, from times of torch's own operators on one core."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import quantiles

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import both
from experiments.common.evaluation.judging import says
from ssfx.core.rows import Row

EXPERIMENT = "selection"
COMMAND = "python benchmarks/selection.py"
DENSITY = 0.01
MUCH = 2.0
"""How many times as long a selection takes that costs much more than another."""
SLIGHT = 0.1
"""Share of its selection below which what a sparsifier does besides counts as nothing."""
SORTED, THRESHOLDS = ("topk",), ("hard_threshold", "sidco", "micro")
CELLS = {"topk": "topk", "cltk": "topk", "hardthr": "hard_threshold", "sidco": "sidco", "micro": "micro"}
"""Lines of Table I, and whose times they have: CLT-k's leader selects as Top-k does."""


@dataclass(frozen=True)
class Times:
    """Seconds of selecting, and of all that a sparsifier does besides communicating; `noise_s`: of one such call."""

    select_s: float
    whole_s: float
    noise_s: float

    @property
    def extra_s(self) -> float:
        """What it does besides selecting and communicating."""
        return self.whole_s - self.select_s


def times(rows: Sequence[Row]) -> dict[int, dict[tuple[str, float], Times]]:
    """Return elements -> (sparsifier, density) -> times, the smaller vectors first; half the middle half is noise."""
    found: dict[int, dict[tuple[str, float], Times]] = {}
    for row in rows:
        case = row.case
        if case.experiment != EXPERIMENT or case.density is None:
            continue
        name = "micro" if case.scheme == "micro" else str(case.compressor)
        low, _, high = quantiles(row.samples["compress_s"])
        one = Times(float(row.metrics["compress_s"] or 0.0), float(row.metrics["sparsify_s"] or 0.0), (high - low) / 2)
        found.setdefault(int(case.model.partition("numel=")[2].rstrip(")")), {})[name, case.density] = one
    return dict(sorted(found.items()))


def sorting_grows(rows: Sequence[Row]) -> Sequence[Verdict]:
    """Return whether Top-k takes longer for more elements, in proportion, and clearly so to select more of them."""
    sizes = {n: [own[key] for key in sorted(own) if key[0] == "topk"] for n, own in times(rows).items()}
    if len(sizes) < 2:
        return []
    in_proportion = all(
        b.select_s / a.select_s >= n / m / MUCH
        for (m, few), (n, many) in pairwise(sizes.items())
        for a, b in zip(few, many, strict=True)
    )
    with_k = all(b.select_s - a.select_s > a.noise_s + b.noise_s for own in sizes.values() for a, b in pairwise(own))
    words = "; ".join(f"{n:,}: {', '.join(f'{1e3 * one.select_s:.3g}' for one in own)} ms" for n, own in sizes.items())
    return [_said("micro.intro.sort_cost", both(in_proportion, with_k), f"{words} for more and more of them")]


def faster_by_threshold(rows: Sequence[Row]) -> dict[str, Sequence[Verdict]]:
    """Return whether thresholds select much faster than sorting at every size, and what MiCRO's control takes."""
    found = [{name: one for (name, at), one in own.items() if at == DENSITY} for own in times(rows).values()]
    if not found:
        return {}
    least = [
        min(own[name].select_s for name in SORTED) / max(own[name].select_s for name in THRESHOLDS) for own in found
    ]
    own = found[-1]["micro"]
    said = f"{1e6 * own.extra_s:.0f} us of {1e3 * own.select_s:.3g} ms, which varies by {1e6 * own.noise_s:.0f} us"
    faster = min(least) >= MUCH
    return {
        "micro.intro.threshold_fast": [_said("micro.intro.threshold_fast", faster, f"{min(least):.1f}x or more")],
        "micro.fig6.zero": [_said("micro.fig6.zero", abs(own.extra_s) <= own.noise_s, said)],
    }


def cells(rows: Sequence[Row], word: Mapping[str, str]) -> dict[str, Sequence[Verdict]]:
    """Return Table I's costs of selecting and further overheads on the largest vector; `word`: what a cell says.

    Of three levels of selecting, "very high" must cost much more than "very low", and that much more than "near-zero".
    A further overhead is "very high" where it is longer than selecting, and "no" where it is SLIGHT.
    """
    every = list(times(rows).values())
    if not every:
        return {}
    own = {name: one for (name, at), one in every[-1].items() if at == DENSITY}
    levels = ("near-zero", "very low", "very high")
    found: dict[str, Sequence[Verdict]] = {}
    for key, name in CELLS.items():
        select, overhead = f"micro.table1.{key}.selection", f"micro.table1.{key}.overhead"
        place = levels.index(word[select])
        holds = all(
            own[name].select_s >= MUCH * own[CELLS[other]].select_s
            if levels.index(word[f"micro.table1.{other}.selection"]) < place
            else own[CELLS[other]].select_s >= MUCH * own[name].select_s
            for other in CELLS
            if levels.index(word[f"micro.table1.{other}.selection"]) != place
        )
        found[select] = [_said(select, holds, f"{1e3 * own[name].select_s:.3g} ms")]
        extra = own[name].extra_s / own[name].select_s
        wanted = extra > 1 if word[overhead] == "very high" else extra <= SLIGHT
        found[overhead] = [_said(overhead, wanted, f"{100 * extra:.0f} % of selecting")]
    return found


def _said(claim: str, outcome: object, ours: str) -> Verdict:
    why = "torch's operators on one CPU core, of which orders are judged and not levels"
    return says(claim, outcome, ours, why, source="measured")  # type: ignore[arg-type]
