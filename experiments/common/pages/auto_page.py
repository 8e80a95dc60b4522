"""The blocks of docs/auto.md: a plan that explains itself, and what the recorded runs say of each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.common.pages.markdown import table
from ssfx.config.plans import plan_of
from ssfx.lab.config.cases import resolve_plan
from ssfx.schemes.search.auto_steps import MORE_STEPS, TRAIN_STEPS, Needed, measured_steps, needed
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
    """Return the table of methods, which qualities allow them, and what the long runs changed in that."""
    rows, changed = [], []
    for one in measured_steps():
        short, tasks, found = one["more_steps"], one["tasks"].values(), needed(one)
        reached = f"{sum(task['reached'] for task in tasks)} of {sum(task['runs'] for task in tasks)}" if tasks else ""
        density = "" if one["density"] is None else f"{one['density']:g}"
        kept_back = "" if one["kept_back"] is None else f"{one['kept_back']:.0%}"
        rows.append((
            one["words"], density, reached, "" if short is None else f"{short:+.1%}", *_long(one["long"], found),
            kept_back, ", ".join(_allowed(found.share)) or "none",
        ))  # fmt: skip
        if tasks and _allowed(found.share) != _allowed(short):
            before, now = (", ".join(_allowed(share)) or "none" for share in (short, found.share))
            changed.append(f"{one['words']}{density and f' at {density}'}: {before} by short tasks, now {now}")
    columns = (
        "method", "density", "short tasks at the target", "more steps there", f"at {TRAIN_STEPS:,} steps by long runs",
        "seeds x tasks", "kept back at most", "allowed by quality",
    )  # fmt: skip
    said = "; ".join(changed) or "nothing"
    return f"{table(columns, rows)}\n\nWhat the long runs changed: {said}."


def _long(law: Mapping[str, Any] | None, found: Needed) -> tuple[str, str]:
    if law is None:
        return "", ""
    interval = "" if found.interval is None else " ({:+.1%} to {:+.1%})".format(*found.interval)
    worst = " (the worst run)" if found.interval is None and found.share is not None else ""
    share = "hardly ever as good" if found.share is None else f"{found.share:+.1%}{interval}{worst}"
    return share, f"{law['seeds']} x {len(law['tasks'])}"


def _allowed(share: float | None) -> list[str]:
    return [name for name, limit in MORE_STEPS.items() if share is not None and share <= limit]
