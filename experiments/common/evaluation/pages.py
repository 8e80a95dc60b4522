"""Pages of claims: what a passage, a set-up or an algorithm states, beside what is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import paper_value
from experiments.common.figures.tables import COMPUTED, draw_table
from ssfx.core.rows import Row

COLUMNS = {"what": "what the paper states", "paper": "paper", "here": "ssfx", "outcome": "outcome", "why": "why"}


def draw_claims(
    name: str, title: str, verdicts: Sequence[Verdict], out: Path, *, origin: str = COMPUTED, used: Sequence[Row] = ()
) -> list[Path]:
    """Write a table of the verdicts, one line a claim, and return the paths."""
    lines = [
        {
            "what": claims_by_id()[one.claim].statement,
            "paper": paper_value(claims_by_id()[one.claim]),
            "here": one.ours,
            "outcome": one.outcome,
            "why": one.reason,
            "claim": one.claim,
        }
        for one in verdicts
    ]
    shown = {key: heading for key, heading in COLUMNS.items() if any(line[key] for line in lines)}
    return draw_table(name, title, shown, lines, out, origin=origin, used=used)
