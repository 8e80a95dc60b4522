"""SSFusion's background figures: what can be worked out of them, from public shapes and the simulator."""

from __future__ import annotations

from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.figures.tables import draw_table
from ssfx.advice.cases import simulate_case
from ssfx.config.simulations import resolve_simulations
from ssfx.core.rows import Row

NAME = "ssfusion.text.background"
TITLE = "Sections I and II: background figures"
COMMAND = "ssfx figures ssfusion.text.background"
COST = "seconds on one core"

GPT3_LAYERS, GPT3_WIDTH, GPT3_WORDS, GPT3_CONTEXT = 96, 12288, 50257, 2048
"""Shapes of GPT-3 as its authors publish them."""
SLOW_GBPS = 10
"""The slowest network of the paper's experiments."""
WORDS = (
    "model=resnet152,vit_large,bert_large,gpt2_large", "cluster=64gpu", f"cluster.inter.gbps={SLOW_GBPS}",
    "scheme=ddp",
)  # fmt: skip


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table: what the paper says, and what it comes to here."""
    table = [
        {
            "what": claims_by_id()[one.claim].statement,
            "paper": _paper(one.claim),
            "ssfx": one.ours or "-",
            "verdict": one.outcome,
            "how": one.reason,
            "claim": one.claim,
        }
        for one in judge(rows)
    ]
    columns = {"what": "statement", "paper": "paper", "ssfx": "ssfx", "verdict": "verdict", "how": "how"}
    origin = "Computed from published shapes, and simulated with data-sheet times (nominal); no run."
    return draw_table(NAME, TITLE, columns, table, out, origin=origin)


def finding(rows: list[Row]) -> str:
    """Return the share of exchanges in dense training's step."""
    low, high = shares()
    return (
        f"of a step of dense DDP on 64 GPUs at {SLOW_GBPS} Gbit/s, exchanges take {100 * low:.0f} to {100 * high:.0f} %"
    )


def judge(rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the two figures that can be worked out, and why the third cannot."""
    low, high = shares()
    said = (
        f"Dense DDP of the paper's four models on 64 GPUs, {SLOW_GBPS} Gbit/s between nodes, simulated with nominal "
        "times: the share of a step that waits for exchanges."
    )
    outcome: Outcome = "agrees" if high >= 0.9 else "partly" if high >= 0.5 else "disagrees"
    share = compared("ssfusion.bg.comm90", (0.9, 0.9), (low, high), unit="fraction").ours
    return [
        compared("ssfusion.bg.gpt3_params", 175, gpt3_parameters() / 1e9, decimals=0, unit="billion", command=COMMAND,
                   reason="Layers, width and vocabulary as its authors publish them."),
        Verdict("ssfusion.bg.comm90", outcome, share, "simulated", "nominal", said, COMMAND, COST),
        Verdict("ssfusion.bg.gpt3_data", "not attempted", "", "none",
                reason="The size of a training text cannot be worked out; ssfx does not train GPT-3."),
    ]  # fmt: skip


def gpt3_parameters() -> int:
    """Return the parameters of GPT-3: attention and feed-forward matrices, embeddings of words and places."""
    return 12 * GPT3_LAYERS * GPT3_WIDTH**2 + (GPT3_WORDS + GPT3_CONTEXT) * GPT3_WIDTH


def shares() -> tuple[float, float]:
    """Return the least and the largest share of a step that dense DDP waits for exchanges."""
    steps = [simulate_case(case)[1] for case in resolve_simulations(WORDS)]
    found = [step.exposed_comm_s / step.iteration_s for step in steps]
    return min(found), max(found)


def _paper(name: str) -> str:
    claim = claims_by_id()[name]
    assert claim.bounds is not None
    value = f"{100 * claim.bounds[0]:g} %" if claim.unit == "fraction" else f"{claim.bounds[0]:g} {claim.unit}"
    return value
