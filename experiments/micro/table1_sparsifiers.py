"""MiCRO Table I: seven weaknesses of five sparsifiers, tried on made-up gradients of 16 workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import absent, complete, held, says
from experiments.common.evaluation.operators import bytes_per_element
from experiments.common.evaluation.selection_example import SPARSIFIERS, WORKERS, run
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row

NAME = "micro.table1"
TITLE = f"Weaknesses of sparsifiers, tried with error feedback on {WORKERS} made-up workers"
COMMAND = f"ssfx figures {NAME}"

NAMES = {"topk": "Top-k", "cltk": "CLT-k", "hardthr": "hard threshold", "sidco": "SIDCo", "micro": "MiCRO"}
OURS = {"topk": "topk", "cltk": "cltk", "hardthr": "hard_threshold", "sidco": "sidco"}
CRITERIA = {
    "buildup": "gradient build-up", "density": "unpredictable high density", "tuning": "tuning of a threshold",
    "fidelity": "loss of fidelity", "idling": "worker idling", "selection": "selection cost",
    "overhead": "further overhead",
}  # fmt: skip
FAR = 1.1
"""More than this times the density that was set counts as high, and as another density."""
OTHER_SCALE = 4.0
"""How much larger gradients are in the second run, where a hand-set threshold is no longer right."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one line per sparsifier and criterion: the paper's word, and the number behind ours."""
    found = {one.claim: one for one in judge(rows)}
    table = [
        {
            "sparsifier": name if first else "",
            "criterion": heading,
            "paper": word(f"{NAME}.{key}.{criterion}"),
            "here": found[f"{NAME}.{key}.{criterion}"].ours,
            "outcome": found[f"{NAME}.{key}.{criterion}"].outcome,
        }
        for key, name in NAMES.items()
        for first, (criterion, heading) in zip([True] + [False] * 6, CRITERIA.items(), strict=True)
    ]
    columns = {
        "sparsifier": "sparsifier",
        "criterion": "criterion",
        "paper": "paper",
        "here": "ssfx",
        "outcome": "outcome",
    }
    origin = (
        "Computed by ssfx: rules of its compressors on made-up gradients, last quarter of the steps; no training run."
    )
    return draw_table(NAME, TITLE, columns, table, out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every cell of the table and on the two sentences about CLT-k."""
    found = [verdict for key in SPARSIFIERS for verdict in cells(key)]
    leading = run("cltk")
    found += [
        held("micro.iii.cltk_equal", leading.ratio, source="restated"),
        held("micro.iii.cltk_idle", leading.deciding / WORKERS, source="restated"),
    ]
    assert len(found) == len(claims_of(NAME))
    return complete(NAME, found, COMMAND)


def cells(key: str) -> list[Verdict]:
    """Return the verdicts on one line of the table: the rules of the methods, worked through on made-up gradients."""
    here, larger = run(key), run(key, OTHER_SCALE)
    moves = abs(larger.ratio / here.ratio - 1)
    properties = {
        "buildup": (here.overlap > 0 or (key != "cltk" and here.ratio > FAR), f"{here.ratio:.1f}x selected"),
        "density": (here.ratio > FAR, f"{here.ratio:.1f}x of what was set"),
        "tuning": (moves > FAR - 1, f"{100 * moves:.0f} % other density with {OTHER_SCALE:g}x larger gradients"),
        "fidelity": (here.deciding < WORKERS, f"{here.deciding:.0f} of {WORKERS} decide"),
        "idling": (here.idle > 0, f"{here.idle:.0f} of {WORKERS} wait"),
    }
    found = []
    for criterion, (yes, ours) in properties.items():
        claim = f"{NAME}.{key}.{criterion}"
        stated = word(claim)
        found.append(says(claim, (stated == "yes") == yes, ours, source="restated"))
    if key in OURS:
        moved = f"{bytes_per_element(OURS[key]):.0f} bytes moved per element"
    else:
        moved = f"1/{WORKERS} of the elements read"
    slower = "levels of the paper's implementations on GPUs; ours select without sorting"
    found.append(absent(f"{NAME}.{key}.selection", slower, "not comparable", moved))
    found.append(absent(f"{NAME}.{key}.overhead", "asks for times of the paper's implementations on GPUs"))
    return found


def word(claim_id: str) -> str:
    """Return what the cell says: the ledger's statement behind its equals sign."""
    statement = next(claim.statement for claim in claims_of(NAME) if claim.id == claim_id)
    return statement.rpartition("= ")[2]
