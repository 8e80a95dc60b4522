"""The README's table of claims: what a paper says, the command that puts it to the test here, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ssfx.claims.ledger import PaperClaim
from ssfx.claims.simulated import Judged
from ssfx.figures.discovery import Figure, discover
from ssfx.pages.markdown import anchor, code, cut, table
from ssfx.pages.wording import COMPARED, by_calibration, counted, label, named, real, simulated, summary, word
from ssfx.results.rows import Row

CELL = 100
"""Most characters of a cell, so that the table stays readable; `docs/reproduction.md` has room for the rest."""
PAGE = "docs/reproduction.md"


def status_block(rows: Sequence[Row]) -> str:
    """Return what simulations say about claims in one sentence, and the table: at most two claims a figure.

    A figure that no claim can be put to has one line, too. The last line counts the claims that have none.
    """
    lines: list[Sequence[str]] = []
    rest: list[Judged] = []
    for figure in sorted(discover().values(), key=lambda figure: not label(figure)):  # those of no paper come last
        found = simulated(figure, rows)
        shown = named(found)
        rest += [one for one in found if one.claim not in shown]
        if shown:
            lines += [_claim_line(figure, claim, found) for claim in shown]
        else:
            lines.append(_figure_line(figure, rows))
    if rest:
        lines.append(_rest_line(rest))
    return f"{summary(rows)}\n\n{table(('claim', 'command', 'status'), lines)}"


def _claim_line(figure: Figure, claim: PaperClaim, found: Iterable[Judged]) -> Sequence[str]:
    same = [one for one in found if one.claim == claim]
    stated = "" if claim.metric == "ordering" else f": {same[0].there}"
    head = f"{label(figure)}: "
    said = head + cut(claim.statement, CELL - len(head + stated)) + stated
    ours = ", ".join(f"{one.calibration} {one.here} ({word(one.verdict)})" for one in same)
    return said, _command(figure), f"simulated: {ours}"


def _figure_line(figure: Figure, rows: Sequence[Row]) -> Sequence[str]:
    title = f"{label(figure)}: {figure.title}".removeprefix(": ")
    chosen = figure.select(rows)
    if not chosen:
        return title, _command(figure), "not run yet"
    kinds = "/".join(sorted({row.origin.kind for row in chosen}))
    devices = "/".join(sorted({row.case.device.upper().replace("CUDA", "GPU") for row in chosen}))
    verdicts = [one.verdict for one in real(figure, rows)] + [one.verdict for one in simulated(figure, rows)]
    return (
        title,
        _command(figure),
        f"{kinds} on {devices}, {len(chosen)} runs; claims: {counted(verdicts) or 'none judged'}",
    )


def _rest_line(rest: Sequence[Judged]) -> Sequence[str]:
    able, unable = ({one.claim.id for one in rest if (one.verdict in COMPARED) == compared} for compared in (1, 0))
    said = f"{len(able)} more claims of these figures, and {len(unable)} that cannot be compared"
    groups = by_calibration(one for one in rest if one.verdict in COMPARED)
    ours = "; ".join(f"{name} {counted(one.verdict for one in found)}" for name, found in groups.items())
    return said, f"[one by one]({PAGE})", f"simulated: {ours}" if ours else "-"


def _command(figure: Figure) -> str:
    """Return the command that makes the figure's rows; without its options, and where they are, if it is long."""
    if len(code(figure.command)) <= CELL:
        return code(figure.command)
    program = figure.command.partition(" --")[0]
    return f"{code(cut(program, CELL // 3))} ([options]({PAGE}#{anchor(figure.name)}))"
