"""The StepRecord: what one rank observed in one optimizer step, one line of its attempt-<n>/rank<r>.jsonl. No torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

from ssfx.core.errors import RunError
from ssfx.core.files import DAMAGED, loads, text_of
from ssfx.lab.results import step_logs


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one rank. Times are in seconds and add up to `iteration_s`, without `comm_s`.

    They are of the thread that trains, and defined as in ssfx.core.rows.METRICS.
    """

    step: int
    """From 0."""
    iteration_s: float
    """From one step's start to the next one's."""
    forward_s: float
    """Forward passes with the loss, of all micro-batches."""
    backward_s: float
    """Backward passes, without compression and waiting."""
    sparsify_s: float
    """Compression and decompression."""
    exposed_comm_s: float
    """Waiting for exchanges."""
    step_s: float
    """Optimizer step."""
    other_s: float
    """The rest: loading data, clearing gradients."""
    comm_s: float
    """How long an exchange was under way, hidden or not; it overlaps the others."""
    loss: float | None
    """Mean over the rank's micro-batches; None when it is not finite."""
    contributed_bytes: float
    """Bytes of the payloads that the rank handed to collectives."""
    sent_bytes: float
    """Bytes that the rank put on the wire, by count."""
    achieved_density: float
    """Elements sent over elements, in [0, 1]."""
    tensor_missing_rate: float | None
    """The share of tensors with no sent element; None where that is unknown."""
    skipped: bool
    """Whether all ranks rolled the step back."""
    density_ratios: dict[str, int] = field(default_factory=dict)
    """Segments by achieved over target density, in the bins of ssfx.lab.results.density_bins."""
    control_forward_s: float | None = None
    """Forward time of the pass without exchange before the step; None where there was none."""
    control_backward_s: float | None = None
    """Backward time of that pass."""
    evaluated: dict[str, float | None] | None = None
    """What ssfx.lab.workloads.train.measure found after the step; None where it was not due."""
    observed: bool = False
    """Whether a scheme only observed this step, before it plans, or tried one of several plans in it."""
    plan_s: float = 0.0
    """Planning at the end of the step."""

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)!r}")
        if self.loss is not None and not -inf < self.loss < inf:
            raise ValueError(f"loss must be finite or None, got {self.loss!r}")

    def to_json(self) -> str:
        """Return the record as one line of JSON without the line break."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> StepRecord:
        """Return the record that `to_json` wrote; ValueError or TypeError for a torn, changed or foreign line."""
        return cls(**loads(line))


def records_in(path: Path, *, torn: bool) -> list[StepRecord]:
    """Return the records of a log of steps; RunError with the path for one that is damaged or was changed.

    `torn`: a last line without its end is left out, as of a rank that was killed while it wrote.
    """
    step_logs.check(path)
    *lines, last = text_of(path).split("\n")
    lines += [last] if last and not torn else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(StepRecord.from_json(line))
        except DAMAGED as error:
            raise RunError(f"{path}:{number}: not a step record ({error})") from None
    return records


_NOT_NEGATIVE = (
    "step",
    "iteration_s",
    "forward_s",
    "backward_s",
    "sparsify_s",
    "exposed_comm_s",
    "step_s",
    "other_s",
    "comm_s",
    "contributed_bytes",
    "sent_bytes",
    "achieved_density",
    "plan_s",
)
