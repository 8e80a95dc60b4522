"""The Row: one run's outcome, as figures and the claims report read it, and the curve in it.

A curve is what was measured in the middle of training, by column, and as a data frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from ssfx.core.case import Case
from ssfx.core.files import loads
from ssfx.core.origin import Origin

if TYPE_CHECKING:
    import pandas as pd


METRICS: dict[str, str] = {
    "iteration_s": "median time of one optimizer step, everything included",
    "iteration_p10_s": "10th percentile of the iteration time",
    "iteration_p90_s": "90th percentile of the iteration time",
    "forward_s": "median forward time",
    "slowest_forward_s": "median over steps of the longest forward of any rank",
    "control_forward_s": "median forward of passes without exchange before the steps, of each one's slowest rank",
    "control_backward_s": "the same of their backward",
    "backward_s": "median backward time without compression and waiting",
    "sparsify_s": "median time the training thread spends on compression and decompression",
    "exposed_comm_s": "median time the training thread waits for exchanges",
    "comm_s": "median time during which an exchange was under way, hidden or not",
    "step_s": "median optimizer time",
    "other_s": "iteration_s minus forward, backward, sparsify, exposed_comm and step: data loading, zeroing, rounding",
    "throughput_samples_per_s": "samples of all ranks per second, from iteration_s",
    "contributed_bytes": "bytes of the payloads that one rank hands to collectives per step, as planned",
    "sent_bytes": "bytes one rank puts on the wire per step, counted (library collectives by the ring formulas)",
    "achieved_density": "elements sent over elements, mean over steps",
    "tensor_missing_rate": "share of tensors with no sent element, mean over steps",
    "kept_back": "norm of the residual over that of what there was to send; in rows of version 0.1",
    "peak_memory_bytes": "peak resident (CPU) or allocated (GPU) memory of the worst rank",
    "loss": "mean training loss of the last 10 measured steps",
    "top1": "top-1 accuracy on held-out data, in [0, 1]",
    "top5": "the right class is among the five first, share on held-out data, in [0, 1]",
    "exact_match": "answers equal to a true one after SQuAD's normalisation, share on held-out data, in [0, 1]",
    "f1": "F1 of an answer's words, best over true answers, mean over held-out questions, in [0, 1]",
    "bleu": "BLEU of held-out sentences by sacrebleu, in [0, 100]",
    "perplexity": "perplexity per token on held-out data; a token is a byte where the data set is bytes",
    "perplexity_per_word": "perplexity per word on held-out data, from the same likelihood",
    "steps_to_target": "optimizer steps until quality was first measured at the case's target, none if it never was",
    "time_to_target_s": "seconds of those steps' iterations, none if the target was never reached",
    "profiled_steps": "steps that were dense and observed before the scheme planned, or that tried one of its plans",
    "profile_s": "seconds of those steps, which train too",
    "plan_s": "seconds in which costs were measured and the plan was made, agreed on by all ranks and installed",
    "profile_share": "profile_s and plan_s over the seconds of all steps of the run",
    "compress_s": "median CPU time of compressing one tensor on one thread, nothing else (benchmarks/compressors.py)",
    "skipped_steps": "steps rolled back because a gradient was not finite",
}
"""Every metric a row may carry, with its meaning; all are of rank 0 unless said otherwise, per optimizer step."""

VIRTUAL = "quality measured, times simulated"
"""What rows of virtual ranks are. Their origin is of the kind "simulated", as no time in them is a measurement."""

LOSS_STEPS = 10
"""Number of steps whose mean is the metric loss."""


@dataclass(frozen=True)
class Row:
    """One finished run: the case, its metrics (keys of METRICS), how they were obtained and the manifest's digest.

    `samples` holds raw per-iteration times of rank 0 so that any statistic can be recomputed, and for a run with passes
    without exchange those of the slowest rank and the density of the rank that selected most. `density_ratios` counts
    rank 0's segments over all measured steps by achieved over target density, in bins.
    `curve` has equally long columns, a value per measurement of quality: see `curves`.
    """

    run_id: str
    case: Case
    metrics: Mapping[str, float | None]
    origin: Origin
    manifest: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, list[float]] = field(default_factory=dict)
    density_ratios: Mapping[str, int] = field(default_factory=dict)
    curve: Mapping[str, list[float | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := set(self.metrics) - set(METRICS):
            raise ValueError(f"unknown metric {sorted(unknown)[0]!r}")
        for name, value in self.metrics.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and isfinite(value)):
                raise ValueError(f"metric {name} must be a finite number or None, got {value!r}")
            if value is not None and value < 0 and name.endswith("_s"):
                raise ValueError(f"metric {name} must not be negative, got {value!r}")
        for name, values in self.samples.items():
            if not _not_negative(values):
                raise ValueError(f"samples {name} must be finite numbers that are not negative")
        if len({len(column) for column in self.curve.values()}) > 1:
            raise ValueError("the columns of a curve must be equally long")
        if self.run_id != self.case.run_id:
            raise ValueError(f"row of run {self.run_id} holds the case of run {self.case.run_id}")

    @property
    def kind(self) -> str:
        """What the numbers are, in words: the kind of the origin; of virtual ranks what each half is."""
        return VIRTUAL if self.case.virtual else self.origin.kind

    def to_json(self) -> str:
        """Return the row as one line of JSON."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # nothing is copied: samples are long
        case = {one.name: getattr(self.case, one.name) for one in fields(self.case)}
        values |= {"case": {**case, "cluster": vars(self.case.cluster)}, "origin": vars(self.origin)}
        if not self.curve:
            del values["curve"]
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Return the row that `to_json` wrote; an error of DAMAGED for a corrupt line."""
        raw = loads(line)
        case, curve = Case.of(raw["case"]), raw.get("curve", {})  # the first committed rows lack a curve and ratios
        if case.virtual and "time_s" in curve:  # and the first ones of virtual ranks call this a time
            curve["simulated_time_s"] = curve.pop("time_s")
        return cls(
            raw["run_id"],
            case,
            raw["metrics"],
            Origin(**raw["origin"]),
            raw["manifest"],
            raw["samples"],
            raw.get("density_ratios", {}),
            curve,
        )


def _not_negative(values: Sequence[float]) -> bool:
    # A NaN may hide from a minimum, not from a sum.
    return not values or (min(values) >= 0 and sum(values) < inf)


POINTS = 50
"""Points that a row keeps at most."""

COLUMNS: dict[str, str] = {
    "step": "optimizer steps done",
    "time_s": "seconds of all iterations so far on rank 0, without the time of measuring quality",
    "simulated_time_s": "in place of time_s, of virtual ranks: steps times the simulated iteration",
    "sent_bytes": "bytes rank 0 has put on the wire so far",
    "loss": "mean training loss since the point before",
    "density": "elements sent over elements on rank 0, mean since the point before",
    "error_norm": "Euclidean norm of what a rank has not sent yet, mean over ranks",
    "threshold": "the threshold that the collective steers, in units of the gradient",
    "union_density": "fraction of elements of the averaged gradient that are not zero: what all ranks sent together",
}
"""Columns of a curve, besides the metrics of quality of ssfx.core.rows.METRICS."""


def points(row: Row) -> Iterator[Mapping[str, float | None]]:
    """Yield the points of a row's curve in order, each by column."""
    for values in zip(*row.curve.values(), strict=True):
        yield dict(zip(row.curve, values, strict=True))


def curves(rows: Iterable[Row]) -> pd.DataFrame:
    """Return one line per point of every row's curve: run_id, the case's fields, and the curve's columns.

    A column that a row does not have is NaN there. `scheme_options` are left out: two rows that differ in nothing else
    differ in run_id.
    """
    import pandas as pd

    lines = []
    for row in rows:
        names = (name for name in Case.__dataclass_fields__ if name != "scheme_options")
        case = {name: getattr(row.case, name) for name in names}
        lines += [{"run_id": row.run_id, **case, **point} for point in points(row)]
    return pd.DataFrame(lines)
