"""Rebuild what the documentation shows: docs/img, and blocks of its pages, from reference rows and registries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from pathlib import Path

from ssfx.capabilities import HEADER, capabilities
from ssfx.figure_claims import verdict_counts
from ssfx.figures import Figure, discover, draw_all
from ssfx.paths import reference_dir
from ssfx.results.claims import ledgers
from ssfx.results.rows import Row
from ssfx.results.store import Store
from ssfx.status import evidence
from ssfx.validation.groups import load
from ssfx.validation.scores import Scores

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
README = ROOT / "README.md"
VALIDATION = ROOT / "docs" / "validation.md"

FIRST = "ssfusion.fig11"
NOTE = "written by `make docs` from results/reference; do not edit"


def main() -> None:
    """Draw docs/img again and rewrite the blocks of the pages."""
    rows = reference_rows()
    for old in IMAGES.glob("*.*"):
        old.unlink()
    for path in draw_all([], rows, IMAGES):
        if path.suffix == ".pdf":
            path.unlink()
    README.write_text(updated(README.read_text(), rows))
    VALIDATION.write_text(with_blocks(VALIDATION.read_text(), {"scores": scores_block()}))


def reference_rows() -> list[Row]:
    """Return the committed rows."""
    return Store(ROOT / "results", reference_dir()).reference_rows()


def updated(readme: str, rows: Sequence[Row]) -> str:
    """Return the README's text with its blocks as `rows` and the registered schemes give them."""
    return with_blocks(
        readme, {"figure": figure_block(rows), "status": status_block(rows), "schemes": schemes_block()}
    )


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with each named block, which it must have once, holding the text given for it."""
    for name, text in blocks.items():
        block = f"<!-- {name}: {NOTE} -->\n{text}\n<!-- end of {name} -->"
        parts = re.split(rf"<!-- {name}: .*?<!-- end of {name} -->", page, flags=re.DOTALL)
        if len(parts) != 2:
            raise ValueError(f"the page needs exactly one block {name!r}, it has {len(parts) - 1}")
        page = block.join(parts)
    return page


def figure_block(rows: Sequence[Row]) -> str:
    """Return FIRST, else the first figure that the rows allow, as Markdown, or the command that makes the rows."""
    for figure in sorted(discover().values(), key=lambda figure: figure.name != FIRST):
        if figure.select(rows):
            return f"![{figure.title}](docs/img/{figure.name}.png)"
    return "*No reference rows are committed yet; `make reference` makes them.*"


def status_block(rows: Sequence[Row]) -> str:
    """Return the table of what is reproduced: one line a figure, with origin, cost, claims and finding of its rows."""
    lines = [
        "| figure | what | command | rows so far | what they say | claims of the paper |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for figure in discover().values():
        chosen = figure.select(rows)
        said = figure.finding(chosen) if chosen else "-"
        cells = (figure.name, figure.title, f"`{figure.command}`", _obtained(chosen), said, _verdicts(figure, rows))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def schemes_block() -> str:
    """Return the capability table of all schemes, without what only a listing has room for."""
    lines = [f"| {' | '.join(HEADER[:-1])} |", "| --- " * (len(HEADER) - 1) + "|"]
    lines += [f"| {' | '.join(astuple(line)[:-1])} |" for line in capabilities()]
    return "\n".join(lines)


def scores_block() -> str:
    """Return what `ssfx validate` finds: one line for each group and for each of its sets, and its notes."""
    groups = [*load("recorded"), *load("published")]
    lines = ["| what | n | mean | median | maximum | bias | tau | inverted by > 5 % |", "| --- " * 8 + "|"]
    lines += [
        _scores_line(f"**{group.title}**" if name == "all" else name, scores)
        for group in groups
        for name, scores in reversed(group.scores())
    ]
    notes = [f"- {group.title.partition(':')[0]}: {note}." for group in groups for note in group.notes]
    return "\n".join([*lines, "", *notes])


def _scores_line(name: str, scores: Scores) -> str:
    shares = (scores.mean, scores.median, scores.maximum)
    percent = [f"{100 * share:.3g} %" for share in shares] + [f"{100 * scores.bias:+.2g} %"]
    tau = "-" if scores.tau is None else f"{scores.tau:.2f}"
    return f"| {' | '.join((name, str(scores.count), *percent, tau, str(len(scores.telling))))} |"


def _obtained(rows: Sequence[Row]) -> str:
    if not rows:
        return "none yet"
    kinds = sorted({f"{row.origin.kind} on {row.origin.hardware}" for row in rows})
    dates = sorted(row.origin.date[:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    timed = [_seconds(row) for row in rows if "started" in row.manifest]  # a simulation takes no time worth telling
    took = f"{sum(timed) / 60:.0f} min, " if timed else ""
    return f"{'; '.join(kinds)}: {len(rows)} runs, {took}{when}"


def _verdicts(figure: Figure, rows: Sequence[Row]) -> str:
    """Return how many claims about this figure our rows agree with, and so on; "-" when none can be put to rows.

    What simulations say is counted apart, by calibration.
    """
    entries = [entry for ledger in ledgers() for entry in evidence(ledger, figure.select(rows))]
    found = Counter(entry.verdict for entry in entries if {entry.claim.id, entry.claim.artifact} & set(figure.claims))
    simulated = verdict_counts([figure], rows)
    if simulated and set(found) == {"not run"}:
        found.clear()  # what is simulated need not be run
    counts = {"": found, **{f"simulated ({name}): ": simulated[name] for name in sorted(simulated)}}
    return "; ".join(f"{how}{_counted(count)}" for how, count in counts.items() if count) or "-"


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items()))


def _seconds(row: Row) -> float:
    start, stop = (datetime.fromisoformat(row.manifest[name]) for name in ("started", "stopped"))
    together: int = row.manifest.get("measured_together", 1)  # rows of interleaved work share their time
    return (stop - start).total_seconds() / together


if __name__ == "__main__":
    main()
