"""The StepRecord: what one rank observed in one optimizer step, one line of its attempt-<n>/rank<r>.jsonl. No torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Times in seconds, named and defined as in ssfx.results.rows.METRICS; they add up to `iteration_s`.

    `step` counts from 0. `comm_s` overlaps the others and is not part of the sum. `loss` is the mean over the rank's
    micro-batches, None when it is not finite. `skipped` is true when all ranks rolled the step back. `density_ratios`
    counts segments by achieved over target density, in the bins of ssfx.results.density_bins. `control_forward_s` and
    `control_backward_s` are of the pass without exchange before the step, None where there was none. `evaluated` is
    what ssfx.workloads.quality.measure found after the step, None where it was not due. `observed` steps are those that
    a scheme observes before it plans, and `plan_s` are the seconds at the end of a step in which it did plan.
    """

    step: int
    iteration_s: float
    forward_s: float
    backward_s: float
    sparsify_s: float
    exposed_comm_s: float
    step_s: float
    other_s: float
    comm_s: float
    loss: float | None
    contributed_bytes: float
    sent_bytes: float
    achieved_density: float
    tensor_missing_rate: float | None
    skipped: bool
    density_ratios: dict[str, int] = field(default_factory=dict)
    control_forward_s: float | None = None
    control_backward_s: float | None = None
    evaluated: dict[str, float | None] | None = None
    observed: bool = False
    plan_s: float = 0.0

    def to_json(self) -> str:
        """Return the record as one line of JSON without the line break."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> StepRecord:
        """Return the record that `to_json` wrote; ValueError or TypeError for a torn or foreign line."""
        return cls(**json.loads(line))
