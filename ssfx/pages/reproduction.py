"""The page docs/reproduction.md: every figure with its rows, what they say, and every claim that was put to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ssfx.claims.evidence import Evidence
from ssfx.claims.simulated import Judged
from ssfx.figures.discovery import Figure, discover
from ssfx.pages.markdown import NOTE, code, table
from ssfx.pages.wording import by_calibration, counted, label, real, simulated, summary, word
from ssfx.results.rows import Row

INTRODUCTION = """\
Every figure, the command that makes its rows, the rows that are committed, and what they say about the claims of the
papers. [Experiments](experiments.md) has the settings, what the papers leave open, and when a verdict is agree, partly
or disagree. "Not comparable" means that a claim cannot be held against our rows; the last column says why. Simulated
and real rows are never mixed. The claims are those of `ssfx/data/claims/`, in our words.

None of these tables is typed: `make docs` writes them, and a test fails when the committed rows give others."""


def reproduction_page(rows: Sequence[Row]) -> str:
    """Return the whole page as `rows` give it."""
    sections = [_section(figure, rows) for figure in discover().values()]
    head = f"# Reproduction, figure by figure\n\n<!-- {NOTE} -->\n\n{INTRODUCTION}\n\n{summary(rows)}"
    return "\n\n".join([head, *sections]) + "\n"


def obtained(rows: Sequence[Row]) -> str:
    """Return how rows were obtained: kind, hardware, number, minutes if they were timed, and days."""
    if not rows:
        return "none yet"
    kinds = sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows})
    dates = sorted(row.origin.date[:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    timed = [_seconds(row) for row in rows if "started" in row.manifest]  # a simulation takes no time worth telling
    took = f"{sum(timed) / 60:.0f} min, " if timed else ""
    return f"{'; '.join(kinds)}: {len(rows)} runs, {took}{when}"


def _section(figure: Figure, rows: Sequence[Row]) -> str:
    chosen = figure.select(rows)
    title = f"{label(figure)}: {figure.title}".removeprefix(": ")
    parts = [f"## {figure.name}", f"{title[0].upper()}{title[1:]}.", f"    {figure.command}"]
    parts.append(f"**Rows.** {obtained(chosen)}.")
    if chosen:
        parts.append(f"![{figure.title}](img/{figure.name}.png)")
        parts.append(f"**What they say.** {figure.finding(chosen)}.")
    return "\n\n".join([*parts, *_claims(figure, rows)])


def _claims(figure: Figure, rows: Sequence[Row]) -> list[str]:
    """Return the counts and the tables of the claims that the figure's rows were held against."""
    virtual, runs = simulated(figure, rows), real(figure, rows)
    if not virtual and not runs:
        return ["**Claims.** None could be put to these rows."]
    groups = by_calibration(virtual)
    counts = [f"simulated ({name}): {counted(one.verdict for one in found)}" for name, found in groups.items()]
    counts += [f"{_kinds(runs)}: {counted(one.verdict for one in runs)}"] if runs else []
    tables = ([_simulated_table(groups)] if virtual else []) + ([_real_table(runs)] if runs else [])
    return [f"**Claims.** {'; '.join(counts)}.", *tables]


def _simulated_table(groups: Mapping[str, Sequence[Judged]]) -> str:
    lines = []
    for claim in dict.fromkeys(one.claim.id for found in groups.values() for one in found):
        ours = {name: one for name, found in groups.items() for one in found if one.claim.id == claim}
        first = next(iter(ours.values()))
        cells = [f"{ours[name].here}: {word(ours[name].verdict)}" if name in ours else "-" for name in groups]
        lines.append((code(claim), first.claim.statement, first.there, *cells, first.why or "-"))
    return table(("claim", "says", "paper", *groups, "why not comparable"), lines)


def _real_table(runs: Sequence[Evidence]) -> str:
    lines = []
    for one in runs:
        assert one.claim.bounds is not None
        assert one.low is not None
        assert one.high is not None
        paper, here = (_span(*ends, one.claim.unit) for ends in (one.claim.bounds, (one.low, one.high)))
        ours = f"{here}: {word(one.verdict)}"
        lines.append((code(one.claim.id), one.claim.statement, paper, ours, one.why or "-"))
    return table(("claim", "says", "paper", _kinds(runs), "why not comparable"), lines)


def _kinds(runs: Sequence[Evidence]) -> str:
    return ", ".join(sorted({one.how for one in runs}))


def _span(low: float, high: float, unit: str | None) -> str:
    """Return a range in percent: all that real runs are compared in is a share, or a gain with its sign."""
    scale, sign = (100, "+") if unit == "fraction" else (1, "")
    ends = [f"{scale * value:{sign}.3g}" for value in (low, high)]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def _seconds(row: Row) -> float:
    start, stop = (datetime.fromisoformat(row.manifest[name]) for name in ("started", "stopped"))
    together: int = row.manifest.get("measured_together", 1)  # rows of interleaved work share their time
    return (stop - start).total_seconds() / together
