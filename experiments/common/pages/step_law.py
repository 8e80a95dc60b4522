"""The generated part of docs/workloads.md about long runs: extra steps of each method, by the length of training."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.pages.markdown import table
from ssfx.core.rows import Row
from ssfx.lab.calibration.step_law import EXPERIMENT, FEWEST_RUNS, Interval, StepLaw, step_laws
from ssfx.schemes.search.auto_steps import MOST_UNREACHED

HORIZONS = (100, 1000, 10_000)
HEADER = (
    "method", "runs", "delay, steps", "factor", *(f"at {steps:,} steps" for steps in HORIZONS), "levels never reached",
)  # fmt: skip


def step_law_block(rows: Sequence[Row]) -> str:
    """Return which tasks were trained for how long, and the law of each method."""
    laws = step_laws(rows)
    if not laws:
        return f"*No such rows are committed yet; `ssfx run experiment={EXPERIMENT}` makes them.*"
    tasks = sorted({task for law in laws.values() for task in law.tasks})
    longest = max(law.longest_steps for law in laws.values())
    few = f" No interval is given of fewer than {FEWEST_RUNS} runs." if any(
        law.delay_interval is None for law in laws.values()
    ) else ""  # fmt: skip
    sentence = f"Tasks: {', '.join(tasks)}; {longest:,} steps. Columns of more steps than that are extrapolated.{few}"
    return f"{sentence}\n\n{table(HEADER, list(map(_cells, laws.values())))}"


def _cells(law: StepLaw) -> tuple[str, ...]:
    unreached = f"{100 * law.unreached:.0f} %"
    if law.unreached > MOST_UNREACHED:
        return law.method, str(law.runs), *("-" for _ in (*HORIZONS, "delay", "factor")), unreached
    return (
        law.method, str(law.runs), f"{law.delay_steps:+.0f}{_between(law.delay_interval, '.0f', 1)}",
        f"{100 * law.factor:+.1f} %{_between(law.factor_interval, '.1f', 100)}",
        *(f"{100 * law.more_steps(steps):+.1f} %" for steps in HORIZONS), unreached,
    )  # fmt: skip


def _between(interval: Interval | None, form: str, scale: float) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f" ({scale * low:+{form}} to {scale * high:+{form}})"
