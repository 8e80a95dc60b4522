"""ACP-SGD Fig. 10: iteration time by the size of fusion buffers, BERT-Large at ranks 32 and 256."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.acpsgd_panels import COLOURS, line
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.low_rank import mib, of
from experiments.common.evaluation.row_steps import Rule, judge_orders, judge_predictions, prediction_bars
from experiments.common.evaluation.step_plots import Lines, draw_panels
from experiments.common.validation.published_acpsgd import Setup, ratios, timed
from experiments.common.validation.published_steps import PaperMethod, PaperSetting, Steps, method
from ssfx.core.rows import Row
from ssfx.schemes.search.byte_groups import MIB

NAME = "acpsgd.fig10"
TITLE = "Iteration time by buffer size"
NEEDS = {"experiment": "acpsgd_fusion", "calibration": bool}
COMMAND = "ssfx run experiment=acpsgd_fusion"

SIZES_MB = (0, 1, 5, 25, 100, 500, 1500)
RANKS = (32, 256)
METHODS = ("powersgd-star", "acpsgd")


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one panel a rank, iteration time over buffer size; the paper prints gains only."""
    panels = []
    for rank in RANKS:
        lines = [line(rows, name, [(mb, seconds(name, rank, mb)) for mb in SIZES_MB]) for name in METHODS]
        title = f"BERT-Large, rank {rank}"
        panels.append(Lines(title, lines, "buffer (MB)", "iteration (s)", log_x=True, ticks=SIZES_MB))
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig10.")]
    gains = prediction_bars(rows, own, "gain of 25 MB at rank 256", {"over": COLOURS["acpsgd"]})
    return draw_panels(NAME, [*panels, gains], rows, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return verdicts on the size of the model, its ratio at rank 256, the gain of 25 MB and the order."""
    own = [one for one in ratios() if one.claim.startswith("acpsgd.fig10.")]
    rank = claims_by_id()["acpsgd.fig10.rank256_ratio"].conditions["rank"]
    found = of("BERT-Large", rank)
    two = f"{found.turns_ratio:.2f}x if P or Q is sent in a step, {found.power_ratio:.2f}x as Table I counts (ACP-02)"
    computed = [
        held("acpsgd.fig10.model_size", mib(found.numel)),
        held("acpsgd.fig10.rank256_ratio", (found.power_ratio, found.turns_ratio), reason=two),
        held("acpsgd.fig10.buf_range", (float(min(SIZES_MB)), float(max(SIZES_MB))), tolerance=0.0),
    ]
    return complete(NAME, [*computed, *judge_predictions(rows, own), *judge_orders(rows, ORDERS)], COMMAND)


def where(name: str, rank: int, mb: int) -> tuple[PaperMethod, PaperSetting]:
    """Return a method with buffers of this size; one of the ledger's methods but for the size."""
    how, at = timed(name, Setup("BERT-Large", rank=rank))
    return method(how.scheme, **{**dict(how.options), "buffer_bytes": mb * MIB}), at


def seconds(name: str, rank: int, mb: int) -> Callable[[Steps], float]:
    """Return how the iteration time follows from steps."""
    return lambda steps: steps.step(*where(name, rank, mb)).iteration_s


def _below(steps: Steps) -> tuple[bool, str]:
    wins = [seconds("acpsgd", r, mb)(steps) < seconds("powersgd-star", r, mb)(steps) for r in RANKS for mb in SIZES_MB]
    return all(wins), f"below in {sum(wins)} of {len(wins)} points"


ORDERS: dict[str, Rule] = {"acpsgd.fig10.acp_below": _below}
