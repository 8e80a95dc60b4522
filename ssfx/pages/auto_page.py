"""The blocks of docs/auto.md: a plan that explains itself, and what the recorded runs say of each method."""

from __future__ import annotations

from ssfx.config.cases import resolve_plan
from ssfx.config.plans import plan_of
from ssfx.pages.markdown import table
from ssfx.schemes.search.auto_budget import MORE_STEPS, measured_steps
from ssfx.schemes.search.auto_why import why_lines

ASKED = ("model=bert_large", "cluster=64gpu", "cluster.inter.gbps=25", "scheme=auto", "density=0.01")
"""The command on the page."""


def why_block() -> str:
    """Return the command and what it prints."""
    planned = resolve_plan(ASKED)
    plan, profile, costs = plan_of(planned)
    assert not isinstance(costs, str)
    lines = why_lines(planned.model, planned.cluster.name, plan, profile, costs, planned.parts.plan_options)
    return "\n".join(["```", f"$ ssfx plan {' '.join(ASKED)} --why", *lines, "```"])


def steps_block() -> str:
    """Return the table of methods: their runs, how many more steps they needed, and which qualities allow them."""
    rows = []
    for one in measured_steps():
        more, tasks = one["more_steps"], one["tasks"].values()
        allowed = [name for name, limit in MORE_STEPS.items() if more is not None and more <= limit]
        reached = f"{sum(task['reached'] for task in tasks)} of {sum(task['runs'] for task in tasks)}"
        density = "" if one["density"] is None else f"{one['density']:g}"
        steps = "" if more is None else f"{more:+.1%}"
        kept_back = "" if one["kept_back"] is None else f"{one['kept_back']:.0%}"
        rows.append((one["words"], density, reached, steps, kept_back, ", ".join(allowed) or "none"))
    columns = (
        "method",
        "density",
        "runs at the target",
        "more steps than dense",
        "kept back at most",
        "allowed by quality",
    )
    return table(columns, rows)
